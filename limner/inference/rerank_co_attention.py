"""The identity-aware system's reranker: co-attention between a sentence's words and an image's regions.

Source: Li et al., "Identity-Aware Textual-Visual Matching with Latent Co-attention", ICCV 2017, section 3.2.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int, Int64, UInt8
from torch import Tensor

from limner.data.token_rows import by_word, longest
from limner.data.transforms import ImageSettings
from limner.errors import SettingsError
from limner.inference.encoding import evaluating
from limner.inference.image_engine import BackbonePass, to_half
from limner.inference.precision import InferenceEngine, Precision, autocast, pick_precision
from limner.models.co_attention import PairMatch
from limner.models.dual_encoder import DualEncoder
from limner.models.image import LAST_MAP
from limner.types import PairScorer, RegionFeatures, RerankScores, Tokenizer, Word

_MEETINGS = 1 << 25
"""Size of the hidden layer of Eq. 6 that is in memory at once: 128 MiB of float32."""

_CACHED = 64
"""Cached maps that are read at once."""


class CoAttentionReranker:
    """A `limner.types.Reranker`: the cross-encoder of a network, in eval mode.

    A cross-encoder that has learnt since needs a new one, as the backbone runs as a folded copy. Raises `SettingsError`
    for a network without a cross-encoder.

    **Decided**: regions are those of the image as it is, without its mirror image, whose regions would lie elsewhere.
    """

    # a picture outside a sentence's shortlist counts as 0, which is the lowest confidence but a middling logit
    class_mean: Literal["confidences", "scores"] = "confidences"

    def __init__(
        self,
        model: DualEncoder,
        tokenizer: Tokenizer,
        images: ImageSettings,
        precision: Precision = "fp32",
        engine: InferenceEngine = "torch",
    ) -> None:
        if model.cross_encoder is None:
            raise SettingsError("this network has no cross-encoder to re-rank with")
        self.cross_encoder = model.cross_encoder
        self.device = next(model.cross_encoder.parameters()).device
        self.precision = pick_precision(precision, self.device)
        self._model = model
        self._tokenizer = tokenizer
        self._images = images
        self._engine = engine

    # made when a picture is to be cut into regions: a search reads them from the store and needs no backbone
    @cached_property
    def backbone(self) -> BackbonePass:
        """The folded copy of the cross-encoder's backbone."""
        return BackbonePass(self.cross_encoder.backbone, self.precision, self._engine)

    @cached_property
    def region_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of an image's last map."""
        # the backbone says it by an image: strides and padding differ from network to network
        height, width, channels = self.region_features(np.zeros((1, *self._images.crop, 3), np.uint8)).shape[
            1:
        ]
        return height, width, channels

    def region_features(self, pixels: UInt8[np.ndarray, "images height width 3"]) -> RegionFeatures:
        """The last maps of cropped images. Raises `DataError` for values beyond half precision."""
        return to_half(self.backbone.map_until(pixels, LAST_MAP))

    @torch.inference_mode()
    def region_features_of_cached(
        self, cached: Float[np.ndarray, "images _height _width _channels"]
    ) -> RegionFeatures:
        """The last maps of what the feature cache keeps, which is these maps unless the backbone learns in part."""
        if self.cross_encoder.backbone.learns_from is None:
            # a memory map is opened, not read: pairs ask for single rows of it
            return np.asarray(cached)
        rows = []
        for start in range(0, len(cached), _CACHED):
            # a copy: torch warns of read-only memory, which a memory map is
            block = torch.from_numpy(np.array(cached[start : start + _CACHED])).to(self.device)
            with evaluating(self.cross_encoder), autocast(self.precision, self.device):
                rows.append(to_half(self.cross_encoder.map_pictures(block).permute(0, 2, 3, 1)))
        return np.concatenate(rows)

    def rerank(self, sentence: str, regions: RegionFeatures) -> RerankScores:
        """Score a sentence with every image: in one batched forward pass, or several to limit memory."""
        read = self._model.tokenize([sentence], self._tokenizer, words=True)
        assert read.words is not None
        # a word that the model does not know has no token, and so no attention to show
        words = [word for word in read.words[0] if word.tokens]
        step = self._at_once(regions, read.token_ids)
        parts = [
            self._attended(read.token_ids, regions[start : start + step], words)
            for start in range(0, len(regions), step)
        ]
        logits, of_regions, of_words = zip(*parts, strict=True)
        known = tuple(word.text for word in words)
        return RerankScores(np.concatenate(logits), known, _joined(of_regions), _joined(of_words))

    def pair_scorer(
        self,
        images: Float[np.ndarray, "images dim"],
        texts: Float[np.ndarray, "sentences dim"],
        regions: RegionFeatures,
        sentences: Sequence[str],
    ) -> PairScorer:
        """Logits of pairs given by positions; the embeddings do not enter them."""
        token_ids = self._model.tokenize(sentences, self._tokenizer).token_ids

        def score(
            of_images: Int[np.ndarray, " pairs"], of_sentences: Int[np.ndarray, " pairs"]
        ) -> Float[np.ndarray, " pairs"]:
            # token ids of the scorer, not of the call: evaluation calls it for each block of queries
            return self.logits(regions, token_ids, of_images, of_sentences)

        return score

    def scores(
        self, similarities: Float[np.ndarray, " images"], logits: Float[np.ndarray, " images"]
    ) -> Float[np.ndarray, " images"]:
        """The logits: the cross-encoder takes nothing from the embedding but the shortlist."""
        return logits

    def confidences(self, scores: Float[np.ndarray, " images"]) -> Float[np.ndarray, " images"]:
        """The matching confidence C (Eq. 12)."""
        return 1 / (1 + np.exp(-scores.astype(np.float64)))

    def logits(
        self,
        regions: RegionFeatures,
        token_ids: Int64[np.ndarray, "sentences words"],
        images: Int[np.ndarray, " pairs"],
        sentences: Int[np.ndarray, " pairs"],
    ) -> Float[np.ndarray, " pairs"]:
        """The confidence before its sigmoid of pairs given by positions, in blocks that limit memory.

        Pairs of one sentence that stand together encode it once.
        """
        step = self._at_once(regions, token_ids)
        found = np.empty(len(images), np.float32)
        for start in range(0, len(images), step):
            pairs = slice(start, start + step)
            # the text encoder runs once a sentence: twenty candidates of a query would otherwise encode it twenty times
            which, rows = np.unique(sentences[pairs], return_inverse=True)
            match = self._match(regions[images[pairs]], token_ids[which], rows)
            # the last layer is in fp32: in bf16 a query's twenty logits tied, which cost a point of R@1
            # (26.0 for 27.0, docs/log/2026-11-22.md)
            found[pairs] = match.logits.float().cpu().numpy()
        return found

    @torch.inference_mode()
    def _match(
        self,
        regions: RegionFeatures,
        token_ids: Int64[np.ndarray, "sentences words"],
        rows: Int[np.ndarray, " images"],
    ) -> PairMatch:
        """One batched forward: image i with sentence `rows[i]`."""
        taken = torch.from_numpy(np.ascontiguousarray(token_ids[:, : longest(token_ids)])).to(self.device)
        with evaluating(self.cross_encoder), autocast(self.precision, self.device):
            words, present = self.cross_encoder.encode_words(taken)
            which = torch.from_numpy(np.asarray(rows, dtype=np.int64)).to(self.device)
            # half precision is what travels, float32 what is computed with; regions may be a read-only memory map
            seen = torch.from_numpy(np.array(regions)).to(self.device).float().flatten(1, 2)
            found: PairMatch = self.cross_encoder.co_attention(seen, words[which], present[which])
        return found

    def _at_once(self, regions: RegionFeatures, token_ids: Int64[np.ndarray, "sentences words"]) -> int:
        """How many of these pairs are in memory at once."""
        height, width = int(regions.shape[1]), int(regions.shape[2])
        # a hidden vector for each word and region: nothing else of a pair is as large
        a_pair = height * width * longest(token_ids) * self.cross_encoder.settings.spatial_dim
        return max(1, _MEETINGS // a_pair)

    def _attended(
        self, token_ids: Int64[np.ndarray, "1 length"], regions: RegionFeatures, words: Sequence[Word]
    ) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
        """Logits and both attentions of some images, word by word."""
        match = self._match(regions, token_ids, np.zeros(len(regions), np.int64))
        of_regions, of_words = _array(match.of_regions), _array(match.of_words)
        if of_regions is not None:
            # each token's attention sums to 1, so that of a word of several is their mean; below, what all give it
            of_regions = by_word(of_regions, words, 1, mean=True)
            of_regions = of_regions.reshape(len(regions), len(words), *regions.shape[1:3])
        if of_words is not None:
            of_words = by_word(of_words, words, 2)
        return _array(match.logits), of_regions, of_words


def _array(values: Tensor | None) -> Any:
    return None if values is None else values.float().cpu().numpy()


def _joined(parts: Sequence[np.ndarray | None]) -> np.ndarray | None:
    given = [part for part in parts if part is not None]
    return np.concatenate(given) if given else None
