"""How far the probabilities of first hits can be trusted: calibration error, Brier score, and what a threshold does."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from pydantic import Field

from limner.errors import DataError
from limner.settings import Settings

BINS = 10
"""Bins of equal width over probabilities from 0 to 1."""


@dataclass(frozen=True, eq=False)
class FirstHits:
    """The first hit of each query.

    - `scores`: its score; `right`: whether it matches, ties broken against the model.
    - `astray`: the score of the best picture that does not match, which is the first hit where the right ones are taken
      out of the gallery; −∞ where there is none.
    """

    scores: Float[np.ndarray, " queries"]
    right: Bool[np.ndarray, " queries"]
    astray: Float[np.ndarray, " queries"]

    @classmethod
    def of(
        cls, scores: Float[np.ndarray, "queries gallery"], right: Bool[np.ndarray, "queries gallery"]
    ) -> "FirstHits":
        """Those of a block of scores, of which `right` says the matching ones."""
        best = np.where(right, scores, -np.inf).max(1)
        astray = np.where(right, -np.inf, scores).max(1)
        return cls(np.maximum(best, astray), best > astray, astray)

    @classmethod
    def joined(cls, parts: "Sequence[FirstHits]") -> "FirstHits":
        """The queries of all parts, one after the other."""
        names = ("scores", "right", "astray")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


class Reliability(Settings):
    """What the probabilities of first hits were worth on some queries; all but `queries` are from 0 to 1.

    `ece` is the expected calibration error (Naeini, Cooper and Hauskrecht, AAAI 2015) over ten bins of equal width: the
    mean over hits of the difference between the share of right ones in a bin and their mean probability. `brier` is the
    mean of (probability − right)² (Brier, Monthly Weather Review 78, 1950). Lower is better; whoever gives every hit
    the probability `right` has a Brier score of right · (1 − right).
    """

    queries: int = Field(ge=1)
    """Sentences that were searched for."""
    right: float = Field(ge=0, le=1)
    """Share of first hits that match: R@1."""
    probability: float = Field(ge=0, le=1)
    """Mean probability of the first hits."""
    ece: float = Field(ge=0, le=1)
    """Expected calibration error."""
    brier: float = Field(ge=0, le=1)
    """Brier score."""
    good: float = Field(ge=0, le=1)
    """Share of first hits that reach the threshold."""
    good_right: float | None = Field(ge=0, le=1)
    """Share of these that match; None without any."""
    good_astray: float = Field(ge=0, le=1)
    """Share that would reach it, all of them wrongly, with the right pictures taken out of the gallery."""

    @classmethod
    def of(
        cls,
        probabilities: Float[np.ndarray, " queries"],
        right: Bool[np.ndarray, " queries"],
        astray: Float[np.ndarray, " queries"],
        threshold: float,
    ) -> "Reliability":
        """Measure first hits; `astray` are the probabilities of the best pictures that do not match.

        Raises `DataError` without a query.

        >>> probabilities, right = np.array([0.9, 0.8, 0.3, 0.2]), np.array([True, True, False, True])
        >>> measured = Reliability.of(probabilities, right, np.array([0.1, 0.1, 0.3, 0.6]), 0.5)
        >>> round(measured.ece, 3), round(measured.brier, 3), measured.good, measured.good_right, measured.good_astray
        (0.35, 0.195, 0.5, 1.0, 0.25)
        """
        if not len(probabilities):
            raise DataError("reliability is measured over queries, and there are none")
        bins = np.minimum((probabilities * BINS).astype(np.int64), BINS - 1)
        missed = np.bincount(bins, weights=right - probabilities, minlength=BINS)
        good = probabilities >= threshold
        return cls(
            queries=len(right),
            right=float(right.mean()),
            probability=float(probabilities.mean()),
            ece=float(np.abs(missed).sum() / len(right)),
            brier=float(np.mean((right - probabilities) ** 2)),
            good=float(good.mean()),
            good_right=float(right[good].mean()) if good.any() else None,
            good_astray=float((astray >= threshold).mean()),
        )
