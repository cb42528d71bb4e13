"""Any image backbone of the transformers library, from a local folder or the hub."""

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from limner.errors import CheckpointError, install_hint
from limner.models.image.encoder import IMAGENET, ImageEncoder, Layer, Normalisation

_MAY_BE_MISSING = "hidden_states_norms."
"""Layer norms that transformers puts behind a backbone's stages.

Classifier checkpoints do not have them, and a fresh one only normalises.
"""

# without these, checkpoints of one network are equal on all machines, and tell nobody the folders of one
_OF_A_MACHINE = ("_name_or_path", "transformers_version")


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


def load_auto(model: str, *, load_weights: bool = True) -> AutoEncoder:
    """The backbone `model`, a folder or a hub name, with its weights and its own pixel normalisation.

    Without `load_weights` only the configuration is read and the values are random. The normalisation comes
    from preprocessor_config.json, and is ImageNet's without that file. Raises `CheckpointError` when
    transformers is not installed, the model cannot be had, is no backbone, or lacks weights.
    """
    transformers = _transformers()
    # transformers lets through what its own libraries raise: OSError, ValueError, KeyError, SafetensorError …
    try:
        config = transformers.AutoConfig.from_pretrained(model)
    except Exception as error:
        raise _unusable(model, "its config.json cannot be read", error) from error
    mapping = transformers.MODEL_FOR_BACKBONE_MAPPING
    # timm_backbone is in the mapping as well, but is a wrapper that needs another library
    if config.model_type == "timm_backbone" or type(config) not in mapping:
        raise CheckpointError(
            f"auto_model '{model}': '{config.model_type}' is not a backbone of transformers itself; "
            "choose one that AutoBackbone's documentation lists, e.g. a resnet, convnext, swin or dinov2"
        )
    # AutoBackbone.from_pretrained (5.23) asks the hub even about a local folder, and fails there.
    backbone_class = mapping[type(config)]
    backbone = _with_weights(backbone_class, config, model) if load_weights else backbone_class(config)
    return AutoEncoder(backbone, _normalisation(transformers, model))


def portable(config: Any) -> dict[str, Any]:
    """A configuration of transformers without the folder it came from and the version of the library."""
    values: dict[str, Any] = config.to_dict()
    return {name: value for name, value in values.items() if name not in _OF_A_MACHINE}


def _transformers() -> ModuleType:
    try:
        # imported here, since transformers is an optional extra and no other backbone needs it
        return importlib.import_module("transformers")
    except ImportError as error:
        raise CheckpointError(
            f"name='auto' needs the transformers library; install it with: {install_hint('transformers')}"
        ) from error


def _with_weights(backbone_class: Any, config: Any, model: str) -> nn.Module:
    try:
        backbone, report = backbone_class.from_pretrained(model, config=config, output_loading_info=True)
    except Exception as error:
        raise _unusable(model, "its weights cannot be read", error) from error
    # transformers fills what a file lacks with random values and only logs it.
    missing = sorted(key for key in report["missing_keys"] if not key.startswith(_MAY_BE_MISSING))
    misshapen = sorted(str(entry[0]) for entry in report["mismatched_keys"])
    if missing or misshapen:
        what = f"'{missing[0]}' is missing" if missing else f"'{misshapen[0]}' has another shape"
        raise CheckpointError(
            f"auto_model '{model}': its weights do not fit its config.json: {what}; fetch the model again"
        )
    network: nn.Module = backbone
    return network


def _normalisation(transformers: Any, model: str) -> Normalisation:
    """`(x · rescale_factor - image_mean) / image_std`, said in pixels of 0..255."""
    try:
        # cached_file raises for a missing file otherwise; a model without one gets ImageNet's values
        path = transformers.utils.cached_file(
            model, "preprocessor_config.json", _raise_exceptions_for_missing_entries=False
        )
        if path is None:
            return IMAGENET
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        factor = float(values.get("rescale_factor", 1 / 255)) if values.get("do_rescale", True) else 1.0
        standardised = values.get("do_normalize", True) and "image_mean" in values
        mean = [float(value) for value in values["image_mean"]] if standardised else [0.0] * 3
        std = [float(value) for value in values["image_std"]] if standardised else [1.0] * 3
        # (f·x − m) / s = (x − m/f) / (s/f)
        red, green, blue = (value / factor for value in mean)
        red_std, green_std, blue_std = (value / factor for value in std)
    except Exception as error:
        raise _unusable(model, "its preprocessor_config.json cannot be used", error) from error
    return Normalisation(mean=(red, green, blue), std=(red_std, green_std, blue_std))


def _unusable(model: str, what: str, error: Exception) -> CheckpointError:
    lines = str(error).strip().splitlines()
    reason = lines[0] if lines else type(error).__name__
    return CheckpointError(
        f"auto_model '{model}': {what} ({reason}); give a folder with config.json and model.safetensors, "
        "or a hub name while there is a network"
    )
