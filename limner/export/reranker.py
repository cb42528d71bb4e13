"""The reranker of an exported model: the run's own scores of pairs without torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8

from limner.data.token_rows import longest
from limner.errors import DataError, SettingsError
from limner.export.sessions import Graph
from limner.inference.anchored_pairs import anchored_pairs
from limner.inference.reranker_base import Attended, RerankerBase, Scoring
from limner.types import RegionFeatures, TokenBatch, Tokenizer

PARTS = ("regions", "sentence", "pairs")
"""The three graphs: of pictures, of sentences, and of pairs of both."""

PIXELS = "pixels"
"""Name of the input of what reads pictures."""

_NUMBERS = 1 << 25
"""Numbers of a hidden layer that are in memory at once: 128 MiB of float32."""

_IMAGES = 16
"""Images whose regions are computed at once."""

_SENTENCES = 256
"""Sentences whose parts are held at once."""


@dataclass(frozen=True, eq=False)
class ExportedReranker(RerankerBase):
    """A `limner.types.Reranker` of three graphs, whichever kind of reranker they were recorded of.

    - `told`: what `export.json` says of it: `region_shape`, `weights` of similarity and logit in a score, `confidence`
      ("sigmoid", or the sum of the weights), `numbers` of a hidden layer for each pair and word, and the rest.
    - `length`: tokens of a full row; `load`: opens one of `PARTS`, at its first use.
    """

    told: dict[str, Any]
    tokenizer: Tokenizer
    length: int
    load: Callable[[str], Graph]

    @property
    def scoring(self) -> Scoring:
        """As of the run's reranker."""
        told, (similarity, logit) = self.told, self.told["weights"]
        highest = None if told["confidence"] == "sigmoid" else float(told["confidence"])
        shown = told.get("words_shown") == "alphanumeric"
        return Scoring((similarity, logit), highest, told["reader"], shown)

    @property
    def region_shape(self) -> tuple[int, int, int]:
        """Rows and columns of an image's regions, and the numbers of each."""
        rows, columns, channels = self.told["region_shape"]
        return int(rows), int(columns), int(channels)

    def region_features(self, pixels: UInt8[np.ndarray, "images height width 3"]) -> RegionFeatures:
        """The regions of cropped images.

        Raises `DataError` for values beyond half precision, and `SettingsError` for an export in int8, which has no
        graph of them.
        """
        graph = self.load("regions")
        rows = [
            graph.run({PIXELS: pixels[start : start + _IMAGES]})["regions"]
            for start in range(0, len(pixels), _IMAGES)
        ]
        with np.errstate(over="ignore"):
            half = np.concatenate(rows).astype(np.float16)
        if not np.isfinite(half).all():
            raise DataError(
                "the features of the regions are NaN or beyond what half precision holds (65,504)"
            )
        return half

    def region_features_of_cached(
        self, cached: Float[np.ndarray, "images _height _width _channels"]
    ) -> RegionFeatures:
        """An export reads no cache of training. Raises `SettingsError`."""
        raise SettingsError("an exported model reads pictures, not a training's feature cache")

    def _attended(self, regions: RegionFeatures, read: TokenBatch) -> Attended:
        found = self._pairs(regions, self._parts(read))
        of_regions, of_words = (
            None if found.get(name) is None else found[name][:, 0] for name in ("of_regions", "of_words")
        )
        return found["logits"][:, 0], of_regions, of_words

    def _tokenized(self, sentences: Sequence[str], *, words: bool = False) -> TokenBatch:
        return self.tokenizer.encode(sentences, self.length, phrases=self.told["phrases"], words=words)

    def _parts(self, read: TokenBatch) -> dict[str, np.ndarray]:
        """The tensors of sentences that scores are made of."""
        width = self.length
        if self.told["any_length"]:
            # at least as many places as a graph was recorded for
            width = min(width, max(2, int(self.told.get("least_words", 1)), longest(read.token_ids)))
        given = {"token_ids": read.token_ids[:, :width]}
        if read.phrases is not None:
            given["phrases"] = read.phrases[:, :width]
        found = self.load("sentence").run(given)
        if self.told.get("words_in_half"):
            # here, since an engine may take a cast there and back out of its graph
            found["words"] = found["words"].astype(np.float16).astype(np.float32)
        return found

    def _pairs(self, regions: RegionFeatures, parts: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Logits and attentions of all pairs, a few images at a time."""
        sentences, width = next(iter(parts.values())).shape[:2]
        step = max(1, _NUMBERS // (int(self.told["numbers"]) * width * sentences))
        run = self.load("pairs").run
        blocks = [
            run({"regions": np.asarray(regions[start : start + step], np.float32), **parts})
            for start in range(0, len(regions), step)
        ]
        return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}

    def logits(
        self,
        regions: RegionFeatures,
        read: TokenBatch,
        of_images: Int[np.ndarray, " pairs"],
        of_sentences: Int[np.ndarray, " pairs"],
    ) -> Float[np.ndarray, " pairs"]:
        """Logits of single pairs: a call for each image or each sentence, whichever there are fewer of."""
        found = np.empty(len(of_images), np.float32)
        for held, groups in anchored_pairs(of_images, of_sentences, _SENTENCES):
            parts = self._parts(read[held])
            for pairs, image_rows, rows in groups:
                grid = self._pairs(regions[image_rows], {name: part[rows] for name, part in parts.items()})
                found[pairs] = grid["logits"].ravel()
        return found
