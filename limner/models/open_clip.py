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

_MODEL = {"embed_dim", "vision_cfg", "text_cfg", "quick_gelu", "custom_text", "cast_dtype", "output_dict"} | {
    *("init_logit_scale", "init_logit_bias", "nonscalar_logit_scale")
}
_VISION = {"image_size", "layers", "width", "patch_size", "head_width", "mlp_ratio", "patch_dropout"} | {
    *("output_tokens", "attn_pooler_queries", "attn_pooler_heads", "timm_pool", "timm_proj")
}
_TEXT = {"context_length", "vocab_size", "width", "heads", "layers", "mlp_ratio"} | {
    *("hf_tokenizer_name", "output_tokens", "pad_id")
}
"""The settings that are understood, or change no embedding: dropping patches acts in training alone, a bias and the
scale order nothing, a pooler's settings need `attentional_pool`, those of timm the name of a model. The tokenizer is
that of the folder, whatever its name was."""

_PLAIN = {"pool_type": ("tok", "argmax"), "pos_embed_type": ("learnable",), "proj_type": ("linear",)} | {
    "text_arch": ("clip",),
    "block_type": ("default",),
    "in_chans": (3,),
}
"""Values of some others by which the network is the one that is read, as all are by false, null or nothing."""

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
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"model '{source}': its {CONFIG_FILE} cannot be used ({error}); fetch it again"
        ) from None
    model = content.get("model_cfg") if isinstance(content, dict) else None
    parts = [
        model,
        *(model.get(name) if isinstance(model, dict) else None for name in ("vision_cfg", "text_cfg")),
    ]
    if not all(isinstance(part, dict) for part in parts) or not isinstance(
        content.get("preprocess_cfg") or {}, dict
    ):
        raise CheckpointError(
            f"model '{source}': its {CONFIG_FILE} describes no pair (model_cfg with vision_cfg and text_cfg); other "
            "models of open_clip are not read"
        )
    found: dict[str, Any] = content
    return found


def to_config(description: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The values of transformers' `CLIPConfig`. Raises `CheckpointError` for a model that is no plain CLIP."""
    model = description["model_cfg"]
    vision, text = model["vision_cfg"], model["text_cfg"]
    unknown = [
        name
        for values, known in ((model, _MODEL), (vision, _VISION), (text, _TEXT))
        # another library's model is told first, by its name
        for name in sorted({*values} - known, key=lambda name: (not name.endswith("model_name"), name))
        # open_clip writes what it takes without it, too
        if values[name] and values[name] not in _PLAIN.get(name, ())
    ]
    if unknown or isinstance(vision.get("layers"), list):
        what = f"'{unknown[0]}'" if unknown else "a ResNet"
        raise CheckpointError(
            f"model '{source}': open_clip models with {what} are not read; take a plain ViT of open_clip, or a copy "
            "of the model for transformers"
        )
    # models that OpenAI trained, and the "-quickgelu" ones, have another activation: embeddings are far off without
    activation = "quick_gelu" if model.get("quick_gelu", False) else "gelu"
    try:
        # the defaults are open_clip's
        width, text_width = vision.get("width", 768), text.get("width", 512)
        vision_inside, text_inside = (
            int(width * vision.get("mlp_ratio", 4)),
            int(text_width * text.get("mlp_ratio", 4)),
        )
        heads = width // vision.get("head_width", 64)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        raise CheckpointError(
            f"model '{source}': width, head_width and mlp_ratio of its {CONFIG_FILE} are no sizes; fetch it again"
        ) from None
    return {
        "projection_dim": model.get("embed_dim", 0),
        "vision_config": {
            "hidden_size": width,
            "intermediate_size": vision_inside,
            "num_hidden_layers": vision.get("layers", 12),
            "num_attention_heads": heads,
            "image_size": _side(description, source),
            "patch_size": vision.get("patch_size", 16),
            "hidden_act": activation,
            "projection_dim": model.get("embed_dim", 0),
        },
        "text_config": {
            "hidden_size": text_width,
            "intermediate_size": text_inside,
            "num_hidden_layers": text.get("layers", 12),
            "num_attention_heads": text.get("heads", 8),
            "max_position_embeddings": text.get("context_length", 77),
            "vocab_size": text.get("vocab_size", 49408),
            "hidden_act": activation,
            "projection_dim": model.get("embed_dim", 0),
            # 2 tells transformers to pool at the highest id, as open_clip does, whatever the end's own id is
            "eos_token_id": 2,
            "bos_token_id": 0,
            "pad_token_id": 0,
        },
    }


def _side(description: Mapping[str, Any], source: str) -> Any:
    """Pixels of the square that the vision tower reads, which open_clip writes as one number or two."""
    side = description["model_cfg"]["vision_cfg"].get("image_size", 224)
    if isinstance(side, list) and len(side) == 2 and side[0] == side[1]:
        return side[0]
    if isinstance(side, list):
        raise CheckpointError(
            f"model '{source}': open_clip models for pictures of {'×'.join(map(str, side))} are not read, those for "
            "squares are; take another"
        )
    return side


def read_weights(path: Path) -> dict[str, Tensor]:
    """A state dict of open_clip under the names of transformers' `CLIPModel`."""
    found: dict[str, Tensor] = {}
    for name, value in read_state(path).items():
        # the text tower of "custom text" models has a prefix; a mask is no weight, and a bias orders nothing
        plain = name.removeprefix("text.")
        if plain not in ("attn_mask", "logit_bias"):
            found.update(_renamed(plain, value.float()))
    return found


def _renamed(name: str, value: Tensor) -> Iterator[tuple[str, Tensor]]:
    if name in _NAMES:
        if name == "logit_scale":
            # some have a row of one
            value = value.reshape(()) if value.numel() == 1 else value
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
    # null is open_clip's default
    given = description.get("preprocess_cfg") or {}
    chosen = {name: value for name, value in given.items() if value is not None}
    # not "size": open_clip takes the vision tower's in any case
    side = _side(description, source)
    read = {
        "mode": ("RGB",),
        "resize_mode": ("shortest", "squash"),
        # a random one is for training, and bicubic otherwise
        "interpolation": ("bicubic", "bilinear", "random"),
    }
    for name, known in read.items():
        if chosen.get(name, known[0]) not in known:
            raise CheckpointError(
                f"model '{source}': its {name} {chosen[name]!r:.40} of pictures is not read; take a model with one of "
                f"{', '.join(known)}"
            )
    squash = chosen.get("resize_mode") == "squash"
    return {
        "size": {"height": side, "width": side} if squash else {"shortest_edge": side},
        "do_center_crop": not squash,
        "crop_size": {"height": side, "width": side},
        "resample": 2 if chosen.get("interpolation") == "bilinear" else 3,
        # OpenAI's values, which open_clip takes where the file has none; an empty list is none, too
        "image_mean": chosen.get("mean") or [0.48145466, 0.4578275, 0.40821073],
        "image_std": chosen.get("std") or [0.26862954, 0.26130258, 0.27577711],
    }
