"""Which gallery items are true matches of which queries, said explicitly.

Nothing is assumed of how many sentences an image has or in which order they lie: two items match when their
integer group codes are equal (a group is one picture with its sentences, or one identity), or when they share a label.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from limner.errors import DataError

_MASKED = 1 << 24
"""Pairs of a query and an item whose labels are compared at once."""


class Relevance(ABC):
    """True matches of each query, said in blocks so that no queries × gallery mask is ever built.

    `counts` is the number of true matches of each query, `gallery_size` the number of gallery items, matches or not.
    """

    counts: Int[np.ndarray, " queries"]
    gallery_size: int

    @abstractmethod
    def listed(self, start: int, stop: int) -> tuple[Int[np.ndarray, " listed"], Int[np.ndarray, " block"]]:
        """The matches of queries `start` to `stop` − 1 as slices of one list of gallery positions.

        Returns the list and where each query's slice begins in it; it is `counts` long, and slices may be shared.
        """

    @staticmethod
    def from_groups(query_groups: Any, gallery_groups: Any) -> "Relevance":
        """Items match where their group codes are equal.

        Both arguments are one-axis integer arrays, tensors or lists, of lengths queries and gallery. Raises
        `DataError` for anything else and for an empty one.

        >>> relevance = Relevance.from_groups([7, 8, 9], [8, 7, 8])
        >>> [relevance.matches(query).tolist() for query in range(3)]
        [[1], [0, 2], []]
        """
        queries = group_codes(query_groups, "query groups")
        return _Grouped(queries, group_codes(gallery_groups, "gallery groups"))

    @staticmethod
    def from_pairs(pairs: int) -> "Relevance":
        """Query i matches gallery item i, and nothing else.

        >>> Relevance.from_pairs(3).matches(1).tolist()
        [1]
        """
        return Relevance.from_groups(range(pairs), range(pairs))

    @staticmethod
    def from_labels(query_labels: Any, gallery_labels: Any) -> "Relevance":
        """Items match where they share at least one label.

        Both are matrices of 0 and 1, a row an item and a column a label. Raises `DataError` for anything else.

        >>> relevance = Relevance.from_labels([[1, 1, 0], [0, 0, 0]], [[0, 1, 1], [0, 0, 1], [1, 1, 0]])
        >>> [relevance.matches(query).tolist() for query in range(2)]
        [[0, 2], []]
        """
        queries = _label_matrix(query_labels, "query labels")
        gallery = _label_matrix(gallery_labels, "gallery labels")
        if queries.shape[1] != gallery.shape[1]:
            raise DataError(f"queries have {queries.shape[1]} labels, gallery items {gallery.shape[1]}")
        return _Labelled(queries, gallery)

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
        items, starts = self.listed(query, query + 1)
        return items[starts[0] : starts[0] + self.counts[query]]


class _Grouped(Relevance):
    """Equal codes. Memory is that of a few integers an item; queries of one group share their slice."""

    def __init__(self, queries: Int[np.ndarray, " queries"], gallery: Int[np.ndarray, " gallery"]) -> None:
        # Sorted by code, equal codes stand together: a query's matches are a slice, found by two searches.
        # Stable, so that a slice lists positions in ascending order.
        self._items = np.argsort(gallery, kind="stable")
        ordered = gallery[self._items]
        self._starts = np.searchsorted(ordered, queries, side="left")
        self.counts = np.searchsorted(ordered, queries, side="right") - self._starts
        self.gallery_size = len(gallery)

    def listed(self, start: int, stop: int) -> tuple[Int[np.ndarray, " listed"], Int[np.ndarray, " block"]]:
        return self._items, self._starts[start:stop]


class _Labelled(Relevance):
    """Shared labels. The matches of a block are found when they are asked for."""

    def __init__(
        self, queries: Float[np.ndarray, "queries labels"], gallery: Float[np.ndarray, "gallery labels"]
    ) -> None:
        self._queries, self._gallery = queries, gallery
        self.gallery_size = len(gallery)
        # Counted here, listed again later: the product costs twice, but lists of all pairs that share a label
        # may be as large as the matrix.
        step = max(1, _MASKED // self.gallery_size)
        blocks = (self._mask(start, start + step) for start in range(0, len(queries), step))
        self.counts = np.concatenate([np.count_nonzero(mask, axis=1) for mask in blocks])

    def listed(self, start: int, stop: int) -> tuple[Int[np.ndarray, " listed"], Int[np.ndarray, " block"]]:
        items = np.nonzero(self._mask(start, stop))[1]
        return items, np.cumsum(self.counts[start:stop]) - self.counts[start:stop]

    def _mask(self, start: int, stop: int) -> Bool[np.ndarray, "block gallery"]:
        # float32, since numpy multiplies integers without BLAS; counts of shared labels are exact in it.
        return np.asarray(self._queries[start:stop] @ self._gallery.T > 0)


def group_codes(groups: Any, name: str) -> Int[np.ndarray, " codes"]:
    """Group codes of any integer kind as int64; a tensor's device does not matter.

    Raises `DataError` that begins with `name` for anything but integers in one non-empty axis.
    """
    codes = groups.detach().cpu().numpy() if isinstance(groups, torch.Tensor) else np.asarray(groups)
    if codes.ndim != 1 or not len(codes):
        raise DataError(f"{name}: expected one code an item in one axis, got shape {tuple(codes.shape)}")
    # Not bool: that makes two groups at most, so it is a mask given by mistake.
    if codes.dtype.kind not in "iu":
        raise DataError(f"{name}: expected integer codes, got {codes.dtype}; number the groups first")
    # numpy casts uint64 beyond that to negative numbers without a word, which might equal another code.
    if codes.max() > np.iinfo(np.int64).max:
        raise DataError(
            f"{name}: {codes.max()} does not fit into 64 bits with a sign; number the groups first"
        )
    return codes.astype(np.int64, copy=False)


def _label_matrix(labels: Any, name: str) -> Float[np.ndarray, "items labels"]:
    matrix = labels.detach().cpu().numpy() if isinstance(labels, torch.Tensor) else np.asarray(labels)
    if matrix.ndim != 2 or not matrix.size:
        raise DataError(f"{name}: expected a matrix (items, labels), got shape {tuple(matrix.shape)}")
    # Counts or probabilities would match wherever both are above 0, which is hardly what was meant.
    if matrix.dtype.kind not in "biu" or not np.isin(matrix, (0, 1)).all():
        raise DataError(f"{name}: expected integers 0 and 1, got {matrix.dtype}")
    return matrix.astype(np.float32)
