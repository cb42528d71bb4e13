"""The server's health: probes of what it needs, run by a timer and remembered, and the routes that tell their results.

`/livez` says that the process answers, `/readyz` that a search would be. No request starts work that others wait for:
each probe runs in a thread of its own, one at a time, at most once in `probe_interval` seconds, and a request reads
what is remembered.
"""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse, Response

from limner.errors import DataError, LimnerError, SettingsError, StoreError
from limner.search.engine import Engine
from limner.server.batching import Worker
from limner.server.problems import REFUSED_FOR, STORE_TROUBLES, declared, problem
from limner.server.routes import Rules
from limner.server.settings import ServerSettings
from limner.store.path import expect_writable
from limner.store_reports import ProbeName, ProbeReport, Readiness
from limner.wire import ResponseModel

_PATIENCE = 1.0
"""Seconds that a request waits for probes that have just begun: after the start, and where no timer runs."""

_SHARE = 10
"""A probe rests for so many times the time that it took: one that reads a damaged store must not read all the time."""
_LONGEST_REST = 60.0

_OF_CHANGES = ("writer", "uploads")
"""Probes of what changes alone need. A load balancer that is told to send nothing here when the store's disk is full
would keep searches from being answered that can be."""

# no cost: a probe costs no more than its refusal would, and strangers at the address of a load balancer must not keep
# its probes out
_PROBE = Rules(is_open=True, cost=0.0)

_UNKNOWN = "not probed yet"
_CHANGED = "the store has changed and is being read"
_WORD = "a"
"""Text that the model is probed with; a model that does not know it answers as to an empty one."""

log = logging.getLogger("limner.server")


Changes = Annotated[
    bool,
    Query(description="True: 503 also if no picture could be added or deleted; searches may be answered."),
]


class Alive(ResponseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"
    """Always "ok"."""


class _ModelFaultError(LimnerError):
    """The model answers, and not with an embedding."""


class Probe:
    """A repeated check and its last result.

    `ask` raises if something is wrong. `interval`: seconds between two times; `limit`: seconds that it may take.
    """

    def __init__(self, name: ProbeName, ask: Callable[[], object], *, interval: float, limit: float) -> None:
        self.name, self._ask, self._interval, self._limit = name, ask, interval, limit
        # replaced as a whole, so that a reader in another thread never sees half of it
        self._began: float | None = None
        self._last: tuple[float, float, Exception | None] | None = None

    def begin(self) -> None:
        """Begin to ask, in a thread of its own, unless this is being asked or was a moment ago."""
        # called by asyncio's loop alone, so that no lock is needed
        if self._began is not None:
            return
        if self._last is not None:
            began, ended, _ = self._last
            rest = max(self._interval, min(_SHARE * (ended - began), _LONGEST_REST))
            if time.monotonic() - ended < rest:
                return
        self._began = time.monotonic()
        # a daemon: a disk that hangs must not keep the process from ending
        threading.Thread(target=self._run, name=f"limner-probe-{self.name}", daemon=True).start()

    def _run(self) -> None:
        began, fault = self._began, None
        assert began is not None
        try:
            self._ask()
        except Exception as error:
            fault = error
        self._last = (began, time.monotonic(), fault)
        self._began = None

    @property
    def has_ended(self) -> bool:
        """True if it was asked once, whatever came of it."""
        return self._last is not None

    @property
    def is_settled(self) -> bool:
        """True if it was asked, and is not being asked."""
        return self._began is None and self._last is not None

    @property
    def fault(self) -> Exception | None:
        """The exception that the last one ended with; None if it succeeded."""
        return None if self._last is None else self._last[2]

    def report(self) -> ProbeReport:
        """Tell what is remembered."""
        began, last = self._began, self._last
        took = None if last is None else round(1000 * (last[1] - last[0]), 2)
        age = None if last is None else round(time.monotonic() - last[1], 2)
        reason = None
        if began is not None and time.monotonic() - began > self._limit:
            reason = f"no answer within {self._limit:g} s"
        elif last is None:
            reason = _UNKNOWN
        elif last[2] is not None:
            reason = _told(last[2])
        return ProbeReport(name=self.name, reason=reason, took_ms=took, age_seconds=age)


def _told(error: Exception) -> str:
    """Say what is wrong without a path of this machine."""
    if isinstance(error, StoreError):
        return STORE_TROUBLES[error.trouble]
    return "the server's log says why"


class Health:
    """The probes of all that the server needs in order to answer, and the numbers that they have seen.

    `needed`: further probes, of what no search is answered without.
    """

    def __init__(
        self,
        engine: Engine,
        worker: Worker,
        settings: ServerSettings,
        needed: Mapping[ProbeName, Callable[[], object]],
    ) -> None:
        self._engine, self._worker = engine, worker
        self.pictures: int | None = None
        """Number of images when the store was last read; None while it cannot be."""
        self.changed_at: float | None = None
        """Time of the last commit, in seconds since 1970; None before the first one, and while it cannot be read."""
        self._changing = self._stopping = self._timed = False
        self._known = ""
        self._unready_since: float | None = None
        self._interval = settings.probe_interval
        limit = settings.probe_limit or settings.query_seconds + 10
        asked: list[tuple[ProbeName, Callable[[], object]]] = [
            ("store", self._read_store),
            ("model", self._ask_model),
        ]
        if settings.changes:
            asked.append(("writer", engine.files.lock.check))
        if settings.changes and (uploads := settings.uploads) is not None:
            asked.append(("uploads", lambda: expect_writable(uploads)))
        asked += needed.items()
        self.probes = [Probe(name, ask, interval=self._interval, limit=limit) for name, ask in asked]

    def _read_store(self) -> None:
        files = self._engine.files
        try:
            pictures, commit = len(files), files.rows.changed_at()
            if files.held is None or files.held[0][0] != files.follow()[0]:
                # another store: the first query would wait for all of its rows
                self._changing = True
                self._worker.probe(self._engine.prepare).result()
        except BaseException:
            # a number of yesterday would look like one of today
            self.pictures = self.changed_at = None
            raise
        finally:
            self._changing = False
        self.pictures, self.changed_at = pictures, commit

    def _ask_model(self) -> None:
        self._worker.probe(self._encode).result()

    def _encode(self) -> None:
        # a store of another program's vectors refuses texts: its model is a name, which cannot fail
        with suppress(SettingsError, DataError):
            if not np.isfinite(self._engine.encoder.encode_texts([_WORD], check=False)).all():
                raise _ModelFaultError("the model's embeddings hold NaN or infinite values")

    def stop(self) -> None:
        """Be unready from now on: the server stops."""
        self._stopping = True

    def faults(self, *, changes: bool = False) -> list[tuple[str, str]]:
        """The parts that keep the server from being ready, each with the reason; [] if it is ready.

        `changes`: with those that keep pictures from being added and deleted alone.
        """
        if self._stopping:
            return [("server", "it is stopping")]
        found: list[tuple[str, str]] = [
            (one.name, one.reason)
            for one in self.reports()
            if one.reason is not None and (changes or one.name not in _OF_CHANGES)
        ]
        return found or ([("store", _CHANGED)] if self._changing else [])

    def reports(self) -> list[ProbeReport]:
        """The last result of each probe."""
        return [probe.report() for probe in self.probes]

    def begin(self) -> None:
        """Begin the probes that are due, and log it if the server became ready or ceased to be; not while it stops."""
        if self._stopping:
            return
        for probe in self.probes:
            probe.begin()
        faults = self.faults(changes=True)
        # not what has only just been asked for the first time
        told = self._logged(faults)
        if told == self._known or any(reason == _UNKNOWN for _, reason in faults):
            return
        self._known = told
        now = time.monotonic()
        if faults:
            self._unready_since = self._unready_since or now
            said = "not ready" if self.faults() else "searches are answered, changes are not"
            log.warning("%s: %s", said, told)
        elif self._unready_since is not None:
            log.warning("ready again after %.0f s", now - self._unready_since)
            self._unready_since = None

    def _logged(self, faults: Sequence[tuple[str, str]]) -> str:
        """The faults with their own messages, which name folders and the next step."""
        errors: dict[str, Exception | None] = {probe.name: probe.fault for probe in self.probes}
        told = []
        for name, reason in faults:
            error = errors.get(name)
            # of a bug its kind: its message may hold anything
            kind = None if error is None else type(error).__name__
            told.append(f"{name}: {error if isinstance(error, LimnerError) else kind or reason}")
        return "; ".join(told)

    async def settled(self) -> None:
        """Wait a moment for probes that have not answered yet, or that no timer keeps fresh."""
        if self._timed and all(probe.has_ended for probe in self.probes):
            return
        self.begin()
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until and not all(probe.is_settled for probe in self.probes):
            await asyncio.sleep(0.01)

    @asynccontextmanager
    async def timed(self) -> AsyncIterator[None]:
        """Probe again and again within the block."""
        # not waited for: connections that the system has let in would all be taken at once
        self._timed = True
        task = asyncio.create_task(self._keep())
        try:
            yield
        finally:
            task.cancel()
            self._timed = False

    async def _keep(self) -> None:
        while True:
            self.begin()
            # often enough to see that a probe has not come back
            await asyncio.sleep(min(self._interval, 1.0))


def health_routes(health: Health) -> APIRouter:
    """The routes that need no token and no thread."""
    routes = APIRouter(tags=["server"])

    @_PROBE
    @routes.get("/livez", responses=declared(421, 500))
    async def livez() -> Alive:
        """Check that the process answers; needs no token. If not, start it again."""
        return Alive()

    async def ready(request: Request, changes: bool) -> Response:
        await health.settled()
        if faults := health.faults(changes=changes):
            request.scope[REFUSED_FOR] = "not-ready"
            errors = [{"loc": [name], "msg": reason} for name, reason in faults]
            said = "; ".join(f"{name}: {reason}" for name, reason in faults)
            return problem(503, f"not ready: {said}", errors=errors, headers={"Retry-After": "1"})
        told = Readiness(probes=tuple(health.reports()))
        return JSONResponse(told.model_dump(mode="json"))

    description: dict[str, Any] = {"response_model": Readiness, "responses": declared(421, 422, 500, 503)}

    @_PROBE
    @routes.get("/readyz", **description)
    async def readyz(request: Request, changes: Changes = False) -> Response:
        """Check that a search would be answered: the store can be read, and the model answers; needs no token."""
        return await ready(request, changes)

    @_PROBE
    @routes.get("/health", **description)
    async def get_health(request: Request, changes: Changes = False) -> Response:
        """Check what `/readyz` checks."""
        return await ready(request, changes)

    return routes
