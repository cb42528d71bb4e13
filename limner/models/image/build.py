"""Settings of an image backbone, and the network that they describe, with its weights."""

from pathlib import Path
from typing import Any, Literal, cast

from pydantic import Field, field_validator, model_validator

from limner.errors import SettingsError
from limner.models.image.auto import load_auto
from limner.models.image.encoder import IMAGENET, TENSORFLOW, ImageEncoder
from limner.models.image.googlenet import TRANSFORMED_INPUT, GoogLeNet
from limner.models.image.mobilenet import MobileNetV2
from limner.models.image.resnet import ResNet, ResNetDepth
from limner.models.image.vgg import VGG, VGGDepth
from limner.models.image.weights import load_state, published_state
from limner.models.weight_files import read_state
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

    # both give maps of one size and take the same weights, so a
    # wrong choice moves every sample by a pixel without a word
    padding: Literal["symmetric", "same"] = "symmetric"
    """Edges of MobileNetV2's stride-2 convolutions; "same" is for weights trained in TensorFlow."""

    normalise: Literal["imagenet", "tensorflow"] = "imagenet"
    """Pixels enter less ImageNet's mean over its deviation, or as (x - 128) / 128."""

    auto_model: str | None = None
    """Folder or hub name of the model when the name is "auto"; it brings weights and normalisation along."""

    # 1 is for HGAN, whose Table 4 needs 16 × 8 places: 384 × 192 pixels give 12 × 6 with a stride of 2. For dual-path
    # on generated people it moves R@1 from 59.0 to 64.8 image→text and from 57.8 to 56.7 text→image (one seed)
    last_stride: Literal[1, 2] = 2
    """Stride of ResNet's last stage; 1 doubles height and width of the feature map."""

    @field_validator("weights")
    @classmethod
    def _known_weights(cls, weights: str | None) -> str | None:
        # the name alone: a trained model keeps its settings when the file that it began with is gone
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

    def identity(self) -> dict[str, Any]:
        """The settings as plain values without where weights came from."""
        return {**self.model_dump(mode="json"), "weights": None, "auto_model": None}

    def _check_auto(self) -> None:
        if self.auto_model is None:
            raise ValueError("name='auto' needs auto_model, a folder or hub name")
        if self.weights is not None:
            raise ValueError("name='auto' takes its weights from auto_model; leave weights out")
        # transformers' configuration has the widths, so the factor would act on nothing
        if self.width != 1.0:
            raise ValueError("width cannot change the network of auto_model; leave it at 1")
        if self.normalise != "imagenet":
            raise ValueError("name='auto' takes its normalisation from auto_model; leave normalise out")

    def _check_published(self) -> None:
        if self.width != 1.0:
            raise ValueError("weights='imagenet' exist for width 1 only")
        if self.padding != "symmetric" or self.normalise != "imagenet":
            raise ValueError("weights='imagenet' were trained with padding='symmetric', normalise='imagenet'")


def build_backbone(settings: BackboneSettings, *, load_weights: bool = True) -> ImageEncoder:
    """The backbone that `settings` describe, in training mode, not frozen.

    `load_weights=False` leaves random values and reads no weight file: for a trained model whose own
    checkpoint is loaded next. Random values depend on `torch.manual_seed` alone. Raises `CheckpointError`
    when the weights are missing, damaged or of another network.
    """
    if settings.name == "auto":
        if settings.auto_model is None:
            # refused by the settings already; here for the type checker and for settings made without validation
            raise SettingsError("name='auto' needs auto_model, a folder or hub name")
        return load_auto(settings.auto_model, load_weights=load_weights)
    encoder = _network(settings)
    # random values are drawn even if a file follows: what is built next draws the same with weights and without
    if settings.weights is not None and load_weights:
        published = settings.weights == "imagenet"
        state = published_state(settings.name) if published else read_state(settings.weights)
        load_state(encoder, state, source=settings.weights)
    return encoder


def _network(settings: BackboneSettings) -> ImageEncoder:
    width = settings.width
    normalisation = {"imagenet": IMAGENET, "tensorflow": TENSORFLOW}[settings.normalise]
    family, _, depth = settings.name.partition("-")
    if family == "resnet":
        return ResNet(
            cast(ResNetDepth, int(depth)),
            width=width,
            last_stride=settings.last_stride,
            normalisation=normalisation,
        )
    if family == "vgg":
        return VGG(cast(VGGDepth, int(depth)), width=width, normalisation=normalisation)
    if family == "googlenet":
        # torchvision's GoogLeNet takes ImageNet's normalisation back within, so "imagenet" stands for both steps here
        input_normalisation = TRANSFORMED_INPUT if settings.normalise == "imagenet" else normalisation
        return GoogLeNet(width=width, normalisation=input_normalisation)
    return MobileNetV2(width=width, padding=settings.padding, normalisation=normalisation)
