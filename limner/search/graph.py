"""Approximate search of large stores: a graph over the vectors, in memory, beside the exact matrix.

The graph is usearch's HNSW (Malkov and Yashunin, 2018) in half precision. It proposes rows, which are then scored
exactly, so that an image has the same score as in exact search. The graph is never written: the store's table is the
truth, and a crash loses nothing.
"""

import numpy as np
from jaxtyping import Float, Int

from limner.search.proposer import GROWN, RECALL, Proposer, of_usearch, own_queries
from limner.store.snapshot import Snapshot
from limner.store.vectors import Found
from limner.store_reports import GraphWidth

# usearch's own 128 gave recall@10 of 0.986 at 768 rows looked at, on 160,000 vectors around real photographs;
# 256 gives 0.999 to 1.0 at 512 to 768, and the graph takes 26 s to build in place of 13 (docs/log/2026-11-22.md)
LINKED = 256
"""Rows among which a new one looks for its neighbours; more make a better graph and take longer."""

WIDTHS = (32, 64, 128, 256, 512, 1024)
"""Numbers of rows that a search may look at, tried in this order: more of them find more and take longer."""

_SAMPLE = 500
"""Queries by which the width is chosen."""

_BLOCK = 4096
"""Rows that are added at once, in less than a second."""


class Graph(Proposer):
    """A graph over the vectors of one snapshot; the next snapshot changes only the rows that differ.

    How many rows a search looks at is measured on the graph itself: the fewest of `WIDTHS` with which it finds `recall`
    of the ten best rows, for rows of the snapshot with noise as queries. `tried` holds what was measured, and the last
    is in use. If even the widest finds less, it is used.
    """

    name = "graph"

    def __init__(self, dim: int, recall: float = RECALL) -> None:
        super().__init__(recall)
        # ip: the inner product of unit vectors is the cosine. bf16 takes 0.29 ms a query at recall 0.999 of
        # 100,000 × 512, int8 0.20 ms at 0.960; faiss's HNSW cannot delete, which a store needs
        self._graph = of_usearch("Index")(ndim=dim, metric="ip", dtype="bf16", expansion_add=LINKED)
        self._rows: dict[int, int] = {}
        self._changed = 0

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
            or not np.array_equal(before.vectors[self._rows[number]], snapshot.vectors[row])
        ]
        # usearch raises for a key that it holds already, so a new vector needs its old node removed first
        stale = [*gone, *(int(numbers[row]) for row in changed if int(numbers[row]) in self._rows)]
        if stale:
            self._graph.remove(np.array(stale, np.uint64))
        for start in range(0, len(changed), _BLOCK):
            self.go_on()
            block = changed[start : start + _BLOCK]
            self._graph.add(numbers[block], snapshot.vectors[block])
        self._snapshot, self._rows = snapshot, rows
        self._changed += len(gone) + len(changed)
        if self._changed > GROWN * len(rows) and rows:
            self._choose_width()
            self._changed = 0
        return len(gone) + len(changed)

    def _choose_width(self, k: int = 10) -> None:
        """Find the fewest rows to look at that find as many of the best as are wanted."""
        assert self._snapshot is not None
        queries = own_queries(self._snapshot.vectors, _SAMPLE)
        best = self._snapshot.vectors.first_of_each(queries, k)
        self.tried = []
        for width in WIDTHS:
            self.go_on()
            self._graph.expansion_search = width
            self.tried.append(GraphWidth(width=width, recall=self.share_found(queries, best, k)))
            if self.tried[-1].recall >= self.wanted:
                break

    def nearest(
        self, query: Float[np.ndarray, " dim"], k: int, rows: Int[np.ndarray, " some"] | None = None
    ) -> Found:
        """Find about the k best rows of the snapshot, as `Proposer.nearest` does; `rows` has to be None."""
        assert self._snapshot is not None
        assert rows is None
        # 16 more than are asked for: half precision puts near neighbours in another order
        proposed = self._graph.search(query, min(k + 16, len(self._rows)), exact=False)
        found = np.fromiter((self._rows[number] for number in proposed.keys.tolist()), np.int64)
        scores = self._snapshot.vectors.scores(query, found)
        # equal scores by row, so they come by path, as in exact search; `top` costs more than so few to sort
        best = np.lexsort((found, -scores))[:k]
        return found[best], scores[best]
