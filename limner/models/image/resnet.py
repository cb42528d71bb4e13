"""ResNet: He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition", CVPR 2016, Table 1."""

from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from limner.models.image.encoder import (
    IMAGENET,
    ImageEncoder,
    Layer,
    Normalisation,
    initialise,
    scale_channels,
)

ResNetDepth = Literal[18, 34, 50, 101, 152]


class _BasicBlock(nn.Module):
    """Two 3×3 convolutions beside the identity (Fig. 5 left)."""

    expansion = 1

    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        # no biases anywhere: the batch norm behind a convolution would subtract them again
        self.conv1 = nn.Conv2d(inputs, planes, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(inputs, planes, stride)

    def forward(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch _channels _height _width"]:
        shortcut = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        # in place on a fresh sum; the input is not touched, since the block before may still need it for its gradient
        return F.relu(out + shortcut, inplace=True)


class _Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions beside the identity (Fig. 5 right).

    The stride sits on the 3×3 convolution and not, as in the paper, on the first 1×1: so were
    torchvision's weights trained.
    """

    expansion = 4

    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        outputs = planes * self.expansion
        self.conv1 = nn.Conv2d(inputs, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        # the stride is here: on the 1×1 before, as the paper has it, three of four places would never be read
        self.conv2 = nn.Conv2d(planes, planes, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(inputs, outputs, stride)

    def forward(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch _channels _height _width"]:
        shortcut = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return F.relu(out + shortcut, inplace=True)


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    """The projection of Eq. 2 where the shape changes (option B), otherwise the identity."""
    if stride == 1 and inputs == outputs:
        # None and not nn.Identity: torchvision's blocks have no such module, and the names follow theirs
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


_LAYOUTS: dict[ResNetDepth, tuple[type[_BasicBlock] | type[_Bottleneck], tuple[int, int, int, int]]] = {
    18: (_BasicBlock, (2, 2, 2, 2)),
    34: (_BasicBlock, (3, 4, 6, 3)),
    50: (_Bottleneck, (3, 4, 6, 3)),
    101: (_Bottleneck, (3, 4, 23, 3)),
    152: (_Bottleneck, (3, 8, 36, 3)),
}


class ResNet(ImageEncoder):
    """ResNet-18, -34 (512 channels at width 1), -50, -101 and -152 (2,048).

    The feature map is conv5_x, 1/32 of the picture's height and width, or 1/16 with `last_stride` 1, which
    changes no parameter. `width` multiplies the planes of every stage.
    """

    classifier_keys: ClassVar[tuple[str, ...]] = ("fc.",)

    def __init__(
        self,
        depth: ResNetDepth,
        *,
        width: float = 1.0,
        last_stride: Literal[1, 2] = 2,
        normalisation: Normalisation = IMAGENET,
    ) -> None:
        block, counts = _LAYOUTS[depth]
        planes = [scale_channels(channels, width) for channels in (64, 128, 256, 512)]
        channels = planes[-1] * block.expansion
        super().__init__(channels, channels, normalisation)
        self.conv1 = nn.Conv2d(3, planes[0], 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(planes[0])
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        # conv2_x does not halve the map, since the max pool before it has (Table 1)
        inputs = planes[0]
        for stage, (width_here, count, stride) in enumerate(
            zip(planes, counts, (1, 2, 2, last_stride), strict=True), start=1
        ):
            outputs = width_here * block.expansion
            first = block(inputs, width_here, stride)
            others = [block(outputs, width_here, 1) for _ in range(count - 1)]
            # torchvision's names: weight files are loaded by them, and stages of training are divided by them
            self.add_module(f"layer{stage}", nn.Sequential(first, *others))
            inputs = outputs
        initialise(self)

    def layers(self) -> list[Layer]:
        """conv1, bn1, relu, maxpool and each block as `layer1.0`, `layer1.1` and so on."""
        names = ["conv1", "bn1", "relu", "maxpool"]
        # a layer for each block and not for each stage: training may
        # be divided within a stage, as Flickr8k's is in MobileNetV2
        for stage in range(1, 5):
            names += [
                f"layer{stage}.{name}" for name, _ in self.get_submodule(f"layer{stage}").named_children()
            ]
        return [(name, self.get_submodule(name)) for name in names]
