"""Slow twin of Gumbel top-k attention: HGAN (MM 2020), Algorithm 1 and Eq. 5–8, in loops."""

import math


def l2norm(row: list[float]) -> list[float]:
    length = math.sqrt(sum(value * value for value in row))
    return [value / length for value in row]


def softmax(row: list[float], temperature: float = 1.0) -> list[float]:
    powers = [math.exp(value / temperature) for value in row]
    return [power / sum(powers) for power in powers]


def top_k(row: list[float], k: int) -> list[int]:
    """1 at the k largest, 0 elsewhere (Eq. 5)."""
    first = sorted(range(len(row)), key=lambda place: -row[place])[:k]
    return [int(place in first) for place in range(len(row))]


def select(
    gamma: list[float], k: int, temperature: float, u: list[float] | None, *, normalised: bool = True
) -> list[int]:
    """Lines 8–12 for one row, with the uniform numbers given; without them no noise is added.

    Without the norm it is section 3.3's `r = γ + G`.
    """
    r = l2norm(gamma) if normalised else gamma
    if u is not None:
        r = [value - math.log(-math.log(uniform)) for value, uniform in zip(r, u, strict=True)]
    return top_k(softmax(r, temperature), k)


def weights(gamma: list[float], alpha: list[int]) -> list[float]:
    """The softmax of Eq. 7 over the selected alone."""
    powers = [math.exp(value) if chosen else 0.0 for value, chosen in zip(gamma, alpha, strict=True)]
    return [power / sum(powers) for power in powers]


def perceptron(
    x: list[float],
    first: list[list[float]],
    bias: list[float],
    second: list[float],
    second_bias: float,
) -> float:
    """Two layers with a ReLU between."""
    hidden = [
        max(0.0, sum(w * value for w, value in zip(row, x, strict=True)) + b)
        for row, b in zip(first, bias, strict=True)
    ]
    return sum(w * value for w, value in zip(second, hidden, strict=True)) + second_bias


def fused(row_weights: list[float], items: list[list[float]]) -> list[float]:
    """t^f of Eq. 7."""
    return [
        sum(weight * item[place] for weight, item in zip(row_weights, items, strict=True))
        for place in range(len(items[0]))
    ]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))
