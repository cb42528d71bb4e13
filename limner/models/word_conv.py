"""Convolutions over the words of a sentence.

Filters of width 1 and 2 are matrix products over (batch × words) rows and computed as such: `nn.Conv1d` reaches a few
per cent of the processor's matrix speed on these shapes (`benchmarks/text_path.py`).
"""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable


class WordConv(nn.Module):
    """Filters over the words of a sentence of width 1 or 2, no bias.

    With two taps, `y[t] = W₀·x[t·stride − 1] + W₁·x[t·stride]`: one zero is padded on the left, so that stride 1
    keeps the length and stride 2 halves it (**Decided**: the side of the one-sided padding is that of the released
    code). So an even length loses its last place at each halving: of 32 words the paper's layout sees the first 25, the
    released one the first 29. `weight` has the shape of `nn.Conv1d`'s, (out, in, taps).
    """

    def __init__(self, inputs: int, outputs: int, taps: Literal[1, 2]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, taps))
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Float[Tensor, "batch out_words read"]) -> Float[Tensor, "batch out_words outputs"]:
        """Filter what stands at each place: a word, or with two taps what `join_neighbours` makes of two."""
        filters = self.weight
        return F.linear(x, filters.transpose(1, 2).reshape(len(filters), -1))


def join_neighbours(
    x: Float[Tensor, "batch words channels"], stride: Literal[1, 2]
) -> Float[Tensor, "batch out_words 2*channels"]:
    """Every `stride`-th word with the word before it on its left; the first has zeros there."""
    joined: Tensor = _NeighboursJoined.apply(x, stride)  # type: ignore[no-untyped-call]
    return joined


class _NeighboursJoined(torch.autograd.Function):
    """What `F.pad`, two slices and `torch.cat` give, in fewer passes over the memory."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, stride: int) -> Tensor:
        """The word before the first is zero."""
        _, words, channels = x.shape
        ctx.words, ctx.stride = words, stride  # type: ignore[attr-defined]
        joined = x.new_empty(len(x), -(-words // stride), 2 * channels)
        joined[:, 0, :channels] = 0
        joined[:, 1:, :channels] = x[:, stride - 1 : words - 1 : stride]
        joined[:, :, channels:] = x[:, ::stride]
        return joined

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """The gradient of a word, as the later of a pair and as the earlier."""
        before, itself = gradients[0].chunk(2, dim=2)
        of_words = before.new_zeros(len(before), ctx.words, before.shape[2])
        of_words[:, :: ctx.stride] = itself
        of_words[:, ctx.stride - 1 : ctx.words - 1 : ctx.stride] += before[:, 1:]
        return of_words, None
