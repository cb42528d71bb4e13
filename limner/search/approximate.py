"""Approximate search of large stores: a graph over the vectors, in memory, beside the exact matrix.

The graph is usearch's HNSW (Malkov and Yashunin, 2018) in half precision. It proposes rows, which are then scored
exactly, so that an image has the same score as in exact search. The graph is never written: the store's table is the
truth, and a crash loses nothing.
"""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from limner.errors import SettingsError, install_hint
from limner.search.snapshot import Snapshot
from limner.search.vectors import top

# usearch's own 128 gave recall@10 of 0.986 at 768 rows looked at, on 160,000 vectors around real photographs;
# 256 gives 0.999 to 1.0 at 512 to 768, and the graph takes 26 s to build in place of 13 (docs/log/2026-11-22.md)
LINKED = 256
"""Rows among which a new one looks for its neighbours; more make a better graph and take longer."""

# recall@10 0.9996 of 8,000 photographs and 0.997 of 160,000 vectors, 1.55 and 19 times as fast as exact search
SEARCHED = 512
"""Least number of rows that a search of the graph looks at; more find more and take longer."""


class Approximate:
    """A graph over the vectors of one snapshot; the next snapshot changes only the rows that differ."""

    def __init__(self, dim: int) -> None:
        try:
            # usearch is an extra: only who asks for a graph needs it
            from usearch.index import Index
        except ImportError:
            raise SettingsError(
                f"approximate search needs usearch; {install_hint('approximate')}, or search exactly"
            ) from None
        # ip: the inner product of unit vectors is the cosine. bf16 takes 0.29 ms a query at recall 0.999 of
        # 100,000 × 512, int8 0.20 ms at 0.960; faiss's HNSW cannot delete, which a store needs
        self._graph: Any = Index(
            ndim=dim, metric="ip", dtype="bf16", expansion_add=LINKED, expansion_search=SEARCHED
        )
        self._snapshot: Snapshot | None = None
        self._rows: dict[int, int] = {}

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
        return len(gone) + len(changed)

    def nearest(
        self, query: Float[np.ndarray, " dim"], k: int
    ) -> tuple[Int[np.ndarray, " found"], Float[np.ndarray, " found"]]:
        """Find about the k best rows of the snapshot, with their exact scores, best first, equal ones by row."""
        assert self._snapshot is not None
        # 16 more than are asked for: half precision puts near neighbours in another order
        found = self._graph.search(query, min(k + 16, len(self._rows)), exact=False)
        # in row order, because `top` orders equal scores by position: so they come by path, as in exact search
        rows = np.sort(np.fromiter((self._rows[int(number)] for number in found.keys), np.int64))
        scores = self._snapshot.vectors.scores(query, rows)
        best = top(scores, k)
        return rows[best], scores[best]

    def recall(self, queries: Float[np.ndarray, "queries dim"], k: int = 10) -> float:
        """Measure the share of the k best rows by exact search that the graph finds, over some queries, in [0, 1]."""
        assert self._snapshot is not None
        shares = []
        for query in np.ascontiguousarray(queries, np.float32):
            _, best = self._snapshot.vectors.first(query, k)
            _, scores = self.nearest(query, k)
            # any row that scores as high as the last of the best is as good
            shares.append(float((scores >= best[-1]).sum() / len(best)))
        return float(np.mean(shares))
