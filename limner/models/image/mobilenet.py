"""MobileNetV2: Sandler et al., "Inverted Residuals and Linear Bottlenecks", CVPR 2018, Tables 1 and 2."""

from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional as F

from limner.models.image.encoder import (
    IMAGENET,
    ImageEncoder,
    Layer,
    Normalisation,
    initialise,
    scale_channels,
)

_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Table 2's t (expansion), c (channels), n (blocks), s (stride of the first block)."""


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
            # cast before the function: autocast does not reach its backward,
            # where input, filter and gradient have to be of one type
            kept, weight = input.to(torch.bfloat16), self.weight.to(torch.bfloat16)
            out: Tensor = StridedDepthwise.apply(kept, weight, top, left)  # type: ignore[no-untyped-call]
            return out
        return F.conv2d(
            input, _shifted(self.weight, top, left), self.bias, self.stride, 1, groups=self.groups
        )

    def _has_slow_gradients(self, input: Tensor) -> bool:
        if input.device.type != "cpu" or self.groups != self.in_channels or not torch.is_grad_enabled():
            return False
        # a layer of 96 channels on 112 × 112 (batch 32): 350 ms in bf16, 76 by stride 1; the network
        # learns at 61.6 pictures a second where PyTorch's has 42.8. In fp32 stride 1 loses, 125 to 104 ms
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
        # zeros stand for the outputs that stride 2 does not compute: nothing reads them, so their gradient is 0
        spread = torch.zeros_like(input)
        spread[:, :, top::2, left::2] = gradients[0]
        of_input, of_weight, _ = torch.ops.aten.convolution_backward(
            spread, input, weight, None, (1, 1), (1, 1), (1, 1), False, (0, 0), len(weight),
            # behind layers that are held fixed nobody asks for the input's gradient
            (*ctx.needs_input_grad[:2], False),
        )  # fmt: skip
        return of_input, of_weight, None, None


def _shifted(weight: Tensor, top: int, left: int) -> Tensor:
    """The filter behind a row or column of zeros, or as it is.

    Padding the picture on one side would copy it, a quarter of the network's time. Padding the filter does not:
    symmetric padding then puts its three rows where SAME wants them.
    """
    return F.pad(weight, (left, 0, top, 0)) if top or left else weight


class _Convolution(nn.Sequential):
    """Convolution, batch norm, ReLU6."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1, padding: Padding
    ) -> None:
        if stride == 2:
            convolution: nn.Conv2d = StridedConvolution(inputs, outputs, groups=groups, padding=padding)
        else:
            convolution = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, groups=groups, bias=False)
        super().__init__(convolution, nn.BatchNorm2d(outputs), nn.ReLU6(inplace=True))


class _InvertedResidual(nn.Module):
    """Table 1: expand by 1×1, filter each channel, project by a linear 1×1; add the identity if it fits."""

    def __init__(self, inputs: int, outputs: int, *, expansion: int, stride: int, padding: Padding) -> None:
        super().__init__()
        hidden = inputs * expansion
        layers: list[nn.Module] = []
        # the first block has t = 1, and torchvision's names have no expansion there either
        if expansion != 1:
            layers.append(_Convolution(inputs, hidden, 1, padding=padding))
        layers += [
            _Convolution(hidden, hidden, 3, stride=stride, groups=hidden, padding=padding),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        ]
        self.conv = nn.Sequential(*layers)
        self.has_identity = stride == 1 and inputs == outputs

    def forward(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch _channels _height _width"]:
        out: Tensor = self.conv(x)
        return x + out if self.has_identity else out


class MobileNetV2(ImageEncoder):
    """MobileNetV2; 1,280 channels in map and feature, and no fewer for a `width` below 1 (section 6.1).

    The feature map, of the last 1×1 convolution, has 1/32 of the picture's height and width, rounded up.
    `padding="same"` is for weights that were trained in TensorFlow; no parameter differs.
    """

    classifier_keys: ClassVar[tuple[str, ...]] = ("classifier.",)

    def __init__(
        self, *, width: float = 1.0, padding: Padding = "symmetric", normalisation: Normalisation = IMAGENET
    ) -> None:
        channels = scale_channels(1280, max(1.0, width))
        super().__init__(channels, channels, normalisation)
        inputs = scale_channels(32, width)
        layers: list[nn.Module] = [_Convolution(3, inputs, 3, stride=2, padding=padding)]
        for expansion, base, count, first_stride in _STAGES:
            outputs = scale_channels(base, width)
            for number in range(count):
                stride = first_stride if number == 0 else 1
                layers.append(
                    _InvertedResidual(inputs, outputs, expansion=expansion, stride=stride, padding=padding)
                )
                inputs = outputs
        # the last 1×1 convolution and its ReLU6 are in the map:
        # the pooled feature is what torchvision's classifier reads
        layers.append(_Convolution(inputs, channels, 1, padding=padding))
        self.features = nn.Sequential(*layers)
        initialise(self)

    def layers(self) -> list[Layer]:
        """The first convolution, the 17 blocks, and the last convolution as `features.0` to `features.18`."""
        return [(f"features.{number}", layer) for number, layer in enumerate(self.features)]
