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
    """A convolution over the words of a sentence with filters of width 1 or 2, no bias.

    With two taps, `y[t] = W₀·x[t·stride − 1] + W₁·x[t·stride]`: one zero is padded on the left, so that stride 1
    keeps the length and stride 2 halves it (**Decided**: the side of the one-sided padding is that of the released
    code). So an even length loses its last place at each halving: of 32 words the paper's layout sees the first 25, the
    released one the first 29. `weight` has the shape of `nn.Conv1d`'s, (out, in, taps); in memory a filter's taps lie
    one behind the other, (out, taps, in), which is the matrix of the product.
    """

    def __init__(self, inputs: int, outputs: int, taps: Literal[1, 2], stride: Literal[1, 2] = 1) -> None:
        super().__init__()
        self.stride = stride
        start = torch.empty(outputs, inputs, taps)
        nn.init.kaiming_normal_(start, mode="fan_out", nonlinearity="relu")
        self.weight = nn.Parameter(start.transpose(1, 2).contiguous().transpose(1, 2))

    def forward(self, x: Float[Tensor, "batch words channels"]) -> Float[Tensor, "batch out_words outputs"]:
        """Filter each sentence; `out_words` = words / stride."""
        outputs, inputs, taps = self.weight.shape
        matrix = self.weight.transpose(1, 2).reshape(outputs, taps * inputs)
        if taps == 1:
            return F.linear(x[:, :: self.stride], matrix)
        pairs: Tensor = _NeighboursJoined.apply(x, self.stride)  # type: ignore[no-untyped-call]
        return F.linear(pairs, matrix)


class _NeighboursJoined(torch.autograd.Function):
    """Every `stride`-th word behind the word before it: (batch, words, channels) → (batch, out_words, 2 × channels).

    What `F.pad`, two slices and `torch.cat` give, in fewer passes over the memory.
    """

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
        if ctx.stride == 1:
            of_words = itself.clone(memory_format=torch.contiguous_format)
            of_words[:, :-1] += before[:, 1:]
            return of_words, None
        of_words = itself.new_empty(len(itself), ctx.words, itself.shape[2])
        of_words[:, ::2] = itself
        of_words[:, 1:-1:2] = before[:, 1:]
        if ctx.words % 2 == 0:
            of_words[:, -1] = 0  # in no pair
        return of_words, None
