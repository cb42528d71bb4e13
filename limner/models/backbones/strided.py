"""Convolutions of stride 2, padded as PyTorch or as TensorFlow does it."""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional as F

Padding = Literal["symmetric", "same"]


class StridedConvolution(nn.Conv2d):
    """A 3×3 convolution of stride 2 without bias; the output has ⌈side / 2⌉ rows and columns.

    Symmetric padding puts one zero at both ends. TensorFlow's SAME does so for an odd side only; an even one is padded
    at the right or bottom alone, which shifts the samples by a pixel.
    """

    def __init__(self, inputs: int, outputs: int, *, groups: int = 1, padding: Padding) -> None:
        super().__init__(inputs, outputs, 3, stride=2, padding=1, groups=groups, bias=False)
        self.same = padding == "same"

    def forward(
        self, input: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch _channels _height _width"]:
        """Filter a batch, in autocast's type where the caller applies it."""
        top, left = ((1 - side % 2) if self.same else 0 for side in input.shape[2:])
        if self._has_slow_gradients(input):
            kept, weight = input.to(torch.bfloat16), self.weight.to(torch.bfloat16)
            out: Tensor = StridedDepthwise.apply(kept, weight, top, left)  # type: ignore[no-untyped-call]
            return out
        return F.conv2d(
            input, _shifted(self.weight, top, left), self.bias, self.stride, 1, groups=self.groups
        )

    def _has_slow_gradients(self, input: Tensor) -> bool:
        if input.device.type != "cpu" or self.groups != self.in_channels or not torch.is_grad_enabled():
            return False
        computed = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else input.dtype
        return computed == torch.bfloat16


class StridedDepthwise(torch.autograd.Function):
    """A depthwise 3×3 filter of stride 2 whose gradients are those of stride 1.

    On a CPU, oneDNN's bf16 gradients of strided depthwise filters are many times slower than those of stride 1
    (`benchmarks/backbone.py`). A strided output is every other output of stride 1, so its gradient with zeros in
    between gives the same gradients of input and filter. `top` and `left`, 0 or 1, say which of two outputs it is.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, input: Tensor, weight: Tensor, top: int, left: int) -> Tensor:
        """Filter (batch, channels, height, width) with (channels, 1, 3, 3), one zero around the input."""
        ctx.save_for_backward(input, weight)
        ctx.offset = top, left  # type: ignore[attr-defined]
        return F.conv2d(input, _shifted(weight, top, left), None, 2, 1, groups=len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        """Gradients of the input and of the filter."""
        input, weight = ctx.saved_tensors
        top, left = ctx.offset
        spread = torch.zeros_like(input)
        spread[:, :, top::2, left::2] = gradients[0]
        of_input, of_weight, _ = torch.ops.aten.convolution_backward(
            spread, input, weight, None, (1, 1), (1, 1), (1, 1), False, (0, 0), len(weight),
            (*ctx.needs_input_grad[:2], False),
        )  # fmt: skip
        return of_input, of_weight, None, None


def _shifted(weight: Tensor, top: int, left: int) -> Tensor:
    """The filter behind a row or column of zeros, or as it is.

    Padding the picture on one side would copy it, a quarter of the network's time. Padding the filter does not:
    symmetric padding then puts its three rows where SAME wants them.
    """
    return F.pad(weight, (left, 0, top, 0)) if top or left else weight
