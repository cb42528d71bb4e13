"""What a user says of an image backbone: which network, whose weights, how the pixels enter."""

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from limner.settings import Settings

BackboneName = Literal[
    "resnet-18",
    "resnet-34",
    "resnet-50",
    "resnet-101",
    "resnet-152",
    "vgg-16",
    "vgg-19",
    "googlenet",
    "mobilenet-v2",
    "auto",
]
"""The networks that `build_backbone` knows."""

WEIGHT_SUFFIXES = (".safetensors", ".pth", ".pt")
"""Kinds of weight file that are read; all three hold plain tensors only."""


class BackboneSettings(Settings):
    """An image backbone, its weights and its input. Contradictions are refused at construction."""

    name: BackboneName = "resnet-50"
    """Network: one of the papers' own, or "auto" for any that transformers.AutoBackbone knows."""

    weights: str | None = None
    """None = random, "imagenet" = torchvision's published file, else a .safetensors, .pth or .pt file."""

    width: float = Field(default=1.0, gt=0.0, le=4.0)
    """Factor on every channel count (rounded to multiples of 8); 1 is the published network."""

    padding: Literal["symmetric", "same"] = "symmetric"
    """Edges of MobileNetV2's stride-2 convolutions; "same" is for weights trained in TensorFlow."""

    normalise: Literal["imagenet", "tensorflow"] = "imagenet"
    """Pixels enter less ImageNet's mean over its deviation, or as (x - 128) / 128."""

    auto_model: str | None = None
    """Folder or hub name of the model when the name is "auto"; it brings weights and normalisation along."""

    last_stride: Literal[1, 2] = 2
    """Stride of ResNet's last stage; 1 doubles height and width of the feature map."""

    @field_validator("weights")
    @classmethod
    def _known_weights(cls, weights: str | None) -> str | None:
        if weights is None or weights == "imagenet" or Path(weights).suffix.lower() in WEIGHT_SUFFIXES:
            return weights
        raise ValueError(f"should be 'imagenet' or a file ending in {', '.join(WEIGHT_SUFFIXES)}")

    @model_validator(mode="after")
    def _no_contradiction(self) -> "BackboneSettings":
        if self.name == "auto":
            self._check_auto()
        elif self.auto_model is not None:
            raise ValueError(f"auto_model needs name='auto', not '{self.name}'")
        if self.padding == "same" and self.name != "mobilenet-v2":
            raise ValueError(f"padding='same' exists for mobilenet-v2 only, not for {self.name}")
        if self.last_stride == 1 and not self.name.startswith("resnet"):
            raise ValueError(f"last_stride=1 exists for the ResNets only, not for {self.name}")
        if self.weights == "imagenet":
            self._check_published()
        return self

    def _check_auto(self) -> None:
        if self.auto_model is None:
            raise ValueError("name='auto' needs auto_model, a folder or hub name")
        if self.weights is not None:
            raise ValueError("name='auto' takes its weights from auto_model; leave weights out")
        if self.width != 1.0:
            raise ValueError("width cannot change the network of auto_model; leave it at 1")
        if self.normalise != "imagenet":
            raise ValueError("name='auto' takes its normalisation from auto_model; leave normalise out")

    def _check_published(self) -> None:
        if self.width != 1.0:
            raise ValueError("weights='imagenet' exist for width 1 only")
        if self.padding != "symmetric" or self.normalise != "imagenet":
            raise ValueError("weights='imagenet' were trained with padding='symmetric', normalise='imagenet'")
