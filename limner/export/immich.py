"""Export in the layout that immich's machine-learning service loads.

    DIR/config.json                     its length of a sentence
    DIR/visual/model.onnx               input "image", float32 (images, 3, side, side)
    DIR/visual/preprocess_cfg.json      how a picture becomes that
    DIR/textual/model.onnx              input "text", int32 (sentences, words)
    DIR/textual/tokenizer.json, tokenizer_config.json

Source: immich-app/immich, machine-learning/immich_ml/models/clip/textual.py and visual.py (read at commits 03112cf and
0538dd7): a model whose name is that of an OpenCLIP model is loaded from such a folder in the service's cache.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from limner.data.transforms import ImageSettings
from limner.errors import SettingsError
from limner.export.int8 import CalibrationRows, to_int8
from limner.export.onnx_files import write_onnx
from limner.export.towers import ImageTower, TextTower
from limner.export.word_tokenizer import PAD, padded_tokenizer
from limner.inference.trained import TrainedModel
from limner.types import PADDING


def write_immich(
    model: TrainedModel,
    folder: Path,
    calibration: CalibrationRows | None,
    progress: Callable[[str], None],
) -> None:
    """Write a run's towers into a folder in immich's layout, in int8 with `calibration`.

    Raises `SettingsError` for pictures that are no squares, which immich cannot make.
    """
    side, mode = _square(model.images)
    words = model.model.settings.text.words
    visual, textual = folder / "visual", folder / "textual"
    for part in (visual, textual):
        part.mkdir()
    progress("image tower")
    example = torch.zeros(2, 3, side, side)
    write_onnx(_Visual(model, side), example, "image", visual / "model.onnx")
    _write_json(
        visual / "preprocess_cfg.json",
        {
            "size": [side, side],
            "mode": "RGB",
            # 0 … 1: the tower normalises by itself
            "mean": [0.0, 0.0, 0.0],
            "std": [1.0, 1.0, 1.0],
            "interpolation": model.images.interpolation,
            "resize_mode": mode,
            "fill_color": 0,
        },
    )
    progress("text tower")
    content, offset = padded_tokenizer(model.tokenizer)
    pad_id = {entry["content"]: entry["id"] for entry in json.loads(content)["added_tokens"]}.get(
        PAD, PADDING
    )
    tokens = torch.full((2, words), pad_id, dtype=torch.int32)
    # a word each, so that nothing of the recorded example is empty
    tokens[:, 0] = 1 - offset
    write_onnx(_Textual(model, pad_id, offset), tokens, "text", textual / "model.onnx")
    (textual / "tokenizer.json").write_text(content, encoding="utf-8")
    _write_json(textual / "tokenizer_config.json", {"pad_token": PAD})
    _write_json(
        folder / "config.json",
        {
            "embed_dim": model.dim,
            "vision_cfg": {"image_size": side},
            "text_cfg": {"context_length": words, "vocab_size": model.tokenizer.size + 1},
        },
    )
    if calibration is not None:
        progress("both towers in int8")
        # the pictures that the service would hand over
        pixels = torch.from_numpy(calibration.pixels).permute(0, 3, 1, 2).float() / 255
        to_int8(visual / "model.onnx", "image", _framed(pixels, side).numpy())
        to_int8(textual / "model.onnx", "text", None)


class _Visual(nn.Module):
    """Pictures of 0 … 1, channels first, to embeddings: the middle of what immich's resizing gives."""

    def __init__(self, model: TrainedModel, side: int) -> None:
        super().__init__()
        self.tower = ImageTower(model.model, model.images)
        height, width = model.images.crop
        self.height, self.width = height, width
        self.top, self.left = (side - height) // 2, (side - width) // 2

    def forward(self, image: Tensor) -> Tensor:
        """Unit embeddings."""
        cut = image[:, :, self.top : self.top + self.height, self.left : self.left + self.width]
        # whole numbers, as pictures have; x / 255 · 255 may lie a hair beside them
        out: Tensor = self.tower((cut.permute(0, 2, 3, 1) * 255).round())
        return out


class _Textual(nn.Module):
    """The tokenizer's own ids to embeddings."""

    def __init__(self, model: TrainedModel, pad_id: int, offset: int) -> None:
        super().__init__()
        self.tower = TextTower(model.model)
        self.pad_id, self.offset = pad_id, offset

    def forward(self, text: Tensor) -> Tensor:
        """Unit embeddings."""
        ids = text.to(torch.int64)
        out: Tensor = self.tower(torch.where(ids == self.pad_id, PADDING, ids + self.offset))
        return out


def _square(images: ImageSettings) -> tuple[int, str]:
    """The side of immich's pictures and how it makes them: the shorter side resized, or both."""
    resize, crop = images.resize, images.crop
    if isinstance(resize, int) and max(crop) <= resize:
        return resize, "shortest"
    if isinstance(resize, tuple) and resize[0] == resize[1] and max(crop) <= resize[0]:
        return resize[0], "squash"
    raise SettingsError(
        f"format immich: it makes squares of pictures, and this model reads {crop[0]}×{crop[1]} pixels of pictures "
        f"resized to {resize}; take --format onnx or openvino"
    )


def _framed(crops: Tensor, side: int) -> Tensor:
    """Crops in the middle of squares, the edges repeated around them."""
    down, across = side - crops.shape[2], side - crops.shape[3]
    edges = (across // 2, across - across // 2, down // 2, down - down // 2)
    return nn.functional.pad(crops, edges, mode="replicate")


def _write_json(path: Path, values: Any) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
