"""Batch normalisation over the words of all sentences, and the ReLU behind it.

As operations of their own, the norm, the sum with a shortcut and the ReLU read and write each activation so often that
they take a quarter of a training step of the text path (docs/log.md).
"""

import ctypes
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from limner.compiled import compiled
from limner.models.word_conv import join_neighbours

_SOURCE = Path(__file__).with_suffix(".cpp")


class ChannelNorm(nn.BatchNorm1d):
    """Batch normalisation over the (batch × words) rows of each channel, alone or with what follows it.

    Source: Ioffe and Szegedy 2015, Algorithm 1.

    While training on a CPU in fp32 or bf16, each method is one compiled function where that can be had
    (`limner.compiled`). It sums and rounds in its own order: in bf16 the result is rounded, the steps before it are
    not. It has no second derivative. Otherwise PyTorch's operations follow one another.
    """

    def forward(self, x: Float[Tensor, "batch words channels"]) -> Float[Tensor, "batch words channels"]:
        """Normalise; the statistics are those of the whole batch while training."""
        if self._compiled_for(x):
            return self._in_one_pass(x, lowest=-math.inf)
        return super().forward(x.reshape(-1, x.shape[2])).view(x.shape)

    def rectified(
        self,
        x: Float[Tensor, "batch words channels"],
        plus: Float[Tensor, "batch words channels"] | None = None,
    ) -> Float[Tensor, "batch words channels"]:
        """`relu(norm(x) + plus)`."""
        if self._compiled_for(x, plus):
            return self._in_one_pass(x, plus)
        y: Tensor = self(x)
        return F.relu(y if plus is None else y + plus)

    def rectified_pairs(
        self, x: Float[Tensor, "batch words channels"], stride: Literal[1, 2]
    ) -> Float[Tensor, "batch out_words 2*channels"]:
        """`join_neighbours(relu(norm(x)), stride)`."""
        if self._compiled_for(x):
            return self._in_one_pass(x, stride=stride)
        return join_neighbours(self.rectified(x), stride)

    def _in_one_pass(
        self, x: Tensor, plus: Tensor | None = None, *, lowest: float = 0.0, stride: int = 0
    ) -> Tensor:
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        out: Tensor = _NormReLU.apply(  # type: ignore[no-untyped-call]
            x, plus, self.weight, self.bias, self, lowest, stride
        )
        return out

    def _compiled_for(self, x: Tensor, plus: Tensor | None = None) -> bool:
        """Whether all is as the compiled code reads it; what is not is PyTorch's, to compute or to refuse."""
        if not (self.training and x.dim() == 3 and x.dtype in _FUNCTION_OF and _plain(x)):
            return False
        channels, threads = x.shape[2], torch.get_num_threads()
        return (
            x.numel() > channels
            # it divides channels among threads, 32 at least: with fewer PyTorch, which divides rows, is faster
            and (threads == 1 or channels >= 16 * threads)
            and self.momentum is not None
            and self.num_batches_tracked is not None
            and (plus is None or (plus.shape == x.shape and plus.dtype == x.dtype and _plain(plus)))
            and all(
                values is not None
                and values.is_cpu
                and values.dtype == torch.float32
                and values.shape == (channels,)
                and values.is_contiguous()
                for values in (self.weight, self.bias, self.running_mean, self.running_var)
            )
            and is_compiled()
        )


_FUNCTION_OF = {torch.float32: "float32", torch.bfloat16: "bfloat16"}


def _plain(values: Tensor) -> bool:
    """Whether this machine's memory holds the values as they are: no GPU, no tracing, no sign left for later."""
    return values.is_cpu and type(values) in (Tensor, nn.Parameter) and not values.is_neg()


class _Functions(NamedTuple):
    forward: Callable[..., None]
    backward: Callable[..., None]


@cache
def _functions() -> dict[torch.dtype, _Functions]:
    """Of each kind of number; none without compiled code."""
    library = compiled(_SOURCE)
    if library is None:
        return {}
    pointer, count, number = ctypes.c_void_p, ctypes.c_long, ctypes.c_float
    counts = [count] * 4  # rows, words, stride, channels
    found = {}
    for dtype, name in _FUNCTION_OF.items():
        forward, backward = library[f"norm_relu_forward_{name}"], library[f"norm_relu_backward_{name}"]
        forward.restype = backward.restype = None
        # threads; x, plus; counts; weight, bias; eps, momentum, lowest; running statistics; mean, inverse; out
        forward.argtypes = [count, *[pointer] * 2, *counts, *[pointer] * 2, *[number] * 3, *[pointer] * 5]
        # threads; gradient, x, out; counts; weight, bias; lowest; mean, inverse; gradients of x, plus, weight, bias
        backward.argtypes = [count, *[pointer] * 3, *counts, *[pointer] * 2, number, *[pointer] * 6]
        found[dtype] = _Functions(forward, backward)
    return found


def is_compiled() -> bool:
    """Whether there is compiled code on this machine."""
    return bool(_functions())


class _NormReLU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        plus: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        norm: ChannelNorm,
        lowest: float,
        stride: int,
    ) -> Tensor:
        """Normalise, add, cut off, join with the row before where `stride` is not 0, and move the statistics."""
        x = x.contiguous()
        plus = None if plus is None else plus.contiguous()
        batch, words, channels = x.shape
        out = x.new_empty(batch, -(-words // stride), 2 * channels) if stride else torch.empty_like(x)
        mean, inverse = statistics = torch.empty(2, channels, dtype=torch.float32, device="cpu")
        assert norm.running_mean is not None
        assert norm.running_var is not None
        assert norm.momentum is not None
        _functions()[x.dtype].forward(
            torch.get_num_threads(),
            x.data_ptr(),
            None if plus is None else plus.data_ptr(),
            batch * words,
            words,
            stride,
            channels,
            weight.data_ptr(),
            bias.data_ptr(),
            norm.eps,
            norm.momentum,
            lowest,
            norm.running_mean.data_ptr(),
            norm.running_var.data_ptr(),
            mean.data_ptr(),
            inverse.data_ptr(),
            out.data_ptr(),
        )
        ctx.lowest, ctx.stride = lowest, stride
        # without `plus` the input says what the ReLU let through
        ctx.save_for_backward(x, None if plus is None else out, weight, bias, statistics)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of `x`, `plus`, weight and bias."""
        x, out, weight, bias, statistics = ctx.saved_tensors
        gradient = gradients[0].resolve_neg().contiguous()
        batch, words, channels = x.shape
        mean, inverse = statistics
        of_x = torch.empty_like(x)
        of_plus = None if out is None else torch.empty_like(x)
        of_weight, of_bias = torch.empty(2, channels, dtype=torch.float32, device="cpu")
        _functions()[x.dtype].backward(
            torch.get_num_threads(),
            gradient.data_ptr(),
            x.data_ptr(),
            None if out is None else out.data_ptr(),
            batch * words,
            words,
            ctx.stride,
            channels,
            weight.data_ptr(),
            bias.data_ptr(),
            ctx.lowest,
            mean.data_ptr(),
            inverse.data_ptr(),
            of_x.data_ptr(),
            None if of_plus is None else of_plus.data_ptr(),
            of_weight.data_ptr(),
            of_bias.data_ptr(),
        )
        return of_x, of_plus, of_weight, of_bias, None, None, None
