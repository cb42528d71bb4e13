"""How far the probabilities of first hits can be trusted: calibration error, Brier score, and what a threshold does."""

import numpy as np
from jaxtyping import Bool, Float
from pydantic import Field

from limner.errors import DataError
from limner.evaluation.calibration import Calibration, fit, surroundings
from limner.evaluation.first_hits import FirstHits
from limner.settings import Settings

BINS = 10
"""Bins of equal width over probabilities from 0 to 1."""

FOLDS = 5
"""Parts of the queries, by group, for cross-validation."""


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


def measured(hits: FirstHits, calibration: Calibration, threshold: float) -> Reliability:
    """What the probabilities of a calibration are worth on first hits that it was not fitted to."""
    likely, astray = _first(hits, calibration)
    return Reliability.of(likely, hits.right[:, 0], astray, threshold)


def cross_validated(hits: FirstHits, threshold: float) -> Reliability:
    """What a calibration of these hits is worth: each query's by a fit without its fold, which has all of its group.

    Raises `DataError` for queries of one fold, and as `limner.evaluation.calibration.fit` does.
    """
    folds = hits.groups % FOLDS
    if len(np.unique(folds)) < 2:
        raise DataError("a calibration is measured by cross-validation, for which one group is not enough")
    likely, astray = np.zeros(len(folds)), np.zeros(len(folds))
    for fold in np.unique(folds):
        own = folds == fold
        likely[own], astray[own] = _first(hits.of_queries(own), fit(hits.of_queries(~own)))
    return Reliability.of(likely, hits.right[:, 0], astray, threshold)


def _first(
    hits: FirstHits, calibration: Calibration
) -> tuple[Float[np.ndarray, " queries"], Float[np.ndarray, " queries"]]:
    """Probabilities of the first hits, and of those that are first without the right pictures."""
    found = []
    for rankings in (hits.scores, hits.without):
        scores = rankings.astype(np.float64)
        found.append(calibration.of_rankings(scores[:, :1], surroundings(scores, calibration.floor))[:, 0])
    return found[0], found[1]
