"""VGG: Simonyan and Zisserman, "Very Deep Convolutional Networks", ICLR 2015, Table 1, columns D and E."""

from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor, nn

from limner.models.image.encoder import (
    IMAGENET,
    ImageEncoder,
    Layer,
    Normalisation,
    initialise,
    scale_channels,
)

VGGDepth = Literal[16, 19]

_STAGES: dict[VGGDepth, tuple[int, ...]] = {16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
_GRID = 7
"""Side of the pool5 map that fc6 is made for: that of a picture of 224 × 224."""


class VGG(ImageEncoder):
    """VGG-16 and VGG-19 without batch norm; the pooled feature is fc7 (4,096), the map is pool5 (512).

    pool5 has 1/32 of the picture's height and width.

    fc7 is taken after its ReLU and dropout (0.5, in training only). fc6 needs a map of 7×7, so `pool` brings
    others to that by adaptive average pooling, as torchvision does; at 224 × 224 this changes nothing.
    """

    classifier_keys: ClassVar[tuple[str, ...]] = ("classifier.6.",)

    def __init__(
        self, depth: VGGDepth, *, width: float = 1.0, normalisation: Normalisation = IMAGENET
    ) -> None:
        stages = [scale_channels(channels, width) for channels in (64, 128, 256, 512, 512)]
        hidden = scale_channels(4096, width)
        super().__init__(hidden, stages[-1], normalisation)
        layers: list[nn.Module] = []
        inputs = 3
        for outputs, count in zip(stages, _STAGES[depth], strict=True):
            for _ in range(count):
                # with biases, since no batch norm follows
                layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True)]
                inputs = outputs
            layers.append(nn.MaxPool2d(2, stride=2))
        self.features = nn.Sequential(*layers)
        # fc6 is made for 7 × 7 places; a person of 384 × 192 pixels comes here as 12 × 6
        self.avgpool = nn.AdaptiveAvgPool2d(_GRID)
        self.classifier = nn.Sequential(
            # fc6 alone is 103 of VGG-16's 134 million weights
            nn.Linear(stages[-1] * _GRID * _GRID, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
        )
        initialise(self)

    def layers(self) -> list[Layer]:
        """Convolutions, ReLUs and pools up to pool5 as `features.0` and so on."""
        return [(f"features.{number}", layer) for number, layer in enumerate(self.features)]

    def drop_head(self) -> "VGG":
        """Remove fc6 and fc7, nine tenths of the parameters."""
        del self.classifier
        return self

    def pool(
        self, feature_map: Float[Tensor, "batch {self.map_channels} height width"]
    ) -> Float[Tensor, "batch {self.channels}"]:
        """The output of fc7."""
        # flatten counts rows before columns whatever the memory order, as the published fc6 expects.
        feature: Tensor = self.classifier(self.avgpool(feature_map).flatten(1))
        return feature
