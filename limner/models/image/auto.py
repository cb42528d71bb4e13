"""Any image backbone of the transformers library, from a local folder or the hub."""

from typing import Any

from torch import nn

from limner.errors import CheckpointError
from limner.models.image.encoder import IMAGENET, ImageEncoder, Layer, Normalisation
from limner.models.image.preprocessing import read_normalisation
from limner.models.image.tower import ImageTower
from limner.models.pretrained_source import (
    empty,
    expect_buildable,
    is_pair,
    portable,
    read_config,
    read_half,
    read_weights,
    transformers_library,
    unusable,
)
from limner.models.weight_files import expect_finite

_MAY_BE_MISSING = "hidden_states_norms."
"""Layer norms that transformers puts behind a backbone's stages.

Classifier checkpoints do not have them, and a fresh one only normalises.
"""

_VISION_MODELS = ("vit", "clip_vision_model", "siglip_vision_model", "siglip2_vision_model")
"""Vision transformers that are no backbones of transformers; others of their kind are."""


class AutoEncoder(ImageEncoder):
    """A transformers backbone; the feature is the mean over its last feature map.

    Build one with `load_auto`. Raises `CheckpointError` when the backbone takes other than three colours.
    """

    def __init__(self, backbone: nn.Module, normalisation: Normalisation = IMAGENET) -> None:
        config: Any = backbone.config
        colours = getattr(config, "num_channels", 3)
        if colours != 3:
            raise CheckpointError(
                f"auto_model: expected a network for RGB pictures, got {colours} channels; choose another"
            )
        widths: Any = backbone.channels
        # a width for each map in `out_features`; only the last map is read
        channels = int(widths[-1])
        super().__init__(channels, channels, normalisation)
        self.backbone = backbone

    def files(self) -> dict[str, dict[str, Any]]:
        """By file name, what a folder must hold for `load_auto` to build the same network without its weights."""
        return {
            "config.json": portable(self.backbone.config),
            "preprocessor_config.json": {
                # mean and deviation are of pixels in 0 … 255 already
                "do_rescale": False,
                "do_normalize": True,
                "image_mean": self.pixel_mean.flatten().tolist(),
                "image_std": self.pixel_std.flatten().tolist(),
            },
        }

    def layers(self) -> list[Layer]:
        """The whole network as one layer: up to the last map that its configuration names in `out_features`."""
        return [("backbone", lambda images: self.backbone(images).feature_maps[-1])]


def load_auto(model: str, *, load_weights: bool = True) -> AutoEncoder | ImageTower:
    """The backbone `model`, a folder or a hub name, with its weights and its own pixel normalisation.

    It is one of transformers' backbones, a vision transformer, or the image tower of a pair such as CLIP. Without
    `load_weights` only the configuration is read and the values are random. The normalisation comes
    from preprocessor_config.json, and is ImageNet's without that file. Raises `CheckpointError` when
    transformers is not installed, the model cannot be had, is none of these, or lacks weights.
    """
    transformers = transformers_library("name='auto'")
    config = read_config(model)
    normalisation = read_normalisation(model)
    if is_pair(config):
        half = read_half(model, "image", load_weights=load_weights)
        return ImageTower(half.tower, config, normalisation, pooled=True, projection=half.projection)
    if config.model_type in _VISION_MODELS:
        # the mean over the patches is the feature, so a pooler or pooling head above them would never learn
        config.vision_use_head = False
        tower = (
            read_weights(model, config, add_pooling_layer=False)
            if load_weights
            else empty(config, add_pooling_layer=False)
        )
        return ImageTower(tower, config, normalisation, pooled=False)
    mapping = transformers.MODEL_FOR_BACKBONE_MAPPING
    # timm_backbone is in the mapping as well, but is a wrapper that needs another library
    if config.model_type == "timm_backbone" or type(config) not in mapping:
        raise CheckpointError(
            f"auto_model '{model}': '{config.model_type}' is not a backbone of transformers itself; "
            "choose one that AutoBackbone's documentation lists, e.g. a resnet, convnext, swin or dinov2, a vision "
            "transformer, or a pair such as clip or siglip"
        )
    # AutoBackbone.from_pretrained (5.23) asks the hub even about a local folder, and fails there.
    backbone_class = mapping[type(config)]
    backbone = _with_weights(backbone_class, config, model) if load_weights else backbone_class(config)
    return AutoEncoder(backbone, normalisation)


def _with_weights(backbone_class: Any, config: Any, model: str) -> nn.Module:
    expect_buildable(model, backbone_class, config)
    try:
        backbone, report = backbone_class.from_pretrained(model, config=config, output_loading_info=True)
    except Exception as error:
        raise unusable(model, "its weights cannot be read", error) from error
    # transformers fills what a file lacks with random values and only logs it.
    missing = sorted(key for key in report["missing_keys"] if not key.startswith(_MAY_BE_MISSING))
    misshapen = sorted(str(entry[0]) for entry in report["mismatched_keys"])
    if missing or misshapen:
        what = f"'{missing[0]}' is missing" if missing else f"'{misshapen[0]}' has another shape"
        raise CheckpointError(
            f"auto_model '{model}': its weights do not fit its config.json: {what}; fetch the model again"
        )
    network: nn.Module = backbone
    expect_finite(network.state_dict(), model)
    return network
