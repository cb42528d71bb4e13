"""The first hits of queries, with the pictures that match and without them: what a calibration is fitted to."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from limner.errors import DataError

HITS = 10
"""Hits of a query that are kept: as many as a search shows unless told otherwise."""


@dataclass(frozen=True, eq=False)
class FirstHits:
    """The first ten of each query, best first; fewer in a gallery of fewer.

    - `scores`: what they score; `right`: which match. Of equal scores those that do not match stand first.
    - `without`: the scores of the first hits where the right pictures are taken out of the gallery; −∞ where there is
      none left.
    - `groups`: the query's group, e.g. the number of its identity.
    """

    scores: Float[np.ndarray, "queries hits"]
    right: Bool[np.ndarray, "queries hits"]
    without: Float[np.ndarray, "queries hits"]
    groups: Int[np.ndarray, " queries"]

    @classmethod
    def of(
        cls,
        scores: Float[np.ndarray, "queries gallery"],
        right: Bool[np.ndarray, "queries gallery"],
        groups: Int[np.ndarray, " queries"],
    ) -> "FirstHits":
        """Those of a block of scores, of which `right` says the matching ones. Raises `DataError` for NaN or infinity.

        >>> hits = FirstHits.of(np.array([[0.1, 0.4, 0.4]]), np.array([[True, True, False]]), np.array([0]))
        >>> hits.scores.tolist(), hits.right.tolist(), hits.without.tolist()
        ([[0.4, 0.4, 0.1]], [[False, True, True]], [[0.4, -inf, -inf]])
        """
        if not np.isfinite(scores).all():
            raise DataError("scores hold NaN or infinite values; the model has diverged")
        without = _best(np.where(right, -np.inf, scores))
        both = np.concatenate([without, _best(np.where(right, scores, -np.inf))], axis=1)
        matching = np.broadcast_to(np.arange(both.shape[1]) >= without.shape[1], both.shape)
        # stable, so that those that do not match stay before equal ones that do
        order = np.argsort(-both, axis=1, kind="stable")[:, : without.shape[1]]
        return cls(
            np.take_along_axis(both, order, 1), np.take_along_axis(matching, order, 1), without, groups
        )

    @classmethod
    def joined(cls, parts: "Sequence[FirstHits]") -> "FirstHits":
        """The queries of all parts, one after the other; at least one part, all of one gallery's size."""
        names = ("scores", "right", "without", "groups")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def of_queries(self, chosen: Bool[np.ndarray, " queries"]) -> "FirstHits":
        """Those of some of the queries."""
        return FirstHits(self.scores[chosen], self.right[chosen], self.without[chosen], self.groups[chosen])


def _best(scores: Float[np.ndarray, "queries gallery"]) -> Float[np.ndarray, "queries hits"]:
    """The highest of each row, descending."""
    count = min(HITS, scores.shape[1])
    return -np.sort(np.partition(-scores, count - 1, axis=1)[:, :count], axis=1)
