"""Image backbones: the papers' own networks with torchvision's weight names, and any of transformers."""

from limner.models.backbones.auto import AutoEncoder, load_auto
from limner.models.backbones.build import build_backbone
from limner.models.backbones.encoder import IMAGENET, LAST_MAP, TENSORFLOW, ImageEncoder, Normalisation
from limner.models.backbones.fold import folded
from limner.models.backbones.googlenet import GoogLeNet
from limner.models.backbones.mobilenet import MobileNetV2
from limner.models.backbones.resnet import ResNet
from limner.models.backbones.settings import BackboneName, BackboneSettings
from limner.models.backbones.vgg import VGG
from limner.models.backbones.weights import load_state, published_state, read_state

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
    "MobileNetV2",
    "Normalisation",
    "ResNet",
    "build_backbone",
    "folded",
    "load_auto",
    "load_state",
    "published_state",
    "read_state",
]
