"""A trained model, ready to encode images and sentences: what `limner.load` returns."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8

from limner.arguments import expect_call
from limner.data.transforms import ImageSettings
from limner.errors import DataError, SettingsError
from limner.evaluation.reranking import First
from limner.inference.checkpoint import (
    NOT_WEIGHTS,
)
from limner.inference.encoder_base import EncoderBase, pictures_of, sentences_of
from limner.inference.encoding import SENTENCES, Encoding
from limner.inference.precision import (
    Arithmetic,
)
from limner.inference.rerankers import reranker_of
from limner.models.dual_encoder import DualEncoder
from limner.types import ImageSource, RegionFeatures, Reranker, TokenBatch, Tokenizer


@dataclasses.dataclass(frozen=True, repr=False)
class TrainedModel(EncoderBase):
    """A network with its vocabulary and its transform of images; a `limner.types.Encoder`.

    - `path`: the checkpoint file it came from.
    - `description`: the checkpoint's JSON (`limner.inference.checkpoint`).
    - `learnt`: the tensors that name the images it has learnt from (`limner.inference.learnt_images`); empty for a run
      that was trained before format 4, and for an imported one.
    """

    path: Path
    description: dict[str, Any]
    model: DualEncoder
    tokenizer: Tokenizer
    images: ImageSettings
    encoding: Encoding
    learnt: dict[str, torch.Tensor] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        """One line: the description alone has a hundred thousand characters, most of them the vocabulary."""
        return (
            f"TrainedModel({str(self.path)!r}, system={self.model.settings.system!r}, dim={self.dim}, "
            f"tokens={self.tokenizer.size}, device={str(self.encoding.device)!r}, "
            f"precision={self.encoding.precision!r})"
        )

    @cached_property
    def fingerprint(self) -> str:
        """Hex digest of weights, tokenizer and test transform: embeddings of equal fingerprints can be compared."""
        digest = hashlib.sha256()
        # where weights once came from, and how training cropped, change no embedding; files say what was built of them
        parts = (
            *(self.model.settings.identity(), self.model.files()),
            *(*self.images.identity(), self.tokenizer.to_description()),
        )
        # keys sorted: a setting that moves within its class must not make stores foreign
        digest.update(json.dumps(parts, sort_keys=True).encode())
        # the weights below are of both networks, the settings above of the first alone
        if self.model.cross_encoder is not None:
            digest.update(self.model.cross_encoder.settings.model_dump_json().encode())
        # by name, and with the names: modules may be registered in another order one day
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(name.encode())
            # a view of its bytes: a copy of a table of 256,000 pieces would be 800 MB
            digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()

    @property
    def dim(self) -> int:
        """Width of the embedding."""
        return self.model.embedding_dim

    @property
    def precision(self) -> Arithmetic:
        """Arithmetic of the embeddings."""
        return self.encoding.precision

    def in_precision(self, precision: Arithmetic) -> "TrainedModel":
        """The same network in another arithmetic; itself if it has that one already."""
        if precision == self.precision:
            return self
        old = self.encoding
        new = Encoding(self.model, precision, flip=old.flip, scales=old.scales, engine=old.engine)
        return dataclasses.replace(self, encoding=new)

    @property
    def batch(self) -> int:
        """Images encoded at once."""
        return self.encoding.batch

    def holds(self, tensors: Mapping[str, torch.Tensor]) -> bool:
        """True if a checkpoint's tensors are the weights that were loaded."""
        # the description has the tokenizer's digest; the images that were learnt from change no answer
        weights = {name: one for name, one in tensors.items() if name not in NOT_WEIGHTS}
        loaded = self.model.state_dict()
        return weights.keys() == loaded.keys() and all(
            torch.equal(weights[name].to(one.dtype), one.cpu()) for name, one in loaded.items()
        )

    def encode_pixels(
        self, pixels: UInt8[np.ndarray, "batch height width 3"]
    ) -> Float[np.ndarray, "batch dim"]:
        """Unit embeddings, float32 (batch, dim), of pictures that `prepare_image` gave."""
        return self.encoding.pixels(pixels).numpy()

    def encode_texts(
        self,
        sentences: str | Iterable[str],
        *,
        check: bool = True,
        progress: Callable[[int, int], None] | None = None,
    ) -> Float[np.ndarray, "batch dim"]:
        """Unit embeddings, float32 (sentences, dim), of one sentence or several; unknown words are dropped.

        Raises `DataError` for a sentence without a known word, as `check_query` does. With `check` off such
        a sentence has the embedding of an empty one, the same for all of them: evaluation needs that, since a dataset
        is measured with every sentence it has. `progress` is called after each batch with the sentences done and their
        total.
        """
        expect_call(progress)
        token_ids = self._token_ids(sentences, check=check)
        rows: list[np.ndarray] = []
        for start in range(0, len(token_ids), SENTENCES):
            rows.append(self.encoding.token_ids(token_ids[start : start + SENTENCES]).numpy())
            if progress is not None:
                progress(start + len(rows[-1]), len(token_ids))
        return np.concatenate(rows) if rows else np.empty((0, self.dim), np.float32)

    def encode_queries(self, sentences: str | Iterable[str]) -> Float[np.ndarray, "batch dim"]:
        """The same in fp32, whatever the model's precision. Raises `DataError` as `check_query` does.

        In bf16 the rows of a product depend on how many there are, in the third decimal: who else asks a server at
        the same time would change an answer.
        """
        # it costs 4.5 ms a text in a batch of 64, where bf16 takes 0.6; in bf16 one of 256 sentences had another
        # order beside 63 others than alone (docs/log/2026-11-22.md)
        encoding = Encoding(self.model, "fp32", flip=self.images.flip)
        return encoding.token_ids(self._token_ids(sentences, check=True)).numpy()

    def _token_ids(
        self, sentences: str | Iterable[str], *, check: bool
    ) -> Int64[np.ndarray, "sentences words"]:
        several = sentences_of(sentences)
        if check:
            for sentence in several:
                self.check_query(sentence)
        return self.tokenize(several).token_ids

    def tokenize(self, sentences: Sequence[str], *, words: bool = False) -> TokenBatch:
        """Sentences as the network takes them, with the alignment of words where asked for."""
        return self.model.tokenize(sentences, self.tokenizer, words=words)

    def rows_read(self, sentences: Sequence[str]) -> Int64[np.ndarray, "sentences words"]:
        """A row a sentence: equal for sentences that the model cannot tell apart."""
        return self.tokenize(sentences).token_ids

    @cached_property
    def reranker(self) -> Reranker | None:
        """The reranker of the first of the embedding's ranking; None = the embedding ranks alone."""
        precision, engine = self.encoding.precision, self.encoding.engine
        return reranker_of(self.model, self.tokenizer, self.images, precision, engine)

    @property
    def rerank(self) -> First:
        """How many of the first hits the recipe re-ranks; 0 without a reranker that changes the order."""
        first: First = self.description["recipe"].get("rerank", 20) if self.model.reorders else 0
        return first

    def encode_regions(
        self,
        images: ImageSource | Iterable[ImageSource],
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> RegionFeatures:
        """Region features of images for the reranker, float16 (images, rows, columns, channels).

        Raises `SettingsError` where nothing re-ranks, otherwise as `encode_images`.
        """
        reranker = self.expect_reranker()
        rows = [reranker.region_features(pixels) for pixels in self._decoded(pictures_of(images), progress)]
        if not rows:
            raise DataError("no picture was given to encode")
        return np.concatenate(rows)

    def expect_reranker(self) -> Reranker:
        """The reranker. Raises `SettingsError` for a model that has none."""
        if self.reranker is None:
            raise SettingsError(
                f"{self.path}: this checkpoint has no reranker, its embedding ranks alone; take one of a stage that "
                "learns a cross-encoder, of HGAN or a pair with words or phrases, or of one with late interaction"
            )
        return self.reranker
