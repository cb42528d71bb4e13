"""open_clip's configurations and weights as those of transformers' CLIP.

Source: mlfoundations/open_clip, the layout of `open_clip_config.json` and the names of its state dicts. Only pairs of a
vision transformer and open_clip's own text transformer are taken; others of its models are refused by name.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from limner.durable import read_json
from limner.errors import CheckpointError
from limner.models.weight_files import read_state

CONFIG_FILE = "open_clip_config.json"
WEIGHT_FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")

_VISION = {"image_size", "layers", "width", "patch_size", "head_width", "mlp_ratio", "patch_dropout"}
_TEXT = {"context_length", "vocab_size", "width", "heads", "layers", "mlp_ratio"}
"""The settings that are understood; `patch_dropout` acts in training alone."""

_NAMES = {
    "visual.class_embedding": "vision_model.embeddings.class_embedding",
    "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
    "visual.conv1.weight": "vision_model.embeddings.patch_embedding.weight",
    "visual.proj": "visual_projection.weight",
    "positional_embedding": "text_model.embeddings.position_embedding.weight",
    "token_embedding.weight": "text_model.embeddings.token_embedding.weight",
    "text_projection": "text_projection.weight",
    "logit_scale": "logit_scale",
}
_BEGINNINGS = {
    "visual.ln_pre.": "vision_model.pre_layrnorm.",
    "visual.ln_post.": "vision_model.post_layernorm.",
    "visual.transformer.resblocks.": "vision_model.encoder.layers.",
    "ln_final.": "text_model.final_layer_norm.",
    "transformer.resblocks.": "text_model.encoder.layers.",
}
_IN_LAYERS = {
    "ln_1.": "layer_norm1.",
    "ln_2.": "layer_norm2.",
    "mlp.c_fc.": "mlp.fc1.",
    "mlp.c_proj.": "mlp.fc2.",
    "attn.out_proj.": "self_attn.out_proj.",
}


def read_description(path: Path | None, source: str) -> dict[str, Any] | None:
    """The content of `open_clip_config.json`; None without one, and where transformers' own config.json is beside it.

    Raises `CheckpointError` for a damaged file.
    """
    if path is None or (path.parent / "config.json").is_file():
        return None
    try:
        content: Any = read_json(path)
        content["model_cfg"]["vision_cfg"], content["model_cfg"]["text_cfg"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"model '{source}': its {CONFIG_FILE} cannot be used ({type(error).__name__}: {error}); fetch it again"
        ) from None
    found: dict[str, Any] = content
    return found


def to_config(description: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The values of transformers' `CLIPConfig`. Raises `CheckpointError` for a model that is no plain CLIP."""
    model = description["model_cfg"]
    vision, text = model["vision_cfg"], model["text_cfg"]
    unknown = sorted({*vision} - _VISION) + sorted({*text} - _TEXT)
    if unknown or isinstance(vision.get("layers"), list):
        what = f"'{unknown[0]}'" if unknown else "a ResNet"
        raise CheckpointError(
            f"model '{source}': open_clip models with {what} are not read; take a plain ViT of open_clip, or a copy "
            "of the model for transformers"
        )
    # models that OpenAI trained, and the "-quickgelu" ones, have another activation: embeddings are far off without
    activation = "quick_gelu" if model.get("quick_gelu", False) else "gelu"
    width, patch = int(vision["width"]), int(vision["patch_size"])
    vocabulary, length = int(text.get("vocab_size", 49408)), int(text.get("context_length", 77))
    return {
        "projection_dim": int(model["embed_dim"]),
        "vision_config": {
            "hidden_size": width,
            "intermediate_size": int(width * vision.get("mlp_ratio", 4)),
            "num_hidden_layers": int(vision["layers"]),
            "num_attention_heads": width // int(vision.get("head_width", 64)),
            "image_size": int(vision["image_size"]),
            "patch_size": patch,
            "hidden_act": activation,
            "projection_dim": int(model["embed_dim"]),
        },
        "text_config": {
            "hidden_size": int(text.get("width", 512)),
            "intermediate_size": int(text.get("width", 512) * text.get("mlp_ratio", 4)),
            "num_hidden_layers": int(text.get("layers", 12)),
            "num_attention_heads": int(text.get("heads", 8)),
            "max_position_embeddings": length,
            "vocab_size": vocabulary,
            "hidden_act": activation,
            "projection_dim": int(model["embed_dim"]),
            # 2 tells transformers to pool at the highest id, as open_clip does, whatever the end's own id is
            "eos_token_id": 2,
            "bos_token_id": 0,
            "pad_token_id": 0,
        },
    }


def read_weights(path: Path) -> dict[str, Tensor]:
    """A state dict of open_clip under the names of transformers' `CLIPModel`."""
    found: dict[str, Tensor] = {}
    for name, value in read_state(path).items():
        # the text tower of "custom text" models has a prefix; a mask is no weight
        plain = name.removeprefix("text.")
        if plain != "attn_mask":
            found.update(_renamed(plain, value.float()))
    return found


def _renamed(name: str, value: Tensor) -> Iterator[tuple[str, Tensor]]:
    if name in _NAMES:
        # open_clip multiplies by the matrix, nn.Linear by its transpose
        yield _NAMES[name], value.T.contiguous() if name in ("visual.proj", "text_projection") else value
        return
    for beginning, ours in _BEGINNINGS.items():
        if not name.startswith(beginning):
            continue
        number, _, within = name.removeprefix(beginning).partition(".")
        if not beginning.endswith("resblocks."):
            yield ours + name.removeprefix(beginning), value
        elif fused := re.fullmatch(r"attn\.in_proj_(weight|bias)", within):
            # queries, keys and values lie in one matrix
            for part, rows in zip("qkv", value.chunk(3), strict=True):
                yield f"{ours}{number}.self_attn.{part}_proj.{fused[1]}", rows.contiguous()
        else:
            for theirs, name_within in _IN_LAYERS.items():
                within = within.replace(theirs, name_within)
            yield f"{ours}{number}.{within}", value
        return
    yield name, value


def load_into(model: nn.Module, state: Mapping[str, Tensor], source: str) -> None:
    """Fill a `CLIPModel`. Raises `CheckpointError` naming the first tensor that is missing, unknown or misshapen."""
    expected = model.state_dict()
    for name, tensor in expected.items():
        if name not in state:
            raise CheckpointError(f"model '{source}': its weights lack '{name}'; fetch the model again")
        if state[name].shape != tensor.shape:
            raise CheckpointError(
                f"model '{source}': its weights do not fit {CONFIG_FILE}: '{name}' has shape "
                f"{tuple(state[name].shape)}, expected {tuple(tensor.shape)}; fetch the model again"
            )
    if unknown := sorted(set(state) - set(expected)):
        raise CheckpointError(f"model '{source}': its weights hold '{unknown[0]}', which no plain CLIP has")
    with torch.no_grad():
        model.load_state_dict(dict(state))


def to_preprocessing(description: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The values of a preprocessor_config.json that prepares images as open_clip does. Raises `CheckpointError`."""
    chosen = description.get("preprocess_cfg") or {}
    side = int(description["model_cfg"]["vision_cfg"]["image_size"])
    mode = chosen.get("resize_mode", "shortest")
    if mode not in ("shortest", "squash"):
        raise CheckpointError(f"model '{source}': its resize_mode '{mode}' is not known; take another model")
    squash = mode == "squash"
    return {
        "size": {"height": side, "width": side} if squash else {"shortest_edge": side},
        "do_center_crop": not squash,
        "crop_size": {"height": side, "width": side},
        "resample": {"bilinear": 2, "bicubic": 3}.get(chosen.get("interpolation", "bicubic"), 3),
        # OpenAI's values, which open_clip takes where the file has none
        "image_mean": chosen.get("mean", [0.48145466, 0.4578275, 0.40821073]),
        "image_std": chosen.get("std", [0.26862954, 0.26130258, 0.27577711]),
    }
