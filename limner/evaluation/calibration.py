"""Calibration: how probable it is that a hit of a search matches its sentence, and what that is worth."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator

from limner.errors import DataError
from limner.settings import Settings

HITS = 10
"""Hits that are kept of a query: as many as a search shows by default."""


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
        """Take them from a block of scores; `right` says which items match. Raises `DataError` for NaN or infinity.

        >>> hits = FirstHits.of(np.array([[0.1, 0.4, 0.4]]), np.array([[True, True, False]]), np.array([0]))
        >>> hits.scores.tolist(), hits.right.tolist(), hits.without.tolist()
        ([[0.4, 0.4, 0.1]], [[False, True, True]], [[0.4, -inf, -inf]])
        """
        if not np.isfinite(scores).all():
            raise DataError("scores hold NaN or infinite values; the model has diverged")
        # The best of the wrong and the best of the right hold the best of all, so neither list is cut too soon.
        without = _best(np.where(right, -np.inf, scores))
        both = np.concatenate([without, _best(np.where(right, scores, -np.inf))], axis=1)
        # By position in the joined lists: −∞ fills both, and would not tell which list it is of.
        matching = np.broadcast_to(np.arange(both.shape[1]) >= without.shape[1], both.shape)
        # Stable, so that items that do not match stay before equal ones that do: ties count against the model.
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
        """Keep some of the queries."""
        return FirstHits(self.scores[chosen], self.right[chosen], self.without[chosen], self.groups[chosen])


def _best(scores: Float[np.ndarray, "queries gallery"]) -> Float[np.ndarray, "queries hits"]:
    """The highest of each row, descending."""
    count = min(HITS, scores.shape[1])
    # Partitioned first: ten of a gallery of thousands, so that only ten are sorted.
    return -np.sort(np.partition(-scores, count - 1, axis=1)[:, :count], axis=1)


# Six is from an earlier trial that had looked at test; features and constants below were chosen on val alone.
AROUND = 6
"""Number of first hits whose mean score is a hit's surroundings."""

# Measured: calibration error 0.051 / 0.060 (embedding / reranker) at 10%, 0.068 / 0.105 at 20%, which makes
# probabilities too low for searches that have a match; at 0, 56 to 60% of the others reach 0.5.
ABSENT = 0.1
"""Share of searches whose right pictures are taken to be missing from the gallery."""

# The lowest of all is better still in small galleries (Brier score 0.14 / 0.13 for 0.15 / 0.14) but hangs on
# one sentence; 5 and 10% call good hits of small galleries improbable.
_LOWEST = 0.01
"""Share of the fit's rankings whose surroundings may lie below the floor."""

_RIDGE = 1e-3
"""Twice the cost of a squared weight, of features scaled to deviation 1, beside the mean cross entropy: the fit is
finite where right and wrong hits are parted without a slip."""

_STEPS = 100
"""Newton steps at most; seven or eight are usual."""

_GAP = 1e-10
"""Nats a hit that the loss may be above its minimum."""


class Calibration(Settings):
    """P(hit matches) = sigmoid(of_score · score + of_lead · lead + offset).

    lead = score − surroundings; the surroundings are the mean score of the first six of the same ranking, the hit
    perhaps among them. In a ranking of fewer, `floor` stands for each that is missing, and surroundings below `floor`
    count as `floor`: a handful of pictures lie far apart for any query, and the lead of the best would be taken for
    certainty. So in a small gallery, or among few that meet a query's conditions, it is the score that counts.

    **Decided**: it is of hits that are shown, and not of any pair with such a score, because a reader asks of those. It
    knows nothing of the gallery's size: a larger gallery has better wrong pictures, which raise the surroundings, and a
    shift of the odds by ln(size) went too far where it was tried. What was measured stands in docs/log/.

    In a ranking, a higher score is a higher probability: of_score + of_lead > 0.
    """

    of_score: float = Field(allow_inf_nan=False)
    """Factor of the score."""
    of_lead: float = Field(allow_inf_nan=False)
    """Factor of the lead."""
    offset: float = Field(allow_inf_nan=False)
    """Constant that is added."""
    floor: float = Field(allow_inf_nan=False)
    """Lowest surroundings, a score."""
    right: int = Field(ge=1)
    """Matching hits in the fit."""
    wrong: int = Field(ge=1)
    """Other hits in the fit."""

    @model_validator(mode="after")
    def _rises(self) -> "Calibration":
        # A hit's own score is in both features: with less, a better hit would be less probable.
        if self.of_score + self.of_lead <= 0:
            raise ValueError("of_score + of_lead: expected more than 0, so that the order of hits is kept")
        return self

    def probability(
        self, scores: Float[np.ndarray, " hits"], first: Float[np.ndarray, " first"]
    ) -> Float[np.ndarray, " hits"]:
        """The probability of each hit, float64. `first`: the best scores of their ranking, best first, six or all.

        >>> fitted = Calibration(of_score=2, of_lead=10, offset=-3, floor=0.3, right=50, wrong=50)
        >>> alike, ahead = np.full(6, 0.6), np.array([0.9, 0.5, 0.5, 0.5, 0.5, 0.5])
        >>> fitted.probability(alike, alike)[:2].round(2).tolist()
        [0.14, 0.14]
        >>> fitted.probability(ahead[:2], ahead).round(2).tolist()
        [0.89, 0.06]
        """
        assert len(first) or not len(scores), "a hit is in its ranking"
        # float64: the lead is a small difference of large numbers.
        around = surroundings(first[None].astype(np.float64), self.floor)
        return np.asarray(self.of_rankings(scores[None].astype(np.float64), around)[0])

    def of_rankings(
        self, scores: Float[np.ndarray, "queries hits"], around: Float[np.ndarray, " queries"]
    ) -> Float[np.ndarray, "queries hits"]:
        """The probabilities of hits of many rankings with these surroundings; 0 of a score of −∞."""
        logits = (self.of_score + self.of_lead) * scores - self.of_lead * around[:, None] + self.offset
        # The sigmoid without overflow, and exactly 0 of −∞; 1 / (1 + exp(−x)) warns from 710 on.
        return np.asarray(np.exp(-np.logaddexp(0, -logits)))


def surroundings(scores: Float[np.ndarray, "queries hits"], floor: float) -> Float[np.ndarray, " queries"]:
    """Of rankings, best first, whose missing hits may stand as −∞: see `Calibration`."""
    first = np.where(np.isfinite(scores[:, :AROUND]), scores[:, :AROUND], floor)
    # Rankings with fewer columns than six lack the hits altogether, others have them as −∞: both get the floor.
    total = first.sum(1) + floor * (AROUND - first.shape[1])
    return np.asarray(np.maximum(total / AROUND, floor))


def fit(hits: FirstHits) -> Calibration:
    """Logistic regression over the first hits of validation sentences: Newton's method, float64, a small ridge.

    Each ranking takes part twice: as it is, and with the right pictures taken out, of such a weight that a tenth of the
    searches has none (`ABSENT`). Of the rankings as they are, one in a hundred has surroundings below the floor.

    Raises `DataError` where all hits match or none does, and where matching ones do not score higher.
    """
    right, wrong = int(hits.right.sum()), int((~hits.right).sum())
    if not right or not wrong:
        kind = "matches" if not right else "does not match"
        raise DataError(f"a calibration needs right and wrong hits, and none of these {kind}; take more data")
    scores, without = hits.scores.astype(np.float64), hits.without.astype(np.float64)
    # Of rankings as they are: those without the right pictures are lower by design.
    floor = float(np.quantile(scores[:, :AROUND].mean(1), _LOWEST))
    features = np.concatenate([_features(scores, floor), _features(without, floor)])
    matches = np.concatenate([hits.right.ravel(), np.zeros(without.size, bool)])
    # Without searches that have no right picture, the first hit of any query would be taken for probable.
    weights = np.repeat([1.0, ABSENT / (1 - ABSENT)], [scores.size, without.size])
    # Hits that a small gallery does not have; their weight is left out of the sum as well.
    finite = np.isfinite(features[:, 0])
    features, matches, weights = features[finite], matches[finite], weights[finite] / weights[finite].sum()
    # Centred and scaled, the parameters are of one size and the ridge means the same for any model
    centre = weights @ features
    spread = np.sqrt(weights @ (features - centre) ** 2)
    # A feature that hardly varies is rounding, and scaling would blow it up.
    scale = np.divide(1, spread, out=np.zeros(2), where=spread > 1e-9 * np.abs(features).max())
    found = _minimum(_Loss((features - centre) * scale, matches.astype(np.float64), weights))
    of_score, of_lead = (found[:2] * scale).tolist()
    if of_score + of_lead <= 0:
        raise DataError(
            f"the scores of the {right:,} matching hits are not higher than those of the {wrong:,} others, so that no "
            "probability can be made of them; train the model further"
        )
    # Back from centred and scaled features to scores as a search gives them.
    offset = float(found[2] - (found[:2] * scale) @ centre)
    return Calibration(
        of_score=of_score, of_lead=of_lead, offset=offset, floor=floor, right=right, wrong=wrong
    )


def _features(scores: Float[np.ndarray, "queries hits"], floor: float) -> Float[np.ndarray, "samples 2"]:
    lead = scores - surroundings(scores, floor)[:, None]
    return np.stack([scores.ravel(), lead.ravel()], axis=1)


@dataclass(frozen=True, eq=False)
class _Loss:
    """Mean cross entropy with the ridge; of parameters: the weight of each feature, and last the offset."""

    features: Float[np.ndarray, "samples 2"]
    matches: Float[np.ndarray, " samples"]
    weights: Float[np.ndarray, " samples"]

    def value(self, at: Float[np.ndarray, "3"]) -> float:
        logits = self.features @ at[:2] + at[2]
        entropies = np.logaddexp(0, logits) - self.matches * logits
        # The offset has no ridge: it must be free to meet the share of right hits.
        return float(self.weights @ entropies + _RIDGE / 2 * at[:2] @ at[:2])

    def slopes(self, at: Float[np.ndarray, "3"]) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3 3"]]:
        """Gradient and curvature."""
        rows = np.concatenate([self.features, np.ones((len(self.features), 1))], axis=1).T
        likely = np.exp(-np.logaddexp(0, -(at @ rows)))
        ridge = _RIDGE * np.array([1.0, 1.0, 0.0])
        gradient = rows @ (self.weights * (likely - self.matches)) + ridge * at
        # The last term keeps the matrix invertible where every probability is 0 or 1.
        curvature = (rows * (self.weights * likely * (1 - likely))) @ rows.T + np.diag(ridge + 1e-12)
        return gradient, curvature


def _minimum(loss: _Loss) -> Float[np.ndarray, "3"]:
    """Newton's method from 0, each step halved until it helps."""
    at = np.zeros(3)
    now = loss.value(at)
    for _ in range(_STEPS):
        # Newton: the curvature of three parameters is 3 × 3, and seven or eight steps are enough.
        gradient, curvature = loss.slopes(at)
        step = np.linalg.solve(curvature, gradient)
        # Twice the fall that the quadratic promises, so small gains are near the minimum whatever the scale.
        gain = float(gradient @ step)
        if gain < _GAP:
            break
        share = 1.0
        # Below the last digits of the loss no step can be seen to help.
        while share > 1e-10 and loss.value(at - share * step) > now - 1e-4 * share * gain + 1e-13:
            share /= 2
        at = at - share * step
        now = loss.value(at)
    return at


BINS = 10
"""Bins of equal width over probabilities from 0 to 1."""

FOLDS = 5
"""Parts of the queries, by group, for cross-validation."""


class Reliability(Settings):
    """How far the probabilities of first hits could be trusted on some queries; all but `queries` are from 0 to 1.

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
    right_good: float | None = Field(ge=0, le=1)
    """Share of the right first hits that reach the threshold; None if no first hit is right."""
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
        >>> measured.right_good  # two of the three right ones
        0.6666666666666666
        """
        if not len(probabilities):
            raise DataError("reliability is measured over queries, and there are none")
        # A probability of 1 belongs to the last bin.
        bins = np.minimum((probabilities * BINS).astype(np.int64), BINS - 1)
        # Sums of differences, not means: divided by all hits they are the bins' means weighted by their hits.
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
            right_good=float(good[right].mean()) if right.any() else None,
            good_astray=float((astray >= threshold).mean()),
        )


# Below it, a right answer stands under "no good match" more often than not: whoever believes the message is misled by
# most of the answers that are right. It is measured, not asked of the maximum: one lucky hit is no use to anybody
# (docs/log/2026-11-24.md).
ENOUGH = 0.5
"""Share of right first hits that must reach a threshold; one that fewer reach is not used."""


def why_unusable(reliability: Reliability, threshold: float) -> str | None:
    """The reason why no answer should be called good or not by this threshold; None if it can be used.

    **Decided**: "no good match" is said only where at least half of the right first hits escape it (`ENOUGH`), measured
    on held-out sentences. How many wrong ones it catches does not count: a message that is nearly always there says
    nothing of the answer below it.

    >>> probabilities, right = np.array([0.9, 0.4, 0.3, 0.2]), np.array([True, True, True, False])
    >>> measured = Reliability.of(probabilities, right, np.zeros(4), 0.5)
    >>> why_unusable(measured, 0.5)
    'only 33% of the right first hits reach 0.5'
    >>> why_unusable(Reliability.of(probabilities, right, np.zeros(4), 0.4), 0.4) is None
    True
    """
    share = reliability.right_good
    if share is None:
        return "no first hit is right"
    return None if share >= ENOUGH else f"only {share:.0%} of the right first hits reach {threshold:g}"


def measured(hits: FirstHits, calibration: Calibration, threshold: float) -> Reliability:
    """Measure a calibration on first hits that it was not fitted to."""
    likely, astray = _first(hits, calibration)
    return Reliability.of(likely, hits.right[:, 0], astray, threshold)


def cross_validated(hits: FirstHits, threshold: float) -> Reliability:
    """Measure a calibration of these hits: each query by a fit without its fold, which has all of its group.

    Raises `DataError` for queries of one fold, and as `limner.evaluation.calibration.fit` does.
    """
    # By the rank of a group among those that have a query: pictures without a sentence leave gaps in the numbers, and
    # the groups of a few others could all fall into one fold.
    folds = np.unique(hits.groups, return_inverse=True)[1] % FOLDS
    if len(np.unique(folds)) < 2:
        raise DataError("a calibration is measured by cross-validation, for which one group is not enough")
    likely, astray = np.zeros(len(folds)), np.zeros(len(folds))
    for fold in np.unique(folds):
        # By group: sentences of one image are alike, and a fit that saw one would be measured on its like.
        inside = folds == fold
        calibration = fit(hits.of_queries(~inside))
        likely[inside], astray[inside] = _first(hits.of_queries(inside), calibration)
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
