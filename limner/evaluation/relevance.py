"""Which gallery items are true matches of which queries, said explicitly.

Nothing is assumed of how many sentences an image has or in which order they lie: two items match when their
integer group codes are equal (a group is one picture with its sentences, or one identity).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int

from limner.errors import DataError


@dataclass(frozen=True, eq=False)
class Relevance:
    """True matches of each query, stored as slices so that no queries × gallery mask is ever built.

    - `items`: gallery positions laid out so that each query's matches stand together;
    - `starts`, `counts`: query i's matches are `items[starts[i] : starts[i] + counts[i]]`;
    - `gallery_size`: number of gallery items, matches or not.

    Memory is that of a few integers an item. Queries of one group share their slice.
    """

    items: Int[np.ndarray, " listed"]
    starts: Int[np.ndarray, " queries"]
    counts: Int[np.ndarray, " queries"]
    gallery_size: int

    @classmethod
    def from_groups(cls, query_groups: Any, gallery_groups: Any) -> "Relevance":
        """Items match where their group codes are equal.

        Both arguments are one-axis integer arrays, tensors or lists, of lengths queries and gallery. Raises
        `DataError` for anything else and for an empty one.

        >>> relevance = Relevance.from_groups([7, 8, 9], [8, 7, 8])
        >>> [relevance.matches(query).tolist() for query in range(3)]
        [[1], [0, 2], []]
        """
        queries = group_codes(query_groups, "query groups")
        gallery = group_codes(gallery_groups, "gallery groups")
        items = np.argsort(gallery, kind="stable")
        ordered = gallery[items]
        starts = np.searchsorted(ordered, queries, side="left")
        ends = np.searchsorted(ordered, queries, side="right")
        return cls(items, starts, ends - starts, len(gallery))

    @property
    def queries(self) -> int:
        """Number of queries, with and without a match."""
        return len(self.counts)

    @property
    def matched(self) -> Bool[np.ndarray, " queries"]:
        """Which queries have a true match in the gallery."""
        return self.counts > 0

    def matches(self, query: int) -> Int[np.ndarray, " matches"]:
        """Gallery positions of one query's true matches, ascending."""
        start = self.starts[query]
        return self.items[start : start + self.counts[query]]


def group_codes(groups: Any, name: str) -> Int[np.ndarray, " codes"]:
    """Group codes of any integer kind as int64; a tensor's device does not matter.

    Raises `DataError` that begins with `name` for anything but integers in one non-empty axis.
    """
    codes = groups.detach().cpu().numpy() if isinstance(groups, torch.Tensor) else np.asarray(groups)
    if codes.ndim != 1 or not len(codes):
        raise DataError(f"{name}: expected one code an item in one axis, got shape {tuple(codes.shape)}")
    if codes.dtype.kind not in "iu":
        raise DataError(f"{name}: expected integer codes, got {codes.dtype}; number the groups first")
    return codes.astype(np.int64, copy=False)
