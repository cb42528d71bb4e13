"""Approximate search of large stores: a graph over the vectors, in memory, beside the exact matrix.

The graph is usearch's HNSW (Malkov and Yashunin, 2018) in half precision. It proposes rows, which are then scored
exactly, so that an image has the same score as in exact search. The graph is never written: the store's table is the
truth, and a crash loses nothing.
"""

import statistics
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from limner.errors import DataError, SettingsError, install_hint
from limner.search.snapshot import Snapshot
from limner.search.vectors import Found
from limner.store_reports import GraphRecall, GraphWidth

# usearch's own 128 gave recall@10 of 0.986 at 768 rows looked at, on 160,000 vectors around real photographs;
# 256 gives 0.999 to 1.0 at 512 to 768, and the graph takes 26 s to build in place of 13 (docs/log/2026-11-22.md)
LINKED = 256
"""Rows among which a new one looks for its neighbours; more make a better graph and take longer."""

WIDTHS = (32, 64, 128, 256, 512, 1024)
"""Numbers of rows that a search may look at, tried in this order: more of them find more and take longer."""

RECALL = 0.995
"""Share of the ten best rows that the graph has to find, on average over `_SAMPLE` queries."""

_SAMPLE = 500
"""Queries by which the width is chosen."""

# a sentence lies as far from its pictures as a vector and noise of its own length: at a cosine of 0.7, and less
_NOISE = 1.0
"""Length of the noise that makes a query of a row at unit length."""

_GROWN = 0.1
"""Share of the rows whose change has the width chosen again."""


class Approximate:
    """A graph over the vectors of one snapshot; the next snapshot changes only the rows that differ.

    How many rows a search looks at is measured on the graph itself: the fewest of `WIDTHS` with which it finds `recall`
    of the ten best rows, for rows of the snapshot with noise as queries. `tried` holds what was measured, and the last
    is in use. If even the widest finds less, it is used.
    """

    def __init__(self, dim: int, recall: float = RECALL) -> None:
        try:
            # usearch is an extra: only who asks for a graph needs it
            from usearch.index import Index
        except ImportError:
            raise SettingsError(
                f"approximate search needs usearch; {install_hint('approximate')}, or search exactly"
            ) from None
        # ip: the inner product of unit vectors is the cosine. bf16 takes 0.29 ms a query at recall 0.999 of
        # 100,000 × 512, int8 0.20 ms at 0.960; faiss's HNSW cannot delete, which a store needs
        self._graph: Any = Index(ndim=dim, metric="ip", dtype="bf16", expansion_add=LINKED)
        self.wanted = recall
        self.tried: list[GraphWidth] = []
        self._snapshot: Snapshot | None = None
        self._rows: dict[int, int] = {}
        self._changed = 0
        # held while the graph changes, and while it is searched
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def follow(self, snapshot: Snapshot) -> None:
        """Begin to take over a snapshot in the background, unless the graph is being changed already."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._take_over, args=(snapshot,), daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Wait for what `follow` has begun. Raises the error that it has met."""
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def proposed(self, snapshot: Snapshot, query: Float[np.ndarray, " dim"], k: int) -> Found | None:
        """Find what `nearest` does, or return None while the graph is not of this snapshot, and follow it.

        Raises the error that the following has met, once: the next query has it tried again.
        """
        error, self._error = self._error, None
        if error is not None:
            raise error
        # no wait: exact search answers meanwhile, which takes a few milliseconds
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if self._snapshot is snapshot:
                return self.nearest(query, k)
        finally:
            self._lock.release()
        self.follow(snapshot)
        return None

    def _take_over(self, snapshot: Snapshot) -> None:
        try:
            with self._lock:
                self.update(snapshot)
        # for whoever asks next: nobody reads what a thread raises
        except Exception as error:
            self._error = error

    def update(self, snapshot: Snapshot) -> int:
        """Take over a snapshot, and return how many rows of the graph have changed: for the first snapshot, all."""
        if self._snapshot is snapshot:
            return 0
        # usearch's keys have 64 bits, half of the digest: of a million two are equal with a probability of 3e-8
        numbers = np.fromiter((int(key[:16], 16) for key in snapshot.keys), np.uint64, len(snapshot.keys))
        rows = {int(number): row for row, number in enumerate(numbers)}
        before = self._snapshot
        gone = [number for number in self._rows if number not in rows]
        # a row whose vector is the same keeps its node: new metadata rewrite a row, and adding is what takes time
        changed = [
            row
            for number, row in rows.items()
            if before is None
            or number not in self._rows
            or not np.array_equal(before.matrix[self._rows[number]], snapshot.matrix[row])
        ]
        # usearch raises for a key that it holds already, so a new vector needs its old node removed first
        stale = [*gone, *(int(numbers[row]) for row in changed if int(numbers[row]) in self._rows)]
        if stale:
            self._graph.remove(np.array(stale, np.uint64))
        if changed:
            self._graph.add(numbers[changed], snapshot.matrix[changed])
        self._snapshot, self._rows = snapshot, rows
        self._changed += len(gone) + len(changed)
        if self._changed > _GROWN * len(rows) and rows:
            self._choose_width()
            self._changed = 0
        return len(gone) + len(changed)

    def _choose_width(self, k: int = 10) -> None:
        """Find the fewest rows to look at that find as many of the best as are wanted."""
        assert self._snapshot is not None
        matrix = self._snapshot.matrix
        rng = np.random.default_rng(0)
        rows = matrix[np.sort(rng.choice(len(matrix), min(_SAMPLE, len(matrix)), replace=False))]
        noise = rng.normal(size=rows.shape)
        noise *= _NOISE / np.linalg.norm(noise, axis=1, keepdims=True)
        queries = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12) + noise
        queries = (queries / np.linalg.norm(queries, axis=1, keepdims=True)).astype(np.float32)
        best = self._snapshot.vectors.first_of_each(queries, k)
        self.tried = []
        for width in WIDTHS:
            self._graph.expansion_search = width
            self.tried.append(GraphWidth(width=width, recall=self._recall(queries, best, k)))
            if self.tried[-1].recall >= self.wanted:
                break

    def nearest(
        self, query: Float[np.ndarray, " dim"], k: int
    ) -> tuple[Int[np.ndarray, " found"], Float[np.ndarray, " found"]]:
        """Find about the k best rows of the snapshot, with their exact scores, best first, equal ones by row."""
        assert self._snapshot is not None
        # 16 more than are asked for: half precision puts near neighbours in another order
        found = self._graph.search(query, min(k + 16, len(self._rows)), exact=False)
        rows = np.fromiter((self._rows[number] for number in found.keys.tolist()), np.int64)
        scores = self._snapshot.vectors.scores(query, rows)
        # equal scores by row, so they come by path, as in exact search; `top` costs more than so few to sort
        best = np.lexsort((rows, -scores))[:k]
        return rows[best], scores[best]

    def recall(self, queries: Float[np.ndarray, "queries dim"], k: int = 10) -> float:
        """Measure the share of the k best rows by exact search that the graph finds, over some queries, in [0, 1]."""
        assert self._snapshot is not None
        queries = np.ascontiguousarray(queries, np.float32)
        return self._recall(queries, self._snapshot.vectors.first_of_each(queries, k), k)

    def _recall(self, queries: Float[np.ndarray, "queries dim"], best: Sequence[Found], k: int) -> float:
        shares = []
        for query, (_, exact) in zip(queries, best, strict=True):
            _, scores = self.nearest(query, k)
            # any row that scores as high as the last of the best is as good
            shares.append(float((scores >= exact[-1]).sum() / len(exact)))
        return float(np.mean(shares))


def trial(snapshot: Snapshot, recall: float = RECALL, k: int = 10) -> GraphRecall:
    """Build a graph, measure what it finds, and time searches for up to 200 of its rows.

    Raises `DataError` for a store without pictures.
    """
    if not len(snapshot.matrix):
        raise DataError("the store holds no pictures to search for; index some")
    graph = Approximate(snapshot.matrix.shape[1], recall)
    began = time.perf_counter()
    graph.update(snapshot)
    seconds = time.perf_counter() - began
    snapshot.vectors.prepare()
    times, exact = [], []
    for query in snapshot.matrix[:: -(-len(snapshot.matrix) // 200)]:
        began = time.perf_counter()
        graph.nearest(query, k)
        half = time.perf_counter()
        snapshot.vectors.first(query, k)
        times.append(half - began)
        exact.append(time.perf_counter() - half)
    return GraphRecall(
        pictures=len(snapshot.matrix),
        seconds=seconds,
        wanted=recall,
        tried=tuple(graph.tried),
        milliseconds=1000 * statistics.median(times),
        milliseconds_exact=1000 * statistics.median(exact),
    )
