"""Batch normalisation over the words of all sentences, and the ReLU behind it.

As operations of their own, the norm, the sum with a shortcut and the ReLU read and write each activation so often that
they take a quarter of a training step of the text path (docs/log.md).
"""

import ctypes
import math
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from limner.compiled import compiled
from limner.models.word_conv import WordConv, join_neighbours

_SOURCE = Path(__file__).with_suffix(".cpp")


class ChannelNorm(nn.BatchNorm1d):
    """Batch normalisation over the (batch × words) rows of each channel, alone or with what stands beside it.

    Source: Ioffe and Szegedy 2015, Algorithm 1.

    While training on a CPU in fp32 or bf16, norm, sum and ReLU are one compiled function where that can be had
    (`limner.compiled`), and with the filter `after` which they come one node of the graph. It sums and rounds in its
    own order: in bf16 what the filter gives is rounded and what comes out in the end, nothing between them. It has
    no second derivative. Otherwise, and for filters and norms with hooks, PyTorch's operations follow one another.
    """

    def forward(self, x: Float[Tensor, "batch words channels"]) -> Float[Tensor, "batch words channels"]:
        """Normalise; the statistics are those of the whole batch while training."""
        if self._compiled_for(x):
            return self._in_one_pass(x, lowest=-math.inf)
        return super().forward(x.reshape(-1, x.shape[2])).view(x.shape)

    def normalised(
        self, x: Float[Tensor, "batch words read"], *, after: WordConv
    ) -> Float[Tensor, "batch words channels"]:
        """`norm(after(x))`."""
        if self._compiled_for(x, after):
            return self._in_one_pass(x, after, lowest=-math.inf)
        out: Tensor = self(after(x))
        return out

    def rectified(
        self,
        x: Float[Tensor, "batch words read"],
        *,
        after: WordConv | None = None,
        plus: Float[Tensor, "batch words channels"] | None = None,
    ) -> Float[Tensor, "batch words channels"]:
        """`relu(norm(after(x)) + plus)`."""
        if self._compiled_for(x, after, plus):
            return self._in_one_pass(x, after, plus)
        if after is not None:
            return self.rectified(after(x), plus=plus)
        y: Tensor = self(x)
        return F.relu(y if plus is None else y + plus)

    def rectified_pairs(
        self, x: Float[Tensor, "batch words read"], stride: Literal[1, 2], *, after: WordConv | None = None
    ) -> Float[Tensor, "batch out_words joined"]:
        """`join_neighbours(relu(norm(after(x))), stride)`."""
        if self._compiled_for(x, after):
            return self._in_one_pass(x, after, stride=stride)
        if after is not None:
            return self.rectified_pairs(after(x), stride)
        return join_neighbours(self.rectified(x), stride)

    def _in_one_pass(
        self,
        x: Tensor,
        after: WordConv | None = None,
        plus: Tensor | None = None,
        *,
        lowest: float = 0.0,
        stride: int = 0,
    ) -> Tensor:
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        filters = None if after is None else after.weight
        out: Tensor = _FilterNormReLU.apply(  # type: ignore[no-untyped-call]
            x, filters, plus, self.weight, self.bias, self, lowest, stride
        )
        return out

    def _compiled_for(self, x: Tensor, after: WordConv | None = None, plus: Tensor | None = None) -> bool:
        """Whether all is as the compiled code reads it; what is not is PyTorch's, to compute or to refuse."""
        if not (self.training and x.dim() == 3 and x.dtype in _FUNCTION_OF and _plain(x)):
            return False
        channels, threads = self.num_features, torch.get_num_threads()
        return (
            x.shape[0] * x.shape[1] > 1
            and channels > 0
            and type(self) is ChannelNorm
            and not _hooked(self)
            and (x.shape[2] == channels if after is None else _multiplies(after, x, channels))
            # it divides channels among threads, 32 at least: with fewer PyTorch, which divides rows, is faster
            and (threads == 1 or channels >= 16 * threads)
            and self.momentum is not None
            and self.num_batches_tracked is not None
            and (
                plus is None
                or (plus.shape == (*x.shape[:2], channels) and plus.dtype == x.dtype and _plain(plus))
            )
            and all(
                values is not None
                and _plain(values)
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


def _hooked(module: nn.Module) -> bool:
    """Whether its hooks want it called as a module of its own: some of PyTorch's make its weight there."""
    return bool(
        module._forward_pre_hooks
        or module._forward_hooks
        or module._backward_pre_hooks
        or module._backward_hooks
    )


def _multiplies(conv: WordConv, x: Tensor, channels: int) -> bool:
    """Whether `conv(x)` is this filter's product as it stands, with the numbers of `x` and this many channels."""
    if type(conv) is not WordConv or _hooked(conv):  # a class of its own has a parametrised one, too
        return False
    filters = conv.weight
    computes_in = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else filters.dtype
    return (
        x.dtype == computes_in
        and filters.dtype == torch.float32
        and filters.dim() == 3
        and filters.shape[2] in (1, 2)
        and filters.numel() == channels * x.shape[2] > 0
        and filters.shape[0] == channels
        and filters.is_contiguous()
        and _plain(filters)
    )


class _Functions(NamedTuple):
    """Those of channel_norm.cpp for one kind of number."""

    forward: Any
    backward: Any
    to_matrix: Any
    from_matrix: Any


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
        here = _Functions(*[library[f"{function}_{name}"] for function in _Functions._fields])
        # threads; x, plus; counts; weight, bias; eps, momentum, lowest; running statistics; statistics; out
        here.forward.argtypes = [
            count,
            *[pointer] * 2,
            *counts,
            *[pointer] * 2,
            *[number] * 3,
            *[pointer] * 4,
        ]
        # threads; gradient, x, out; counts; weight, bias; lowest; statistics; gradients of x, plus, parameters
        here.backward.argtypes = [count, *[pointer] * 3, *counts, *[pointer] * 2, number, *[pointer] * 4]
        # threads; outputs, inputs; from, to
        here.to_matrix.argtypes = here.from_matrix.argtypes = [*[count] * 3, *[pointer] * 2]
        for function in here:
            function.restype = None
        found[dtype] = here
    return found


def is_compiled() -> bool:
    """Whether there is compiled code on this machine."""
    return bool(_functions())


def _to_matrix(filters: Tensor, dtype: torch.dtype) -> Tensor:
    """A row for each output, the earlier tap on its left."""
    outputs, inputs, taps = filters.shape
    if taps == 1:
        return filters.view(outputs, inputs).to(dtype)
    matrix = filters.new_empty(outputs, taps * inputs, dtype=dtype)
    _functions()[dtype].to_matrix(
        torch.get_num_threads(), outputs, inputs, filters.data_ptr(), matrix.data_ptr()
    )
    return matrix


def _from_matrix(matrix: Tensor, shape: torch.Size) -> Tensor:
    outputs, inputs, taps = shape
    if taps == 1:
        return matrix.float().view(shape)
    filters = matrix.new_empty(shape, dtype=torch.float32)
    _functions()[matrix.dtype].from_matrix(
        torch.get_num_threads(), outputs, inputs, matrix.data_ptr(), filters.data_ptr()
    )
    return filters


class _FilterNormReLU(torch.autograd.Function):
    """As one node, since each of PyTorch's own costs as much time as the smaller products take."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        filters: Tensor | None,
        plus: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        norm: ChannelNorm,
        lowest: float,
        stride: int,
    ) -> Tensor:
        """Filter, normalise, add, cut off, join with the row before where `stride` is not 0; move the statistics."""
        batch, words, inputs = x.shape
        channels = norm.num_features
        rows, matrix = x.reshape(-1, inputs).contiguous(), None
        y = rows
        if filters is not None:
            matrix = _to_matrix(filters, x.dtype)
            y = torch.mm(rows, matrix.t())
        plus = None if plus is None else plus.contiguous()
        places, width = (-(-words // stride), 2 * channels) if stride else (words, channels)
        out = y.new_empty(batch, places, width)
        statistics = torch.empty(2, channels, dtype=torch.float32, device="cpu")
        assert norm.running_mean is not None
        assert norm.running_var is not None
        assert norm.momentum is not None
        _functions()[x.dtype].forward(
            torch.get_num_threads(),
            y.data_ptr(),
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
            statistics.data_ptr(),
            out.data_ptr(),
        )
        ctx.shape, ctx.lowest, ctx.stride = x.shape, lowest, stride
        ctx.filters = None if filters is None else filters.shape
        ctx.save_for_backward(
            rows if ctx.needs_input_grad[1] else None,
            matrix if ctx.needs_input_grad[0] else None,
            y,
            # without `plus` the input of the norm says what the ReLU let through
            None if plus is None else out,
            weight,
            bias,
            statistics,
        )
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of `x`, filters, `plus`, weight and bias."""
        rows, matrix, y, out, weight, bias, statistics = ctx.saved_tensors
        gradient = gradients[0].resolve_neg().contiguous()
        batch, words, _ = ctx.shape
        of_y = torch.empty_like(y)
        of_plus = None if out is None else torch.empty_like(out)
        of_parameters = torch.empty_like(statistics)
        _functions()[y.dtype].backward(
            torch.get_num_threads(),
            gradient.data_ptr(),
            y.data_ptr(),
            None if out is None else out.data_ptr(),
            batch * words,
            words,
            ctx.stride,
            y.shape[1],
            weight.data_ptr(),
            bias.data_ptr(),
            ctx.lowest,
            statistics.data_ptr(),
            of_y.data_ptr(),
            None if of_plus is None else of_plus.data_ptr(),
            of_parameters.data_ptr(),
        )
        of_x = None
        if ctx.needs_input_grad[0]:
            of_x = of_y.view(ctx.shape) if ctx.filters is None else torch.mm(of_y, matrix).view(ctx.shape)
        of_filters = None
        if ctx.needs_input_grad[1]:
            of_filters = _from_matrix(torch.mm(of_y.t(), rows).to(y.dtype), ctx.filters)
        return of_x, of_filters, of_plus, of_parameters[0], of_parameters[1], None, None, None
