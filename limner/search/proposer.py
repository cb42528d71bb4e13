"""Proposers of rows of a large store, which are then scored exactly: made in the background, and kept up to date."""

import atexit
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from typing import Any
from weakref import WeakSet

import numpy as np
from jaxtyping import Float, Int

from limner.errors import SettingsError, install_hint
from limner.store.snapshot import Snapshot
from limner.store.vectors import Found, Vectors
from limner.store_reports import GraphWidth

RECALL = 0.995
"""Share of the ten best rows that has to be found, on average over a sample of queries."""

# a sentence lies as far from its pictures as a vector and noise of its own length: at a cosine of 0.7, and less
_NOISE = 1.0
"""Length of the noise that makes a query of a row at unit length."""

GROWN = 0.1
"""Share of the rows whose change has a width chosen again."""


class _StoppedError(Exception):
    """Nobody needs what is being made."""


class Proposer(ABC):
    """Proposes rows of one snapshot, and takes over the next one in a thread of its own.

    How much a search looks at is measured on the snapshot itself, for rows with noise as queries: the least that finds
    `wanted` of the ten best rows. `tried` holds what was measured, and the last is in use.
    """

    name: str
    """Its name in `GET /v1/info` and `limner store recall`."""

    def __init__(self, recall: float = RECALL) -> None:
        self.wanted = recall
        self.tried: list[GraphWidth] = []
        self._snapshot: Snapshot | None = None
        # held while it changes, and while it is searched
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._stopped = False

    @abstractmethod
    def update(self, snapshot: Snapshot) -> int:
        """Take over a snapshot, and return how many rows have changed: for the first snapshot, all.

        Calls `go_on` every second or so.
        """

    @abstractmethod
    def nearest(
        self, query: Float[np.ndarray, " dim"], k: int, rows: Int[np.ndarray, " some"] | None = None
    ) -> Found:
        """Find about the k best of all rows, or of some, with their exact scores, best first, equal ones by row."""

    @property
    def takes_conditions(self) -> bool:
        """True if `nearest` can look among some of the rows."""
        return False

    def follow(self, snapshot: Snapshot) -> None:
        """Begin to take over a snapshot in the background, unless another one is being taken over already."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._take_over, args=(snapshot,), daemon=True)
            _followers.add(self)
            self._thread.start()

    def stop(self) -> None:
        """End what `follow` has begun, within seconds, and begin nothing any more."""
        self._stopped = True
        if self._thread is not None:
            self._thread.join()

    def go_on(self) -> None:
        """Leave `update` if `stop` was called."""
        if self._stopped:
            raise _StoppedError

    def wait(self) -> None:
        """Wait for what `follow` has begun. Raises the error that it has met."""
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def proposed(
        self,
        snapshot: Snapshot,
        query: Float[np.ndarray, " dim"],
        k: int,
        rows: Int[np.ndarray, " some"] | None = None,
    ) -> Found | None:
        """Find what `nearest` does, or return None while this is not of that snapshot, and follow it.

        Raises the error that the following has met, once: the next query has it tried again.
        """
        error, self._error = self._error, None
        if error is not None:
            raise error
        # no wait: exact search answers meanwhile
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if self._snapshot is snapshot:
                return self.nearest(query, k, rows)
        finally:
            self._lock.release()
        self.follow(snapshot)
        return None

    def _take_over(self, snapshot: Snapshot) -> None:
        try:
            with self._lock:
                self.go_on()
                self.update(snapshot)
        except _StoppedError:
            # what is half made answers nothing
            self._snapshot = None
        # for whoever asks next: nobody reads what a thread raises
        except Exception as error:
            self._error = error

    def recall(self, queries: Float[np.ndarray, "queries dim"], k: int = 10) -> float:
        """Measure the share of the k best rows by exact search that is found, over some queries, in [0, 1]."""
        assert self._snapshot is not None
        queries = np.ascontiguousarray(queries, np.float32)
        return self.share_found(queries, self._snapshot.vectors.first_of_each(queries, k), k)

    def share_found(self, queries: Float[np.ndarray, "queries dim"], best: Sequence[Found], k: int) -> float:
        """Measure the share of rows found whose k best are known."""
        shares = []
        for query, (_, exact) in zip(queries, best, strict=True):
            _, scores = self.nearest(query, k)
            # any row that scores as high as the last of the best is as good
            shares.append(float((scores >= exact[-1]).sum() / len(exact)))
        return float(np.mean(shares))


_followers: WeakSet[Proposer] = WeakSet()


@atexit.register
def _stop_all() -> None:
    # Python ends a daemon's thread where it next takes the GIL, and C++ ends the process when that is in usearch. A
    # thread that is no daemon would have the process wait for the whole graph
    for proposer in list(_followers):
        proposer.stop()


def of_usearch(name: str) -> Any:
    """A class or function of usearch. Raises `SettingsError` where usearch is not installed."""
    try:
        # an extra: only who asks for approximate search needs it
        return getattr(import_module("usearch.index"), name)
    except ImportError:
        raise SettingsError(
            f"approximate search needs usearch; {install_hint('approximate')}, or search exactly"
        ) from None


def own_queries(vectors: Vectors, count: int) -> Float[np.ndarray, "queries dim"]:
    """Make queries of some rows by noise of their own length; the same for the same rows."""
    rng = np.random.default_rng(0)
    rows = vectors[np.sort(rng.choice(len(vectors), min(count, len(vectors)), replace=False))]
    noise = rng.normal(size=rows.shape)
    noise *= _NOISE / np.linalg.norm(noise, axis=1, keepdims=True)
    queries = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12) + noise
    unit: Float[np.ndarray, "queries dim"] = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    return unit.astype(np.float32)
