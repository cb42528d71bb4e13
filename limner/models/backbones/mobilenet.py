"""MobileNetV2: Sandler et al., "Inverted Residuals and Linear Bottlenecks", CVPR 2018, Tables 1 and 2."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from limner.models.backbones.encoder import (
    IMAGENET,
    ImageEncoder,
    Layer,
    Normalisation,
    initialise,
    scale_channels,
)
from limner.models.backbones.strided import Padding, StridedConvolution

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
        layers.append(_Convolution(inputs, channels, 1, padding=padding))
        self.features = nn.Sequential(*layers)
        initialise(self)

    def layers(self) -> list[Layer]:
        """The first convolution, the 17 blocks, and the last convolution as `features.0` to `features.18`."""
        return [(f"features.{number}", layer) for number, layer in enumerate(self.features)]
