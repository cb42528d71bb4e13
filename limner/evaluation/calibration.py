"""Calibrated scores: how probable it is that a picture which scores so high matches its sentence.

Sources: Platt, "Probabilistic Outputs for Support Vector Machines", 1999, as Lin, Lin and Weng (Machine Learning 68,
2007) compute it; Saerens, Latinne and Decaestecker, Neural Computation 14 (2002), for the shift of the prior.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from pydantic import Field

from limner.errors import DataError, SettingsError
from limner.settings import Settings

GRID = 2.0**-14
"""Scores are counted by multiples of this; a slope of 100 makes 0.003 of it where probabilities are logits."""

_STEPS = 100
"""Newton steps at most; a dozen are usual."""

_GAP = 1e-9
"""Nats that the loss may be above its minimum."""


class Calibration(Settings):
    """P(match | score) = sigmoid(slope · score + offset − ln(G / gallery)) in a searched gallery of G pictures.

    Slope and offset are Platt's A and B with the sign turned. They were fitted where `gallery` pictures were searched.
    In a larger gallery a sentence has as many right pictures and more wrong ones, so that the odds of a match fall as
    the gallery grows (Saerens et al., Eq. 4; the few right ones among the G are not subtracted). The scores of wrong
    pictures are taken to be distributed as they were.

    It is a probability over pairs: of all pairs with that score, so many match. It does not use that a picture is the
    first of its ranking, which speaks for it, so that it is lower than the share of first hits that match.

    **Decided**: of a matcher that judges only the first N, too, all of ln(G / gallery) is subtracted. That is right
    where wrong pictures which it takes for good are among the first N in any gallery. Where the matcher's scores have
    nothing to do with the embedding's, the wrong ones among the N stay as many, only the right ones get fewer, and the
    probability is too low for a larger gallery.
    """

    slope: float = Field(gt=0, allow_inf_nan=False)
    """What a score is multiplied with."""
    offset: float = Field(allow_inf_nan=False)
    """What is added to it."""
    gallery: int = Field(ge=1)
    """Pictures that were searched when it was fitted."""
    right: int = Field(ge=1)
    """Matching pairs of a sentence and a picture that it was fitted to."""
    wrong: int = Field(ge=1)
    """Pairs that do not match."""

    def probability(self, scores: Float[np.ndarray, " images"], gallery: int) -> Float[np.ndarray, " images"]:
        """The probability of each score's picture, float64, where `gallery` pictures are searched.

        Raises `SettingsError` for a gallery of none.

        >>> fitted = Calibration(slope=10, offset=-5, gallery=100, right=50, wrong=950)
        >>> fitted.probability(np.array([0.3, 0.5, 0.7]), 100).round(3).tolist()
        [0.119, 0.5, 0.881]
        >>> fitted.probability(np.array([0.5]), 900).round(3).tolist()
        [0.1]
        """
        if gallery < 1:
            raise SettingsError(f"gallery: expected at least 1 picture, got {gallery}")
        logits = self.slope * scores.astype(np.float64) + self.offset - np.log(gallery / self.gallery)
        return np.asarray(np.exp(-np.logaddexp(0, -logits)))


@dataclass(frozen=True, eq=False)
class PairCounts:
    """How many matching and other pairs have a score, by ascending score: memory grows with scores, not with pairs."""

    scores: Float[np.ndarray, " scores"]
    right: Int[np.ndarray, " scores"]
    wrong: Int[np.ndarray, " scores"]

    @classmethod
    def of(cls, scores: Float[np.ndarray, " pairs"], right: Bool[np.ndarray, " pairs"]) -> "PairCounts":
        """Count pairs by their score, to the nearest multiple of `GRID`. Raises `DataError` for NaN and infinity."""
        if not np.isfinite(scores).all():
            raise DataError("scores hold NaN or infinite values; the model has diverged")
        values, places = np.unique(np.rint(scores.astype(np.float64) / GRID) * GRID, return_inverse=True)
        every = np.bincount(places, minlength=len(values))
        matching = np.bincount(places[right], minlength=len(values))
        return cls(values, matching, every - matching)

    @classmethod
    def joined(cls, parts: "Sequence[PairCounts]") -> "PairCounts":
        """The pairs of all parts together; at least one."""
        values, places = np.unique(np.concatenate([part.scores for part in parts]), return_inverse=True)
        right, wrong = np.zeros(len(values), np.int64), np.zeros(len(values), np.int64)
        np.add.at(right, places, np.concatenate([part.right for part in parts]))
        np.add.at(wrong, places, np.concatenate([part.wrong for part in parts]))
        return cls(values, right, wrong)


def fit(pairs: PairCounts, gallery: int) -> Calibration:
    """The most likely slope and offset by Newton's method, in float64, for a gallery of so many pictures.

    As Platt has it, the target of a matching pair is (N₊ + 1) / (N₊ + 2) and that of another 1 / (N₋ + 2), with N₊ and
    N₋ the numbers of both, so that the fit is finite where a score parts them.

    Raises `DataError` without a matching or without another pair, and where matching ones do not score higher.
    """
    right, wrong = int(pairs.right.sum()), int(pairs.wrong.sum())
    if not right or not wrong:
        kind = "matches" if not right else "does not match"
        raise DataError(
            f"a calibration needs right and wrong pairs, and none of these {kind}; take more data"
        )
    count = (pairs.right + pairs.wrong).astype(np.float64)
    targets = (pairs.right * (right + 1) / (right + 2) + pairs.wrong / (wrong + 2)) / count
    # centred and scaled, both parameters are of one size and the steps well conditioned
    centre = np.average(pairs.scores, weights=count)
    spread = np.sqrt(np.average((pairs.scores - centre) ** 2, weights=count))
    slope, start = 0.0, float(np.log((right + 1) / (wrong + 1)))
    if spread > 0:
        slope, start = _newton((pairs.scores - centre) / spread, targets, count, start)
    if slope <= 0:
        raise DataError(
            f"the scores of the {right:,} matching pairs are not higher than those of the {wrong:,} others, so that no "
            "probability can be made of them; train the model further"
        )
    return Calibration(
        slope=slope / spread,
        offset=start - slope * centre / spread,
        gallery=gallery,
        right=right,
        wrong=wrong,
    )


def _newton(
    scores: Float[np.ndarray, " scores"],
    targets: Float[np.ndarray, " scores"],
    count: Float[np.ndarray, " scores"],
    start: float,
) -> tuple[float, float]:
    """Slope and offset of least cross entropy, from slope 0 and offset `start`, each step halved until it helps."""

    def loss(at: np.ndarray) -> float:
        logits = at[0] * scores + at[1]
        return float(count @ (np.logaddexp(0, logits) - targets * logits))

    at = np.array([0.0, start])
    rows = np.stack([scores, np.ones_like(scores)])
    now = loss(at)
    for _ in range(_STEPS):
        likely = np.exp(-np.logaddexp(0, -(at[0] * scores + at[1])))
        gradient = rows @ (count * (likely - targets))
        curvature = (rows * (count * likely * (1 - likely))) @ rows.T + 1e-12 * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        gain = float(gradient @ step)
        if gain < _GAP:
            break
        share = 1.0
        # below the last digits of the loss no step can be seen to help
        while share > 1e-10 and loss(at - share * step) > now - 1e-4 * share * gain + 1e-13 * abs(now):
            share /= 2
        at = at - share * step
        now = loss(at)
    return float(at[0]), float(at[1])
