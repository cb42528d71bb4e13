"""Slow twin of Gumbel top-k attention: HGAN (MM 2020), Algorithm 1 and Eq. 2–8, in loops, in both of its readings."""

import math
from collections.abc import Callable


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
    x: list[float], first: list[list[float]], bias: list[float], second: list[float], second_bias: float
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


Rows = list[list[float]]
Perceptron = Callable[[list[float]], float]


def regions_select(v: Rows, t: Rows, mlp: Perceptron, mlp_of_sum: Perceptron, k: int | None) -> float:
    """Line 4 and Eq. 6–8: each region selects k of the words, S is a mean over the n regions; None = soft attention."""
    n = len(v)
    total = 0.0
    for i in range(n):
        gamma_i = [mlp(v[i] + t[j]) for j in range(len(t))]
        alpha_i = [1] * len(t) if k is None else select(gamma_i, k, 1.0, None)
        t_f = fused(weights(gamma_i, alpha_i), t)
        total += sigmoid(mlp_of_sum([a + b for a, b in zip(v[i], t_f, strict=True)]))
    return total / n


def words_select(v: Rows, t: Rows, mlp: Perceptron, mlp_of_sum: Perceptron, k: int | None) -> float:
    """The declarations and Eq. 2–4: γ has a row a word, each word selects k of the regions, S is over the m words."""
    m = len(t)
    total = 0.0
    for i in range(m):
        gamma_i = [mlp(v[j] + t[i]) for j in range(len(v))]
        alpha_i = [1] * len(v) if k is None else select(gamma_i, k, 1.0, None)
        v_a = fused(weights(gamma_i, alpha_i), v)
        total += sigmoid(mlp_of_sum([a + b for a, b in zip(v_a, t[i], strict=True)]))
    return total / m


def similarity(
    selects: str,
    direction: str,
    v: Rows,
    t: Rows,
    perceptrons: tuple[Perceptron, Perceptron],
    k1: int | None,
    k2: int | None,
) -> float:
    """S by α with k1, by β with k2, or the mean of both; α is that of the side that `selects`."""
    by_alpha, by_beta = regions_select, words_select
    if selects == "words":
        by_alpha, by_beta = words_select, regions_select
    to_text, to_image = by_alpha(v, t, *perceptrons, k1), by_beta(v, t, *perceptrons, k2)
    return {"image_to_text": to_text, "text_to_image": to_image, "both": (to_text + to_image) / 2}[direction]
