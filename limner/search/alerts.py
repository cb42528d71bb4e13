"""Tells of new pictures that fit the alerts of a store, each once.

A picture is new by the number of its bytes: a moved file keeps it, other bytes get another. Only new pictures are
compared, so that the many good ones that are there already hide none. An alert's number is written after its pictures
were told: if the process is killed between the two, they are told again.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import numpy as np
from jaxtyping import Float

from limner.alert_reports import AlertHit, AlertReport
from limner.errors import DataError, LimnerError, SettingsError, StoreError
from limner.evaluation.calibration import AROUND
from limner.search.engine import Engine
from limner.search.hooks import Hooks, can_notify, notify
from limner.search.languages import turning
from limner.search.query_vectors import query_vectors
from limner.store.alerts import Alert, Alerts, alerts_of, change_alerts
from limner.store.snapshot import Snapshot
from limner.store.uploads import shown_name
from limner.wire import Hit

_EVERY = 2.0
"""Seconds between two looks; what was indexed by others meanwhile is found, too."""

Vector = Float[np.ndarray, " dim"]


class Alerting:
    """Looks for new pictures of the alerts of an engine's store; it must be called from one thread.

    `told` is called with what was found, and with a line for what went wrong. `record` is called before: if it raises
    `OSError` or `SettingsError`, nothing is told, and the next look finds the same. `by_model` makes a vector in the
    thread that the model is used in. `hooks` are those of somebody who closes them; None = its own.
    """

    def __init__(
        self,
        engine: Engine,
        told: Callable[[AlertReport | str], None],
        record: Callable[[Alert, AlertReport], None] = lambda alert, report: None,
        by_model: Callable[[Callable[[], Vector]], Vector] = lambda make: make(),
        hooks: Hooks | None = None,
    ) -> None:
        self._engine, self._told, self._record, self._by_model = engine, told, record, by_model
        self._hooks = hooks or Hooks(told)
        self._vectors: dict[str, Vector] = {}
        # what was told and is not written yet, since another process writes
        self._unwritten: dict[str, int] = {}
        self._store = engine.files.manifest.id
        self._due = 0.0
        self._can_notify: bool | None = None
        self._trouble = ""

    def look(self) -> None:
        """Tell of what is new, if it is time to look; trouble is told once, and tried again."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + _EVERY
        try:
            self._look()
            self._trouble = ""
        except (LimnerError, OSError) as error:
            if str(error) != self._trouble:
                self._told(f"alerts: {error}; trying again")
            self._trouble = str(error)

    def close(self) -> None:
        """Wait a few seconds for what goes to web hooks."""
        self._hooks.close()

    def _look(self) -> None:
        files = self._engine.files
        if not (alerts := alerts_of(files)):
            return
        if self._can_notify is None and any(one.notify for one in alerts.values()):
            self._can_notify = can_notify()
            if not self._can_notify:
                self._told("alerts: nothing is shown on the desktop, as there is no notify-send here")
        snapshot = files.snapshot()
        if files.manifest.id != self._store:
            # another store gives its numbers anew
            self._store, self._unwritten = files.manifest.id, {}
        last, failed = _last(snapshot), None
        for name, alert in alerts.items():
            seen = max(alert.seen, self._unwritten.get(name, 0))
            if seen < last:
                try:
                    self._tell(alert, seen, snapshot)
                    self._unwritten[name] = last
                # of one alert, which leaves the others alone
                except (SettingsError, OSError) as error:
                    failed = error
        texts = {one.text for one in alerts.values()}
        self._vectors = {text: vector for text, vector in self._vectors.items() if text in texts}
        if self._unwritten:
            self._write()
        if failed is not None:
            raise failed

    def _tell(self, alert: Alert, above: int, snapshot: Snapshot) -> None:
        if alert.text not in self._vectors:
            self._vectors[alert.text] = self._by_model(partial(_vector, self._engine, alert, snapshot))
        hits = fitting(self._engine, alert, self._vectors[alert.text], snapshot, above)
        if not hits:
            return
        report = report_of(alert, hits)
        self._record(alert, report)
        self._told(report)
        self._hooks.send(self._engine.files.folder, alert, report)
        if alert.notify and self._can_notify:
            notify(report)

    def _write(self) -> None:
        done = self._unwritten

        def seen(alerts: Alerts) -> Alerts:
            return {name: one.replace(seen=max(one.seen, done.get(name, 0))) for name, one in alerts.items()}

        try:
            change_alerts(self._engine.files, seen)
        except StoreError as error:
            # the next look writes it
            if error.trouble != "busy":
                raise
        else:
            self._unwritten = {}


def save_alert(engine: Engine, alert: Alert, *, anew: bool = True) -> tuple[Alert, int]:
    """Save an alert, which tells of what comes from now on; return it, and how many pictures fit it already.

    It goes by the probability if the model is calibrated and its text has one, else by the cosine. One of the same name
    is replaced, or with `anew` false refused. Raises `SettingsError` for a condition on a fact that no picture has and
    that is spelled nearly as one, and what `Engine.answer` raises.
    """
    snapshot = engine.files.snapshot()
    vector = _vector(engine, alert, snapshot)
    query = alert.request
    for name, near in snapshot.metadata.absent(query.conditions).items():
        if near is not None:
            raise SettingsError(f"where: no picture has {name!r}; is it {near!r}?")
    unknown = engine.encoder.unknown_words(query.wanted or "")
    has_probability = engine.calibration is not None and not query.is_moved and not turning(unknown)
    alert = alert.replace(by="probability" if has_probability else "cosine", seen=_last(snapshot))
    fits = len(fitting(engine, alert, vector, snapshot, -1))

    def added(alerts: Alerts) -> Alerts:
        if alert.name in alerts and not anew:
            raise SettingsError(
                f"there is an alert {alert.name!r} already; take it away, or give another name"
            )
        return {**alerts, alert.name: alert}

    change_alerts(engine.files, added)
    return alert, fits


def fitting(engine: Engine, alert: Alert, vector: Vector, snapshot: Snapshot, above: int) -> list[Hit]:
    """Find the pictures with numbers above one that fit an alert, best first, by the scores of the embedding."""
    query = alert.request
    rows = snapshot.meeting(query.conditions)
    # words in quotes must occur
    matched = engine.matched(query, snapshot)
    if matched is not None and matched.holding is not None:
        rows = np.intersect1d(rows, matched.holding)
    fresh = rows[snapshot.columns.numbers[rows] > above]
    if not len(fresh):
        return []
    scores = snapshot.vectors.scores(vector, fresh)
    values = scores.astype(np.float64)
    if alert.by == "probability":
        if engine.calibration is None:
            raise SettingsError(f"{alert.name} goes by the probability, and the model is not calibrated")
        # as in a search, it compares with the first of all that meet the conditions
        first = snapshot.vectors.first(vector, min(AROUND, len(rows)), rows)[1]
        values = engine.calibration.embedding.probability(values, first.astype(np.float64))
    order = np.argsort(-values, kind="stable")
    order = order[values[order] >= alert.at_least]
    probabilities = values[order].tolist() if alert.by == "probability" else None
    return snapshot.hits(fresh[order], scores[order], probabilities=probabilities)


def report_of(alert: Alert, hits: list[Hit]) -> AlertReport:
    """Say what an alert has found."""
    names = ("id", "score", "probability", "taken")
    told = tuple(
        AlertHit(name=shown_name(str(hit.path), hit.metadata), **{name: getattr(hit, name) for name in names})
        for hit in hits
    )
    own = alert.model_dump(include={"text", "where", "by", "at_least"})
    return AlertReport(alert=alert.name, found_at=datetime.now(UTC), hits=told, **own)


def _vector(engine: Engine, alert: Alert, snapshot: Snapshot) -> Vector:
    found = query_vectors([alert.request], snapshot, engine.files, engine.encoder)[0]
    if isinstance(found, LimnerError):
        raise found
    if not np.isfinite(found).all():
        raise DataError("the alert's embedding holds NaN or infinite values")
    return np.ascontiguousarray(found, np.float32)


def _last(snapshot: Snapshot) -> int:
    numbers = snapshot.columns.numbers
    return int(numbers.max()) if len(numbers) else 0
