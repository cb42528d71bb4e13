"""Reads an export in immich's layout as its service does, for the report and the tests."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image

from limner.durable import read_json
from limner.export.sessions import require_onnxruntime


class ImmichFolder:
    """An export for immich, run by ONNX Runtime.

    Source: immich-app/immich, machine-learning/immich_ml/models/clip (read at commits 03112cf and 0538dd7).
    """

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        onnxruntime = require_onnxruntime()
        self.visual, self.textual = (
            onnxruntime.InferenceSession(
                str(folder / part / "model.onnx"), providers=["CPUExecutionProvider"]
            )
            for part in ("visual", "textual")
        )
        self.preprocessing = _read(folder / "visual" / "preprocess_cfg.json")
        pad = _read(folder / "textual" / "tokenizer_config.json")["pad_token"]
        length = _read(folder / "config.json")["text_cfg"]["context_length"]
        self.tokenizer = Tokenizer.from_file(str(folder / "textual" / "tokenizer.json"))
        self.tokenizer.enable_padding(length=length, pad_token=pad, pad_id=self.tokenizer.token_to_id(pad))
        self.tokenizer.enable_truncation(max_length=length)

    def encode_picture(self, picture: Image.Image) -> Float[np.ndarray, " dim"]:
        """One picture, resized as `preprocess_cfg.json` says."""
        side = self.preprocessing["size"][0]
        filter_ = Image.Resampling[self.preprocessing["interpolation"].upper()]
        if self.preprocessing["resize_mode"] == "squash":
            resized = picture.resize((side, side), filter_)
        else:
            scale = side / min(picture.size)
            resized = picture.resize(tuple(round(length * scale) for length in picture.size), filter_)
            left, top = ((length - side) // 2 for length in resized.size)
            resized = resized.crop((left, top, left + side, top + side))
        found: np.ndarray = self._run(np.asarray(resized.convert("RGB"))[None])[0]
        return found

    def encode_pixels(
        self, pixels: UInt8[np.ndarray, "batch height width 3"]
    ) -> Float[np.ndarray, "batch dim"]:
        """Pictures that the run has cropped, in the middle of a square."""
        side = self.preprocessing["size"][0]
        down, across = side - pixels.shape[1], side - pixels.shape[2]
        frame = ((0, 0), (down // 2, down - down // 2), (across // 2, across - across // 2), (0, 0))
        return self._run(np.pad(pixels, frame))

    def _run(self, pixels: np.ndarray) -> Float[np.ndarray, "batch dim"]:
        mean, std = (np.array(self.preprocessing[name], np.float32) for name in ("mean", "std"))
        image = (pixels.astype(np.float32) / 255 - mean) / std
        found: np.ndarray = self.visual.run(None, {"image": image.transpose(0, 3, 1, 2)})[0]
        return found

    def encode_texts(self, sentences: Sequence[str], *, check: bool = True) -> Float[np.ndarray, "batch dim"]:
        """Sentences, one by one as the service has them."""
        rows = [
            self.textual.run(None, {"text": np.array([self.tokenizer.encode(sentence).ids], np.int32)})[0][0]
            for sentence in sentences
        ]
        return np.stack(rows)


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = read_json(path)
    return found
