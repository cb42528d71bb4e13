"""A server that keeps its store what its folders are: `limner.search.watch` in a thread, and how far it is."""

import logging
import threading
import time
from collections.abc import Callable, Collection
from functools import partial

from fastapi import APIRouter

from limner.alert_reports import AlertHit, AlertReport
from limner.counted import counted
from limner.errors import LimnerError
from limner.search.alerts import Alerting
from limner.search.engine import Engine
from limner.search.hooks import Hooks
from limner.search.sync import SyncSettings, expect_folders
from limner.search.watch import expect_watchfiles, watch
from limner.server.audit import AuditLog
from limner.server.batching import Worker
from limner.server.problems import declared
from limner.server.routes import Rules
from limner.store.alerts import Alert
from limner.store.contents import chunks
from limner.store.files import StoreFiles
from limner.store_reports import SyncReport
from limner.wire import ResponseModel

_PART = 256
"""Files after which what was indexed is found, and others may change the store; fewer at first."""

_RECORDED = 1000
"""Largest number of pictures in one line of the audit log."""

_SHOWN = 20
"""Pictures of an alert that a server remembers."""

_BATCH = 16
"""Pictures that are encoded together: a query is embedded beside them."""

log = logging.getLogger("limner.server")


class Following(ResponseModel):
    """A server that keeps its store what its folders are, or not, and how far it is."""

    follows: bool = False
    """True if it does."""
    pictures: int = 0
    """Pictures that a search finds."""
    done: int = 0
    """Files that were looked at, in the look that goes on or in the last one."""
    total: int = 0
    """Files of that look."""
    rate: float | None = None
    """Files a second; null while nothing is to be done."""
    seconds_left: float | None = None
    """Time that it takes at this rate."""
    waiting: int = 0
    """Pictures that are out of the search because their files are gone."""
    skipped: int = 0
    """Files that cannot be read."""
    found: int = 0
    """Pictures that alerts have found since this server began."""
    away: int = 0
    """Folders that seem to be away; their pictures stay."""
    away_folders: tuple[str, ...] = ()
    """Their paths; empty unless this server shows paths."""
    doubted: int = 0
    """Pictures whose files are gone and that stay: they are so many that a disk may be away."""
    trouble: bool = False
    """True if the folders are not followed at the moment; the server's log says why."""


class Found:
    """The pictures that a server's alerts have found, and the web hooks that get them: SIGHUP leaves both as they are.

    `told` is called with what is found and what is not delivered.
    """

    def __init__(self, told: Callable[[AlertReport | str], None] | None = None) -> None:
        self._told = told
        # of each alert how many it has found, and the last of them
        self._found: dict[str, tuple[int, tuple[AlertHit, ...]]] = {}
        # at SIGHUP two followers tell for a moment
        self._one = threading.Lock()
        self.hooks = Hooks(self.take)

    def of(self, name: str) -> tuple[int, tuple[AlertHit, ...]]:
        """How many pictures an alert has found since the server began, and the last of them."""
        return self._found.get(name, (0, ()))

    @property
    def pictures(self) -> int:
        """Number of pictures that all have found."""
        return sum(count for count, _ in [*self._found.values()])

    def forget(self, name: str) -> None:
        """Forget what an alert has found, which was taken away."""
        self._found.pop(name, None)

    def take(self, told: AlertReport | str) -> None:
        """Count what an alert has found, and log it without its name, which may describe a person."""
        if isinstance(told, AlertReport):
            with self._one:
                count, hits = self.of(told.alert)
                self._found[told.alert] = count + len(told.hits), (*told.hits, *hits)[:_SHOWN]
            log.info("an alert has found %s", counted(len(told.hits), "pictures"))
        else:
            log.warning("%s", told)
        if self._told is not None:
            self._told(told)


class Follower:
    """The thread, between `start` and `stop`. `told` is called with each report, and `found` with what alerts tell."""

    def __init__(
        self,
        engine: Engine,
        kept_days: float,
        told: Callable[[SyncReport | str], None] | None = None,
        *,
        found: Found,
        worker: Worker,
        audit: AuditLog | None = None,
    ) -> None:
        expect_watchfiles()
        expect_folders(engine.files)
        self._engine, self._told, self._worker, self._audit = engine, told, worker, audit
        self._found = found
        self._how = SyncSettings(kept_days=kept_days, batch_size=_BATCH, part=_PART)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="limner-follower", daemon=True)
        self._since, self._done, self._total = time.monotonic(), 0, 0
        self._report = SyncReport()
        self._trouble = False

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End when the batch that has begun is written; nobody waits for it."""
        self._stop.set()

    @property
    def away(self) -> int:
        """Number of folders that seem to be away."""
        return len(self._report.away)

    @property
    def doubted(self) -> int:
        """Number of pictures whose files are gone and that stay."""
        return 0 if self._report.doubt is None else len(self._report.gone)

    def now(self, *, paths: bool = False) -> Following:
        """Say how far it is, without a path unless they are asked for."""
        done, total = self._done, self._total
        seconds = time.monotonic() - self._since
        rate = done / seconds if seconds > 1 and done < total else None
        return Following(
            follows=True,
            pictures=len(self._engine.files) - self._report.waiting,
            done=done,
            total=total,
            rate=rate,
            seconds_left=None if not rate else (total - done) / rate,
            waiting=self._report.waiting,
            skipped=len(self._report.skipped),
            found=self._found.pictures,
            away=self.away,
            away_folders=tuple(folder for folder, _ in self._report.away) if paths else (),
            doubted=self.doubted,
            trouble=self._trouble,
        )

    def _follow(self) -> None:
        try:
            # a handle of its own: searches go on by the server's
            files = StoreFiles.open(self._engine.files.folder)
            engine = Engine(files, self._engine.encoder, self._engine.calibration)
            alerting = Alerting(
                engine,
                self._found.take,
                partial(self._record, files),
                lambda make: self._worker.call(make).result(),
                self._found.hooks,
            )
            watch(
                *(engine.encoder, files, self._take, self._how),
                stop=self._stop,
                progress=self._count,
                after=alerting.look,
            )
        except LimnerError as error:
            self._take(str(error))
        except Exception:
            # a bug: searches go on, and the page says that the folders are not followed
            self._trouble = True
            log.exception("following the folders has ended")

    def _record(self, files: StoreFiles, alert: Alert, report: AlertReport) -> None:
        if self._audit is None:
            return
        for some in chunks(report.hits, _RECORDED):
            keys = [hit.id for hit in some]
            asked = {"text": alert.text, "where": list(alert.where)}
            line = {"who": None, "client": None, "request": "alert-found", **asked}
            self._audit.append(
                {**line, "status": 200, "found": keys, "count": len(keys)},
                lambda named: set(named) - held_by(files, named),
            )

    def _count(self, done: int, total: int) -> None:
        if done < self._done or not self._done:
            self._since = time.monotonic()
        self._done, self._total = done, total
        # Ctrl-C ends a long look between two batches; what is committed stays
        if self._stop.is_set():
            raise StoppedError

    def _take(self, told: SyncReport | str) -> None:
        self._trouble = isinstance(told, str)
        if isinstance(told, SyncReport):
            # of other files that cannot be read a look at some says nothing
            more = () if told.whole else self._report.skipped
            self._report = told.model_copy(update={"skipped": tuple(dict((*more, *told.skipped)).items())})
            log.info("followed its folders: %r", told)
        else:
            log.warning("following its folders: %s", told)
        if self._told is not None:
            self._told(told)


def held_by(files: StoreFiles, keys: Collection[str]) -> set[str]:
    """Those of some keys whose pictures a search finds."""
    rows = files.read(lambda reading: list(reading.pictures([*keys])))
    return {row.id for row in rows if row.gone is None}


class StoppedError(LimnerError):
    """A look ends, since the server does."""


def following_routes(follower: Follower | None, *, paths: bool) -> APIRouter:
    """Make the route that says how far it is, and with `paths` of which folders."""
    routes = APIRouter(tags=["server"])

    # no cost: the page asks every other second while pictures are indexed
    @Rules(right="search", cost=0.0)
    @routes.get("/v1/following", responses=declared(401, 403, 421, 429, 500, 503))
    async def following() -> Following:
        """Say whether this server keeps its store what its folders are, and how far it is."""
        return Following() if follower is None else follower.now(paths=paths)

    return routes
