"""An exported model, ready to encode images and sentences without torch: what a search by an export runs on."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int64, UInt8

from limner.arguments import expect_call
from limner.data.token_rows import longest
from limner.data.tokenizers import tokenizer_from_description
from limner.data.transforms import ImageSettings
from limner.durable import opened, read_json
from limner.errors import CheckpointError, SettingsError
from limner.export.reranker import ExportedReranker
from limner.export.sessions import Engine, Graph, Run, open_graph, open_tower
from limner.inference.encoder_base import EncoderBase, sentences_of
from limner.inference.source import EXPORT_FILE
from limner.types import Reranker, TokenBatch, Tokenizer

FORMAT = 1
"""Version of the folder's layout."""

TOKENIZER_FILE = "tokenizer.json"
"""A tokenizer of Hugging Face, where the model has one."""

SENTENCES = 256
"""Sentences encoded at once."""

RERANK_FILES = "rerank-"
"""Beginning of the names of the reranker's parts, as files and in `towers`."""

_IMAGES = 16
"""Images encoded at once."""


def read_description(folder: Path) -> dict[str, Any]:
    """Read `export.json`. Raises `CheckpointError` for one that is damaged or of a later format."""
    file = folder / EXPORT_FILE
    try:
        values: Any = read_json(file)
        if isinstance(values, dict) and isinstance(values.get("format"), int) and values["format"] > FORMAT:
            raise CheckpointError(
                f"{file}: format {values['format']} is newer than this limner's {FORMAT}; upgrade limner"
            )
        return opened(values)
    except FileNotFoundError:
        raise CheckpointError(f"{folder}: no exported model here ({EXPORT_FILE} is missing)") from None
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{file}: damaged ({error}); export the run anew") from None


def load_export(folder: str | Path) -> "ExportedModel":
    """Open a folder that `limner export` wrote; a tower is loaded when it is first needed.

    Raises `CheckpointError` for a folder that is damaged or of a later format, and `SettingsError` for a format that
    limner writes for other programs alone.
    """
    place = Path(folder)
    found = read_description(place)
    file = place / EXPORT_FILE
    try:
        if found["engine"] is None:
            raise SettingsError(
                f"{place}: an export for {found['format_name']}; limner searches by one of --format onnx or openvino"
            )
        content = place / TOKENIZER_FILE if found["tokenizer_file"] else None
        tokenizer = tokenizer_from_description(
            dict(found["tokenizer"]), None if content is None else content.read_bytes()
        )
        return ExportedModel(
            place, found, tokenizer, ImageSettings.parse(dict(found["images"])), found["engine"]
        )
    except SettingsError:
        raise
    except OSError as error:
        raise CheckpointError(
            f"{error.filename}: cannot be read ({error.strerror}); export the run anew"
        ) from None
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{file}: damaged ({error}); export the run anew") from None


@dataclass(frozen=True, repr=False, eq=False)
class ExportedModel(EncoderBase):
    """The towers of a run in another program's format, and its reranker; a `limner.types.Encoder`.

    - `path`: the folder; `description`: what its `export.json` says.

    Its embeddings are those of the run in fp32 to rounding, and so is its fingerprint: stores of the run take its
    queries. With int8 they are near to them (`export-report.json` says how near).
    """

    path: Path
    description: dict[str, Any]
    tokenizer: Tokenizer
    images: ImageSettings
    engine: Engine
    _graphs: dict[str, Graph] = field(default_factory=dict)

    def __repr__(self) -> str:
        return (
            f"ExportedModel({str(self.path)!r}, {self.engine}, dim={self.dim}, tokens={self.tokenizer.size})"
        )

    @property
    def fingerprint(self) -> str:
        """That of the run."""
        return str(self.description["fingerprint"])

    @property
    def dim(self) -> int:
        """Width of the embedding."""
        return int(self.description["dim"])

    @property
    def batch(self) -> int:
        """Images encoded at once."""
        return _IMAGES

    @property
    def precision(self) -> str:
        """The arithmetic: fp32, bf16 or int8."""
        return str(self.description["precision"])

    @cached_property
    def reranker(self) -> Reranker | None:
        """The run's, without torch; None for a run that does not re-rank, or only shows where words point."""
        told = self.description["reranker"]
        if told is None:
            return None
        return ExportedReranker(told, self.tokenizer, int(self.description["words"]), self._rerank_graph)

    @property
    def rerank(self) -> int | Literal["all"]:
        """How many of the first hits the run re-ranks; 0 without a reranker."""
        if self.reranker is None:
            return 0
        found: int | Literal["all"] = self.description["rerank"]
        return found

    def expect_to_index(self, *, regions: bool) -> None:
        """Raise `SettingsError` where its vectors would be others than those that a store has.

        `regions`: the store keeps region features, which re-ranking reads.
        """
        if self.precision == "int8":
            raise SettingsError(
                f"{self.path}: towers in int8 embed pictures a little beside the store's own; it searches "
                "only, and pictures are added with the run, or with an export in fp32"
            )
        if regions and self.reranker is None:
            raise SettingsError(
                f"{self.path}: this export has no reranker, and the store keeps what one reads; add pictures with the "
                "run"
            )

    @cached_property
    def _image(self) -> Run:
        return self._tower("image")

    @cached_property
    def _text(self) -> Run:
        return self._tower("text")

    def _tower(self, name: str) -> Run:
        return open_tower(self._whole_file(name), self.engine, bf16=self.precision == "bf16")

    def _rerank_graph(self, part: str) -> Graph:
        if part not in self._graphs:
            name = f"{RERANK_FILES}{part}"
            if name not in self.description["towers"]:
                raise SettingsError(
                    f"{self.path}: an export in int8 reads no regions of pictures; take the run, or an export in fp32"
                )
            # sentences and pairs are little work, and in bf16 the scores of a query's candidates tie
            bf16 = self.precision == "bf16" and part == "regions"
            self._graphs[part] = open_graph(self._whole_file(name), self.engine, bf16=bf16)
        return self._graphs[part]

    def expect_whole(self) -> None:
        """Raise `CheckpointError` if a file is not the one that was written."""
        for name in self.description["towers"]:
            self._whole_file(name)

    def _whole_file(self, name: str) -> Path:
        """The file of a tower or of a part of the reranker, with the digest that was written down."""
        told = self.description["towers"][name]
        for file, digest in told["files"].items():
            if _digest(self.path / file) != digest:
                raise CheckpointError(
                    f"{self.path / file}: is not the file that {EXPORT_FILE} names; export the run anew"
                )
        return self.path / str(told["file"])

    def encode_pixels(
        self, pixels: UInt8[np.ndarray, "batch height width 3"]
    ) -> Float[np.ndarray, "batch dim"]:
        """Unit embeddings, float32 (batch, dim), of pictures that `prepare_image` gave."""
        rows = [self._image(pixels[start : start + _IMAGES]) for start in range(0, len(pixels), _IMAGES)]
        return np.concatenate(rows) if rows else np.empty((0, self.dim), np.float32)

    def tokenize(self, sentences: Sequence[str], *, words: bool = False) -> TokenBatch:
        """Sentences as the network takes them, with the alignment of words where asked for."""
        return self.tokenizer.encode(sentences, int(self.description["words"]), words=words)

    def encode_texts(
        self,
        sentences: str | Iterable[str],
        *,
        check: bool = True,
        progress: Callable[[int, int], None] | None = None,
    ) -> Float[np.ndarray, "batch dim"]:
        """Unit embeddings, float32 (sentences, dim), as `limner.inference.TrainedModel.encode_texts`."""
        expect_call(progress)
        all_of_them = sentences_of(sentences)
        if check:
            for sentence in all_of_them:
                self.check_query(sentence)
        token_ids = self.tokenize(all_of_them).token_ids
        rows: list[np.ndarray] = []
        for start in range(0, len(token_ids), SENTENCES):
            rows.append(self.encode_token_ids(token_ids[start : start + SENTENCES]))
            if progress is not None:
                progress(min(start + SENTENCES, len(token_ids)), len(token_ids))
        return np.concatenate(rows) if rows else np.empty((0, self.dim), np.float32)

    def encode_queries(self, sentences: str | Iterable[str]) -> Float[np.ndarray, "batch dim"]:
        """The same; an exported tower computes in fp32 or in int8, whoever else asks."""
        return self.encode_texts(sentences)

    def encode_token_ids(
        self, token_ids: Int64[np.ndarray, "sentences words"]
    ) -> Float[np.ndarray, "sentences dim"]:
        """Unit embeddings of rows that `tokenize` gave."""
        # empty places behind the longest sentence are behind a mask, and cost as much as words
        used = longest(token_ids) if self.description["any_length"] else token_ids.shape[1]
        return self._text(token_ids[:, : max(2, used)])


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}); export the run anew") from None
