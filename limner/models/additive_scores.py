"""Scores of all pairs of rows by a two-layer perceptron on both, without its hidden layer ever being in memory."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

_BLOCK = 1 << 18
"""Numbers of the hidden layer made at once on a CPU: a MiB, which stays in a core's cache."""

_ON_ACCELERATORS = 1 << 26
"""The same elsewhere: 256 MiB, enough to keep many cores busy."""


def additive_scores(
    left: Float[Tensor, "left hidden"], right: Float[Tensor, "right hidden"], weight: Float[Tensor, " hidden"]
) -> Float[Tensor, "left right"]:
    """`s_pq = Σ_h weight_h · ReLU(left_ph + right_qh)` of every row p with every row q.

    With `left = A·x + b` and `right = B·y` this is a perceptron on the pair (x, y) whose first linear layer is
    [A, B]: each half is computed once a row, and only added a pair. Gradients reach all three; the hidden layer, of
    left × right × hidden numbers, is made again for them, a few rows at a time.
    """
    found: Tensor = _AdditiveScores.apply(left, right, weight)  # type: ignore[no-untyped-call]
    return found


class _AdditiveScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(left, right, weight)
        scores = left.new_empty(len(left), len(right))
        for rows, columns in _blocks(left, right):
            scores[rows, columns] = (left[rows, None] + right[columns]).relu_() @ weight
        return scores

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        (gradient,) = gradients
        left, right, weight = ctx.saved_tensors
        of_left, of_right = torch.zeros_like(left), torch.zeros_like(right)
        for rows, columns in _blocks(left, right):
            active = (left[rows, None] + right[columns]).gt_(0).mul_(gradient[rows, columns, None])
            of_left[rows] += active.sum(dim=1)
            of_right[columns] += active.sum(dim=0)
        # Σ_pq g_pq · ReLU(left_p + right_q) = Σ_p left_p · Σ_q g_pq [… > 0] + Σ_q right_q · Σ_p g_pq [… > 0]
        of_weight = (of_left * left).sum(dim=0) + (of_right * right).sum(dim=0)
        return of_left * weight, of_right * weight, of_weight


def _blocks(left: Tensor, right: Tensor) -> Iterator[tuple[slice, slice]]:
    """Rows of `left` and of `right` that meet at once."""
    block = _BLOCK if left.device.type == "cpu" else _ON_ACCELERATORS
    pairs = max(1, block // max(1, left.shape[1]))
    few = max(1, min(len(right), math.isqrt(pairs)))
    many = max(1, pairs // few)
    for first in range(0, len(left), many):
        for second in range(0, len(right), few):
            yield slice(first, first + many), slice(second, second + few)
