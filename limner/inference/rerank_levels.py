"""The reranker by levels: similarities of words and of phrases, as HGAN has them, beside that of whole sentences.

Source: Zheng et al., MM 2020, sections 3.3 and 3.4.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from limner.data.token_rows import by_word, longest
from limner.data.transforms import ImageSettings
from limner.errors import SettingsError
from limner.inference.anchored_pairs import anchored_pairs
from limner.inference.encoding import evaluating
from limner.inference.image_engine import BackbonePass, to_half
from limner.inference.precision import InferenceEngine, Precision, autocast, pick_precision
from limner.models.dual_encoder import DualEncoder
from limner.models.image import LAST_MAP
from limner.models.levels import LEVELS, Level, LevelledEncoder
from limner.models.local_matching import LocalMatch, Projected
from limner.types import PairScorer, RegionFeatures, RerankScores, TokenBatch, Tokenizer

_IMAGES, _SENTENCES = 16, 16
"""Pictures and sentences whose pairs are scored at once: what they make stays in a processor's cache."""

_HELD = 256
"""Sentences whose projections are held at once where pairs are single."""

_HALVED = 1024
"""Pictures whose projections are held at once: with 15 regions, 512 numbers and two levels, 126 MB."""


class LevelsReranker:
    """A `limner.types.Reranker`: pairs are scored by words and phrases, in eval mode.

    A network that has learnt since needs a new one. Regions are those of the image as it is, without its mirror
    image. What is kept of an image is its regions, `region_shape` numbers in half precision: rows and columns of the
    windows, and both granularities behind one another. The first layers of both perceptrons are applied to them once.
    Raises `SettingsError` for a network without words and phrases to match.
    """

    # the score is a weighted sum and no probability, so classes have the mean of what ranks pairs
    class_mean: Literal["confidences", "scores"] = "scores"

    def __init__(
        self,
        model: DualEncoder,
        tokenizer: Tokenizer,
        images: ImageSettings,
        precision: Precision = "fp32",
        engine: InferenceEngine = "torch",
    ) -> None:
        if not isinstance(model, LevelledEncoder) or model.level_settings is None:
            raise SettingsError("this network matches neither words nor phrases to re-rank by")
        self.model = model
        self.settings = model.level_settings
        self.device = next(model.parameters()).device
        self.precision = pick_precision(precision, self.device)
        self._tokenizer = tokenizer
        self._engine = engine

    @cached_property
    def backbone(self) -> BackbonePass:
        """The folded copy of the backbone."""
        return BackbonePass(self.model.backbone, self.precision, self._engine)

    @property
    def region_shape(self) -> tuple[int, int, int]:
        """Rows and columns of the regions, and the numbers of each."""
        settings = self.settings
        rows, columns = settings.regions.grid
        return rows, columns, len(settings.granularities) * settings.dim

    @torch.inference_mode()
    def region_features(self, pixels: UInt8[np.ndarray, "images height width 3"]) -> RegionFeatures:
        """The regions of cropped images. Raises `DataError` for values beyond half precision."""
        return self._regions(self.backbone.map_until(pixels, LAST_MAP))

    @torch.inference_mode()
    def region_features_of_cached(
        self, cached: Float[np.ndarray, "images _height _width _channels"]
    ) -> RegionFeatures:
        """The regions from cached features: last maps, or the maps that a learning layer reads."""
        rows = []
        for start in range(0, len(cached), 64):
            block = torch.from_numpy(np.array(cached[start : start + 64])).to(self.device)
            with evaluating(self.model), autocast(self.precision, self.device):
                last = self.model.backbone.read_map(block)
            rows.append(self._regions(last.permute(0, 2, 3, 1)))
        return np.concatenate(rows)

    def _regions(self, last: Float[Tensor, "images _height _width _channels"]) -> RegionFeatures:
        with evaluating(self.model), autocast(self.precision, self.device):
            cut = self.model.cut(last.permute(0, 3, 1, 2))
        # one array a picture, whatever the levels: a store has one column of regions
        joined = torch.cat([cut[level].float() for level in self.model.levels], dim=2)
        return to_half(joined.view(len(joined), *self.region_shape), "the features of the regions")

    @torch.inference_mode()
    def project_pictures(self, regions: RegionFeatures) -> dict[Level, Projected]:
        """Project images: their part of the first layers of all their pairs."""
        levels = self.model.levels
        seen = torch.from_numpy(np.array(regions)).to(self.device).float().flatten(1, 2)
        with evaluating(self.model), autocast(self.precision, self.device):
            # chunked in the order in which `_regions` joined them
            return self.model.project_pictures(dict(zip(levels, seen.chunk(len(levels), dim=2), strict=True)))

    @torch.inference_mode()
    def project_sentences(self, read: TokenBatch) -> dict[Level, Projected]:
        """Project sentences: their part of the first layers of all their pairs."""
        width = longest(read.token_ids)
        token_ids, phrases = (
            torch.from_numpy(np.ascontiguousarray(rows[:, :width])).to(self.device)
            for rows in (
                read.token_ids,
                np.zeros_like(read.token_ids) if read.phrases is None else read.phrases,
            )
        )
        with evaluating(self.model), autocast(self.precision, self.device):
            return self.model.project_sentences(self.model.sentence_parts(token_ids, phrases))

    @torch.inference_mode()
    def similarities(
        self, regions: RegionFeatures, read: TokenBatch
    ) -> Float[np.ndarray, "images sentences"]:
        """The weighted sum of S(V_w, T_w) and S(V_p, T_p) of every picture with every sentence, in blocks.

        Sentences are encoded again for every 1,024 pictures, so that memory does not grow with either.
        """
        found = np.empty((len(regions), len(read)), np.float32)
        for chunk in range(0, len(regions), _HALVED):
            starts = range(chunk, min(chunk + _HALVED, len(regions)), _IMAGES)
            # projected once a chunk: with blocks alone each picture would be projected once a block of sentences
            pictures = [self.project_pictures(regions[start : start + _IMAGES]) for start in starts]
            for first in range(0, len(read), _SENTENCES):
                sentences = self.project_sentences(read[first : first + _SENTENCES])
                for start, projected in zip(starts, pictures, strict=True):
                    with evaluating(self.model):
                        matches = self.model.match(projected, sentences)
                    block = self.total(matches).cpu().numpy()
                    found[start : start + len(block), first : first + _SENTENCES] = block
        return found

    def rerank(self, sentence: str, regions: RegionFeatures) -> RerankScores:
        """The similarities of words and phrases, and which words and regions selected one another.

        Attention is that of words, None where there is no such granularity, or no selection of that side.
        """
        read = self.model.tokenize([sentence], self._tokenizer, words=True)
        assert read.words is not None
        words = [word for word in read.words[0] if word.tokens]
        totals, of_items, of_regions = self._attended(regions, read)
        if of_regions is not None:
            # each token's attention sums to 1, so that of a word of several is their mean; below, what all give it
            rows, columns, _ = self.region_shape
            of_regions = by_word(of_regions, words, 1, mean=True)
            of_regions = of_regions.reshape(len(regions), len(words), rows, columns)
        if of_items is not None:
            of_items = by_word(of_items, words, 2)
        known = tuple(word.text for word in words)
        return RerankScores(totals, known, of_regions, of_items, "region")

    @torch.inference_mode()
    def _attended(
        self, regions: RegionFeatures, read: TokenBatch
    ) -> tuple[
        Float[np.ndarray, " images"],
        Float[np.ndarray, "images regions items"] | None,
        Float[np.ndarray, "images items regions"] | None,
    ]:
        """For one sentence what `similarities` has, the weights of regions over words and of words over regions."""
        sentences = self.project_sentences(read)
        totals: list[np.ndarray] = []
        of_items: list[np.ndarray] = []
        of_regions: list[np.ndarray] = []
        for start in range(0, len(regions), _IMAGES):
            with evaluating(self.model):
                pictures = self.project_pictures(regions[start : start + _IMAGES])
                matches = self.model.match(pictures, sentences)
            totals.append(self.total(matches)[:, 0].cpu().numpy())
            if "word" in matches:
                for found, weights in (
                    (of_items, matches["word"].of_items),
                    (of_regions, matches["word"].of_regions),
                ):
                    if weights is not None:
                        found.append(weights[:, 0].cpu().numpy())
        return (
            np.concatenate(totals),
            np.concatenate(of_items) if of_items else None,
            np.concatenate(of_regions) if of_regions else None,
        )

    def total(self, matches: Mapping[Level, LocalMatch]) -> Float[Tensor, "images sentences"]:
        """The weighted sum over the levels; a sentence without a noun phrase has its words' similarity for both."""
        weights = self.settings.scores
        # in the settings' weights, all 1 unless set (**Decided**: the paper gives no sum)
        total = torch.stack(
            [getattr(weights, level) * match.similarity for level, match in matches.items()]
        ).sum(0)
        if len(matches) == len(LEVELS):
            # else a sentence without a noun phrase would lose the phrases' share of its score against the others
            word, phrase = (matches[level] for level in LEVELS)
            total = torch.where(phrase.counted, total, (weights.word + weights.phrase) * word.similarity)
        return total

    def pair_scorer(
        self,
        images: Float[np.ndarray, "images dim"],
        texts: Float[np.ndarray, "sentences dim"],
        regions: RegionFeatures,
        sentences: Sequence[str],
    ) -> PairScorer:
        """Scores of pairs given by positions, of sentence, words and phrases together.

        Pairs of all of some images with all of some sentences are scored as one grid, others as one an image or a
        sentence, whichever there are fewer of; each sentence is encoded once a call.
        """
        read = self.model.tokenize(sentences, self._tokenizer)

        def score(
            of_images: Int[np.ndarray, " pairs"], of_sentences: Int[np.ndarray, " pairs"]
        ) -> Float[np.ndarray, " pairs"]:
            image_rows, sentence_rows = np.unique(of_images), np.unique(of_sentences)
            # a grid encodes and projects a sentence once; single pairs cost a call for each anchor
            if len(image_rows) * len(sentence_rows) <= 2 * len(of_images):
                grid = self.similarities(regions[image_rows], read[sentence_rows])
                logits = grid[
                    np.searchsorted(image_rows, of_images), np.searchsorted(sentence_rows, of_sentences)
                ]
            else:
                logits = self._of_pairs(regions, read, of_images, of_sentences)
            # of the pairs alone: the product of all pictures and sentences would be thrown away for the most part
            return self.scores(np.einsum("pd,pd->p", images[of_images], texts[of_sentences]), logits)

        return score

    def scores(
        self, similarities: Float[np.ndarray, " images"], logits: Float[np.ndarray, " images"]
    ) -> Float[np.ndarray, " images"]:
        """The weighted sum of sentence, words and phrases."""
        return np.asarray(self.settings.scores.sentence * similarities + logits, np.float32)

    def confidences(self, scores: Float[np.ndarray, " images"]) -> Float[np.ndarray, " images"]:
        """The weighted mean of what is summed, at least 0; no probability."""
        weights = self.settings.scores
        total = weights.sentence + sum(getattr(weights, level) for level in self.settings.granularities)
        # a cosine may be negative, and all weights may be 0
        return np.asarray(np.clip(scores / max(total, 1e-9), 0, 1))

    @torch.inference_mode()
    def _of_pairs(
        self,
        regions: RegionFeatures,
        read: TokenBatch,
        of_images: Int[np.ndarray, " pairs"],
        of_sentences: Int[np.ndarray, " pairs"],
    ) -> Float[np.ndarray, " pairs"]:
        """The values of `similarities` for single pairs."""
        found = np.empty(len(of_images), np.float32)
        for held, groups in anchored_pairs(of_images, of_sentences, _HELD):
            # once a sentence: read again for each picture, an evaluation by class took over ten minutes with MiniLM
            # (docs/log/2026-11-22.md)
            sentences = self.project_sentences(read[held])
            for pairs, image_rows, rows in groups:
                pictures = self.project_pictures(regions[image_rows])
                with evaluating(self.model):
                    matches = self.model.match(
                        pictures, {level: projected[rows] for level, projected in sentences.items()}
                    )
                found[pairs] = self.total(matches).flatten().cpu().numpy()
        return found
