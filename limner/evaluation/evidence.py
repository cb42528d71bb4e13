"""What a calibration is fitted to and measured on: pairs and first hits of one kind of score, by fold."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from limner.errors import DataError
from limner.evaluation.calibration import Calibration, PairCounts, fit
from limner.evaluation.reliability import FirstHits, Reliability

FOLDS = 5
"""Parts of the sentences, by identity, for cross-validation."""


class Evidence:
    """Gathered block by block: scores of sentences with the pictures of a gallery, and which of them match."""

    def __init__(self) -> None:
        self._pairs: list[list[PairCounts]] = [[] for _ in range(FOLDS)]
        self._hits: list[list[FirstHits]] = [[] for _ in range(FOLDS)]

    def add(
        self,
        scores: Float[np.ndarray, "queries gallery"],
        right: Bool[np.ndarray, "queries gallery"],
        groups: Int[np.ndarray, " queries"],
    ) -> None:
        """Count a block; sentences of one group are in one fold. Raises `DataError` for scores that are no numbers."""
        for fold in np.unique(groups % FOLDS).tolist():
            inside = groups % FOLDS == fold
            own = PairCounts.of(scores[inside].ravel(), right[inside].ravel())
            # one a fold: as many as there are blocks would grow with the set
            self._pairs[fold] = [PairCounts.joined([*self._pairs[fold], own])]
            self._hits[fold].append(FirstHits.of(scores[inside], right[inside]))

    def fit(self, gallery: int, *, without: int | None = None) -> Calibration:
        """Fit all of it, or all but one fold.

        Raises `DataError` where nothing is left, and as `limner.evaluation.calibration.fit` does.
        """
        pairs = [part for fold, parts in enumerate(self._pairs) if fold != without for part in parts]
        if not pairs:
            raise DataError(
                "a calibration is measured by cross-validation, for which one group is not enough"
            )
        return fit(PairCounts.joined(pairs), gallery)

    def measure(self, calibration: Calibration, gallery: int, threshold: float) -> Reliability:
        """What the probabilities of another set's calibration are worth here."""
        return self._measured([calibration] * FOLDS, gallery, threshold)

    def cross_validated(self, gallery: int, threshold: float) -> Reliability:
        """What its own are worth: each sentence's by a calibration fitted without its fold.

        Raises `DataError` as `fit` does.
        """
        fitted = [self.fit(gallery, without=fold) if parts else None for fold, parts in enumerate(self._hits)]
        return self._measured(fitted, gallery, threshold)

    def _measured(self, by_fold: Sequence[Calibration | None], gallery: int, threshold: float) -> Reliability:
        right, likely, astray = [], [], []
        for calibration, parts in zip(by_fold, self._hits, strict=True):
            if parts and calibration is not None:
                own = FirstHits.joined(parts)
                right.append(own.right)
                likely.append(calibration.probability(own.scores, gallery))
                astray.append(calibration.probability(own.astray, gallery))
        return Reliability.of(
            np.concatenate(likely), np.concatenate(right), np.concatenate(astray), threshold
        )
