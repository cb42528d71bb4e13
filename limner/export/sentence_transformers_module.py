"""A limner model as a module of sentence-transformers 6; copied into each exported folder as `limner_module.py`.

It takes Pillow images, RGB arrays and strings, also in one list, and calls the limner that is installed.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers.base.modules import InputModule

from limner.export.sentence_transformers import MODULE, write_checkpoint_of
from limner.inference.encoding import Encoding
from limner.inference.load import load_model
from limner.inference.trained import TrainedModel


class LimnerModule(InputModule):
    """A network of limner's with its tokenizer and preprocessing; embeddings have length 1."""

    config_file_name = f"{MODULE}.json"
    config_keys = ["checkpoint", "precision"]  # noqa: RUF012 - sentence-transformers declares it so
    save_in_root = True

    def __init__(self, trained: TrainedModel, checkpoint: str, precision: str) -> None:
        super().__init__()
        self.trained = trained
        self.checkpoint = checkpoint
        self.precision = precision
        # a child, so that `to` moves it
        self.network = trained.model

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **options: Any) -> "LimnerModule":
        """Open the checkpoint of a folder, or of a name on the hub."""
        where = {
            name: options.get(name) for name in ("token", "cache_folder", "revision", "local_files_only")
        }
        config = cls.load_config(model_name_or_path, subfolder=subfolder, **where)
        path = cls.load_file_path(model_name_or_path, config["checkpoint"], subfolder=subfolder, **where)
        if path is None:
            raise FileNotFoundError(f"{model_name_or_path}: {config['checkpoint']} is missing")
        return cls(load_model(path, device="cpu", precision=config["precision"]), **config)

    @property
    def modalities(self) -> list[str]:
        """The kinds of input; "message" is how sentence-transformers calls a list of several kinds."""
        return ["text", "image", "message"]

    @property
    def max_seq_length(self) -> int:
        """The longest sentence in tokens."""
        return int(self.trained.model.settings.text.words)

    def get_embedding_dimension(self) -> int:
        """Width of the embedding."""
        return self.trained.dim

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **_: Any) -> dict[str, Any]:
        """Token ids of the strings and pixels of the images, each with their positions in the batch."""
        contents = [_content(one) for one in inputs]
        sentences = [number for number, one in enumerate(contents) if isinstance(one, str)]
        images = [number for number, one in enumerate(contents) if not isinstance(one, str)]
        features: dict[str, Any] = {}
        if sentences:
            texts = [(prompt or "") + contents[number] for number in sentences]
            features["token_ids"] = torch.from_numpy(self.trained.tokenize(texts).token_ids)
            features["sentences"] = torch.tensor(sentences)
        if images:
            pixels = np.stack([self.trained.prepare_image(contents[number]) for number in images])
            features["pixels"] = torch.from_numpy(pixels)
            features["images"] = torch.tensor(images)
        return features

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add `sentence_embedding`, a row for each input of the batch."""
        encoding = self._encoding()
        count = sum(len(features[kind]) for kind in ("sentences", "images") if kind in features)
        rows = torch.empty(count, self.trained.dim)
        if "token_ids" in features:
            rows[features["sentences"].cpu()] = encoding.token_ids(features["token_ids"].cpu().numpy())
        if "pixels" in features:
            rows[features["images"].cpu()] = encoding.pixels(features["pixels"].cpu().numpy())
        return {**features, "sentence_embedding": rows.to(encoding.device)}

    def _encoding(self) -> Encoding:
        """The test-time path on the device where the weights are now."""
        known = self.trained.encoding
        if next(self.network.parameters()).device != known.device:
            images = self.trained.images
            moved = Encoding(self.network, known.precision, flip=images.flip, scales=images.test_scales)
            self.trained = dataclasses.replace(self.trained, encoding=moved)
        return self.trained.encoding

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Write the checkpoint and the settings; sentence-transformers copies this file beside them."""
        write_checkpoint_of(self.trained, Path(output_path) / self.checkpoint)
        self.save_config(output_path)


def _content(one: Any) -> Any:
    """The string, image or array of an input, which may be a chat message or a dict of one of them."""
    if isinstance(one, list) and len(one) == 1:
        return _content(one[0])
    if isinstance(one, dict):
        if "role" in one:
            return _content(one["content"])
        parts = [one[name] for name in ("text", "image") if name in one]
        if len(parts) == 1:
            return parts[0]
    if isinstance(one, dict | list | tuple):
        raise ValueError(f"limner embeds one sentence or one image at a time, got {str(one)[:80]}")
    return one
