"""The reranker of an exported model: the run's own scores of pairs without torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int, UInt8

from limner.data.token_rows import by_word, longest
from limner.errors import DataError, SettingsError
from limner.export.sessions import Graph
from limner.inference.anchored_pairs import anchored_pairs
from limner.types import PairScorer, RegionFeatures, RerankScores, TokenBatch, Tokenizer

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
class ExportedReranker:
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
    def class_mean(self) -> Literal["confidences", "scores"]:
        """As of the run's reranker."""
        found: Literal["confidences", "scores"] = self.told["class_mean"]
        return found

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

    def rerank(self, sentence: str, regions: RegionFeatures) -> RerankScores:
        """Score a sentence with every image, and say where both look, as the run's reranker does."""
        read = self._tokenized([sentence], words=True)
        assert read.words is not None
        words = [word for word in read.words[0] if word.tokens]
        if self.told.get("words_shown") == "alphanumeric":
            words = [word for word in words if any(map(str.isalnum, word.text))]
        found = self._pairs(regions, self._parts(read))
        known = tuple(word.text for word in words)
        of_regions, of_words = found.get("of_regions"), found.get("of_words")
        if of_regions is not None:
            # each token's attention sums to 1, so that of a word of several is their mean; below, what all give it
            of_regions = by_word(of_regions[:, 0], words, 1, mean=True)
            of_regions = of_regions.reshape(len(regions), len(words), *regions.shape[1:3])
        if of_words is not None:
            of_words = by_word(of_words[:, 0], words, 2)
        return RerankScores(found["logits"][:, 0], known, of_regions, of_words, self.told["reader"])

    def pair_scorer(
        self,
        images: Float[np.ndarray, "images dim"],
        texts: Float[np.ndarray, "sentences dim"],
        regions: RegionFeatures,
        sentences: Sequence[str],
    ) -> PairScorer:
        """Scores of pairs given by positions; each sentence is encoded once a call."""
        read = self._tokenized(sentences)

        def score(
            of_images: Int[np.ndarray, " pairs"], of_sentences: Int[np.ndarray, " pairs"]
        ) -> Float[np.ndarray, " pairs"]:
            logits = self._of_pairs(regions, read, of_images, of_sentences)
            return self.scores(np.einsum("pd,pd->p", images[of_images], texts[of_sentences]), logits)

        return score

    def scores(
        self, similarities: Float[np.ndarray, " images"], logits: Float[np.ndarray, " images"]
    ) -> Float[np.ndarray, " images"]:
        """The weighted sum of both."""
        similarity, logit = self.told["weights"]
        return np.asarray(similarity * similarities + logit * logits, np.float32)

    def confidences(self, scores: Float[np.ndarray, " images"]) -> Float[np.ndarray, " images"]:
        """A cross-encoder's probability, or the weighted mean of what is summed, at least 0."""
        if self.told["confidence"] == "sigmoid":
            return 1 / (1 + np.exp(-scores.astype(np.float64)))
        return np.asarray(np.clip(scores / max(self.told["confidence"], 1e-9), 0, 1))

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

    def _of_pairs(
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
