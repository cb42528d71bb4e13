"""Probabilities of hits retyped from their definition: every hit by itself, plain Python, somebody else's minimiser."""

import math
from collections.abc import Sequence

from scipy.optimize import minimize

Ranking = Sequence[float]
"""Scores, best first."""


def lead(ranking: Ranking, place: int, floor: float) -> float:
    """Score less the mean of the first six, or less `floor` if that is more; what is missing of six scores `floor`."""
    first = list(ranking[:6])
    while len(first) < 6:
        first.append(floor)
    return ranking[place] - max(sum(first) / 6, floor)


def logistic(
    rankings: Sequence[Ranking],
    right: Sequence[Sequence[bool]],
    without: Sequence[Ranking],
    absent: float,
    ridge: float,
    floor: float,
) -> tuple[float, float, float]:
    """Weights of score and lead, and the offset: those of least mean cross entropy, with a ridge on scaled features."""
    hits: list[tuple[float, float, bool, float]] = []
    for ranking, matching in zip(rankings, right, strict=True):
        for place, score in enumerate(ranking):
            hits.append((score, lead(ranking, place, floor), matching[place], 1.0))
    for ranking in without:
        for place, score in enumerate(ranking):
            hits.append((score, lead(ranking, place, floor), False, absent / (1 - absent)))
    total = sum(hit[3] for hit in hits)
    spreads = []
    for feature in (0, 1):
        mean = sum(hit[3] * hit[feature] for hit in hits) / total
        spread = math.sqrt(sum(hit[3] * (hit[feature] - mean) ** 2 for hit in hits) / total)
        spreads.append(spread or 1.0)

    def loss(at: Sequence[float]) -> float:
        found = ridge / 2 * ((at[0] * spreads[0]) ** 2 + (at[1] * spreads[1]) ** 2)
        for score, ahead, matches, weight in hits:
            logit = at[0] * score + at[1] * ahead + at[2]
            p = 1 / (1 + math.exp(-logit))
            found -= weight / total * math.log(max(p if matches else 1 - p, 1e-300))
        return found

    found = minimize(loss, [0.0, 0.0, 0.0], method="BFGS", options={"gtol": 1e-8})
    return float(found.x[0]), float(found.x[1]), float(found.x[2])


def calibration_error(probabilities: Sequence[float], right: Sequence[bool], bins: int) -> float:
    """Expected calibration error: over bins, their share times the distance of mean probability and share of hits."""
    total = 0.0
    for number in range(bins):
        inside = [
            place
            for place, p in enumerate(probabilities)
            if number / bins <= p < (number + 1) / bins or (number == bins - 1 and p == 1)
        ]
        if inside:
            mean = sum(probabilities[place] for place in inside) / len(inside)
            share = sum(right[place] for place in inside) / len(inside)
            total += len(inside) / len(right) * abs(share - mean)
    return total


def threshold_is_used(
    probabilities: Sequence[float], right: Sequence[bool], threshold: float, enough: float
) -> bool:
    """True if at least a share of the right first hits would be shown without "no good match"."""
    shown, hidden = 0, 0
    for probability, matches in zip(probabilities, right, strict=True):
        if not matches:
            continue
        if probability < threshold:
            hidden += 1
        else:
            shown += 1
    return shown + hidden > 0 and shown >= enough * (shown + hidden)
