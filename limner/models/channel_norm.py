"""Batch normalisation over the words of all sentences, and the ReLU behind it.

As operations of their own, the norm, the sum with a shortcut and the ReLU read and write each activation so often that
they take a quarter of a training step of the text path (`benchmarks/text_path.py`).
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
_NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
_POINTER, _LONG, _FLOAT = ctypes.c_void_p, ctypes.c_long, ctypes.c_float


class ChannelNorm(nn.BatchNorm1d):
    """Batch normalisation over the (batch × words) rows of each channel, alone or with what follows it.

    While training on a CPU in fp32 or bf16, each method is one visit to the memory, by compiled code where that can be
    had (`limner.compiled`). It sums and rounds in its own order: in bf16 the result is rounded, the steps before it
    are not. Otherwise PyTorch's operations follow one another.
    """

    def forward(self, x: Float[Tensor, "batch words channels"]) -> Float[Tensor, "batch words channels"]:
        """Normalise; the statistics are those of the whole batch while training."""
        if self._compiled_for(x):
            return self._at_once(x, lowest=-math.inf)
        return super().forward(x.reshape(-1, x.shape[2])).view(x.shape)

    def rectified(
        self,
        x: Float[Tensor, "batch words channels"],
        plus: Float[Tensor, "batch words channels"] | None = None,
    ) -> Float[Tensor, "batch words channels"]:
        """`relu(norm(x) + plus)`."""
        if self._compiled_for(x, plus):
            return self._at_once(x, plus)
        y: Tensor = self(x)
        return F.relu(y if plus is None else y + plus)

    def rectified_pairs(
        self, x: Float[Tensor, "batch words channels"], stride: Literal[1, 2]
    ) -> Float[Tensor, "batch out_words 2*channels"]:
        """`join_neighbours(relu(norm(x)), stride)`."""
        if self._compiled_for(x):
            return self._at_once(x, stride=stride)
        return join_neighbours(self.rectified(x), stride)

    def _at_once(
        self, x: Tensor, plus: Tensor | None = None, *, lowest: float = 0.0, stride: int = 0
    ) -> Tensor:
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        out: Tensor = _NormReLU.apply(  # type: ignore[no-untyped-call]
            x, plus, self.weight, self.bias, self, lowest, stride
        )
        return out

    def _compiled_for(self, x: Tensor, plus: Tensor | None = None) -> bool:
        statistics = (self.weight, self.bias, self.running_mean, self.running_var)
        return (
            self.training
            and self.momentum is not None
            and x.device.type == "cpu"
            and x.dtype in _NAMES
            and (plus is None or (plus.dtype == x.dtype and plus.shape == x.shape))
            and x.numel() > x.shape[2]
            and all(values is not None and values.dtype == torch.float32 for values in statistics)
            and _functions() is not None
        )


class _Functions(NamedTuple):
    forward: dict[torch.dtype, Callable[..., None]]
    backward: dict[torch.dtype, Callable[..., None]]


@cache
def _functions() -> _Functions | None:
    library = compiled(_SOURCE)
    if library is None:
        return None
    found = _Functions({}, {})
    for dtype, name in _NAMES.items():
        forward = library[f"norm_relu_forward_{name}"]
        forward.argtypes = [
            _LONG,
            *[_POINTER] * 2,
            *[_LONG] * 4,
            *[_POINTER] * 2,
            *[_FLOAT] * 3,
            *[_POINTER] * 5,
        ]
        backward = library[f"norm_relu_backward_{name}"]
        backward.argtypes = [
            _LONG,
            *[_POINTER] * 3,
            *[_LONG] * 4,
            *[_POINTER] * 2,
            _FLOAT,
            *[_POINTER] * 6,
        ]
        forward.restype = backward.restype = None
        found.forward[dtype], found.backward[dtype] = forward, backward
    return found


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
        mean, inverse = statistics = torch.empty(2, channels)
        functions = _functions()
        assert functions is not None
        assert norm.running_mean is not None
        assert norm.running_var is not None
        assert norm.momentum is not None
        functions.forward[x.dtype](
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
        gradient = gradients[0].contiguous()
        batch, words, channels = x.shape
        mean, inverse = statistics
        of_x = torch.empty_like(x)
        of_plus = None if out is None else torch.empty_like(x)
        of_weight, of_bias = torch.empty(2, channels)
        functions = _functions()
        assert functions is not None
        functions.backward[x.dtype](
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
