"""Platt's probabilities typed from his paper: every pair by itself, plain Python, a minimiser of somebody else's."""

import math
from collections.abc import Sequence

from scipy.optimize import minimize


def platt(scores: Sequence[float], right: Sequence[bool]) -> tuple[float, float]:
    """A and B of P = 1 / (1 + exp(A f + B)), Platt (1999), section 2.2 with the targets of Eq. 6."""
    matching = sum(right)
    others = len(right) - matching
    targets = [(matching + 1) / (matching + 2) if one else 1 / (others + 2) for one in right]

    def loss(parameters: Sequence[float]) -> float:
        total = 0.0
        for score, target in zip(scores, targets, strict=True):
            p = 1 / (1 + math.exp(parameters[0] * score + parameters[1]))
            total -= target * math.log(p) + (1 - target) * math.log(1 - p)
        return total

    found = minimize(loss, [-1.0, 0.0], method="BFGS", options={"gtol": 1e-7})
    return float(found.x[0]), float(found.x[1])


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
