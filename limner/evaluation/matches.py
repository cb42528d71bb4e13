"""Where the true matches of some queries stand: all that a measure needs to know of a ranking."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int

VOID = np.iinfo(np.int64).max
"""The rank of a match that a query does not have: behind every item."""


@dataclass(frozen=True, eq=False)
class Matches:
    """The ranks of all true matches of some queries; queries without a match are left out.

    - `ranks`: from 1, ascending, ties against the model; `VOID` behind a query's last match.
    - `counts`: number of true matches of each query, at least 1.
    - `gallery_size`: number of items ranked.
    """

    ranks: Int[np.ndarray, "queries most"]
    counts: Int[np.ndarray, " queries"]
    gallery_size: int

    @classmethod
    def of(cls, ranks: Sequence[Sequence[int]], gallery_size: int) -> "Matches":
        """From a list of ascending ranks for each query.

        >>> Matches.of([[1, 4], [2]], gallery_size=5).counts.tolist()
        [2, 1]
        """
        counts = np.array([len(row) for row in ranks], dtype=np.int64)
        table = np.full((len(ranks), max(counts, default=0)), VOID)
        for row, listed in zip(table, ranks, strict=True):
            row[: len(listed)] = listed
        return cls(table, counts, gallery_size)

    @cached_property
    def listed(self) -> Bool[np.ndarray, "queries most"]:
        """Which ranks are those of a match."""
        return np.arange(self.ranks.shape[1]) < self.counts[:, None]

    @cached_property
    def precisions(self) -> Float[np.ndarray, "queries most"]:
        """Precision at the rank of each match: its position among the matches, from 1, by its rank; 0 where void."""
        position = np.arange(1, self.ranks.shape[1] + 1)
        return np.where(self.listed, position / self.ranks, 0.0)

    def among(self, k: int) -> Int[np.ndarray, " queries"]:
        """How many matches each query has among the first `k` items."""
        return np.asarray(np.count_nonzero(self.ranks <= k, axis=1))
