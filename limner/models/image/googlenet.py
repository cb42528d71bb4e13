"""GoogLeNet: Szegedy et al., "Going Deeper with Convolutions", CVPR 2015, in torchvision's form."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from limner.models.image.encoder import ImageEncoder, Layer, Normalisation, initialise, scale_channels

TRANSFORMED_INPUT = Normalisation(mean=(127.5, 127.5, 127.5), std=(127.5, 127.5, 127.5))
"""Input of torchvision's weights.

Its `transform_input` takes the ImageNet normalisation back and applies (x/255 - 0.5) / 0.5 instead, since the
weights come from TensorFlow; both steps together are x / 127.5 - 1.
"""

_BLOCKS: tuple[tuple[str, tuple[int, int, int, int, int, int]], ...] = (
    ("inception3a", (64, 96, 128, 16, 32, 32)),
    ("inception3b", (128, 128, 192, 32, 96, 64)),
    ("inception4a", (192, 96, 208, 16, 48, 64)),
    ("inception4b", (160, 112, 224, 24, 64, 64)),
    ("inception4c", (128, 128, 256, 24, 64, 64)),
    ("inception4d", (112, 144, 288, 32, 64, 64)),
    ("inception4e", (256, 160, 320, 32, 128, 128)),
    ("inception5a", (256, 160, 320, 32, 128, 128)),
    ("inception5b", (384, 192, 384, 48, 128, 128)),
)
"""Table 1's columns: #1×1, #3×3 reduce, #3×3, #5×5 reduce, #5×5, pool proj."""


class _Convolution(nn.Module):
    """Convolution, batch norm (not in the paper; eps as TensorFlow's), ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=0.001)
        self.relu = nn.ReLU(inplace=True)

    def forward(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch _channels _height _width"]:
        out: Tensor = self.relu(self.bn(self.conv(x)))
        return out


class _Inception(nn.Module):
    """Fig. 2(b): four branches, joined by channel.

    The third branch has 3×3 filters where the paper has 5×5: the published weights do.
    """

    def __init__(self, inputs: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        ones, threes_reduce, threes, fives_reduce, fives, pooled = widths
        self.branch1 = _Convolution(inputs, ones, 1)
        self.branch2 = nn.Sequential(
            _Convolution(inputs, threes_reduce, 1), _Convolution(threes_reduce, threes, 3)
        )
        self.branch3 = nn.Sequential(
            _Convolution(inputs, fives_reduce, 1), _Convolution(fives_reduce, fives, 3)
        )
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), _Convolution(inputs, pooled, 1))
        self.outputs = ones + threes + fives + pooled

    def forward(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch {self.outputs} height width"]:
        # the order of the branches is the order of channels that the next block's weights expect
        return torch.cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], dim=1)


class GoogLeNet(ImageEncoder):
    """Inception v1 with batch norm, without the auxiliary classifiers; 1,024 channels in map and feature.

    The feature map is inception (5b), 1/32 of the picture's height and width, rounded up.
    """

    # the auxiliary classifiers served the training on ImageNet alone
    classifier_keys: ClassVar[tuple[str, ...]] = ("fc.", "aux1.", "aux2.")

    def __init__(self, *, width: float = 1.0, normalisation: Normalisation = TRANSFORMED_INPUT) -> None:
        blocks = [(name, tuple(scale_channels(n, width) for n in widths)) for name, widths in _BLOCKS]
        last = blocks[-1][1]
        # places 1 and 3 are the reductions within a branch, which do not come out of it
        channels = last[0] + last[2] + last[4] + last[5]
        super().__init__(channels, channels, normalisation)
        stem, before = scale_channels(64, width), scale_channels(192, width)
        self.conv1 = _Convolution(3, stem, 7, stride=2)
        self.conv2 = _Convolution(stem, stem, 1)
        self.conv3 = _Convolution(stem, before, 3)
        # Rounded up as in Caffe: 224 pixels give 56, 28, 14 and 7 with pools that have no padding.
        # one module for all pools of 3 × 3: it has no weights, so no name in a weight file is lost
        self.maxpool = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.maxpool4 = nn.MaxPool2d(2, stride=2, ceil_mode=True)
        inputs = before
        for name, widths in blocks:
            block = _Inception(inputs, widths)
            self.add_module(name, block)
            inputs = block.outputs
        initialise(self)

    def layers(self) -> list[Layer]:
        """conv1 to conv3 and inception3a to inception5b, with the pools between them."""
        names = ["conv1", "maxpool", "conv2", "conv3", "maxpool"]
        # behind 4e torchvision pools by 2 × 2, where Table 1 of the paper has 3 × 3; so were the weights trained
        pools = {"inception3b": ["maxpool"], "inception4e": ["maxpool4"]}
        for name, _ in _BLOCKS:
            names += [name, *pools.get(name, [])]
        return [(name, self.get_submodule(name)) for name in names]
