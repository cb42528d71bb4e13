"""From settings to a network with its weights."""

from typing import cast

from limner.errors import SettingsError
from limner.models.backbones.auto import load_auto
from limner.models.backbones.encoder import IMAGENET, TENSORFLOW, ImageEncoder
from limner.models.backbones.googlenet import TRANSFORMED_INPUT, GoogLeNet
from limner.models.backbones.mobilenet import MobileNetV2
from limner.models.backbones.resnet import ResNet, ResNetDepth
from limner.models.backbones.settings import BackboneSettings
from limner.models.backbones.vgg import VGG, VGGDepth
from limner.models.backbones.weights import load_state, published_state, read_state


def build_backbone(settings: BackboneSettings, *, load_weights: bool = True) -> ImageEncoder:
    """The backbone that `settings` describe, in training mode, not frozen.

    `load_weights=False` leaves random values and reads no weight file: for a trained model whose own
    checkpoint is loaded next. Random values depend on `torch.manual_seed` alone. Raises `CheckpointError`
    when the weights are missing, damaged or of another network.
    """
    if settings.name == "auto":
        if settings.auto_model is None:
            raise SettingsError("name='auto' needs auto_model, a folder or hub name")
        return load_auto(settings.auto_model, load_weights=load_weights)
    encoder = _network(settings)
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
        own = TRANSFORMED_INPUT if settings.normalise == "imagenet" else normalisation
        return GoogLeNet(width=width, normalisation=own)
    return MobileNetV2(width=width, padding=settings.padding, normalisation=normalisation)
