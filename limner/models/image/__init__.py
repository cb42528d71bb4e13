"""Image backbones: the papers' own networks with torchvision's weight names, and any of transformers."""

from limner.models.image.auto import AutoEncoder, load_auto
from limner.models.image.build import BackboneName, BackboneSettings, build_backbone
from limner.models.image.encoder import (
    IMAGENET,
    LAST_MAP,
    TENSORFLOW,
    ImageEncoder,
    Layer,
    Normalisation,
    folded,
)
from limner.models.image.googlenet import GoogLeNet
from limner.models.image.mobilenet import MobileNetV2
from limner.models.image.resnet import ResNet
from limner.models.image.vgg import VGG
from limner.models.image.weights import load_state, published_state

__all__ = [
    "IMAGENET",
    "LAST_MAP",
    "TENSORFLOW",
    "VGG",
    "AutoEncoder",
    "BackboneName",
    "BackboneSettings",
    "GoogLeNet",
    "ImageEncoder",
    "Layer",
    "MobileNetV2",
    "Normalisation",
    "ResNet",
    "build_backbone",
    "folded",
    "load_auto",
    "load_state",
    "published_state",
]
