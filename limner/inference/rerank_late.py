"""The reranker by late interaction: MaxSim of regions and words beside the cosine of the wholes.

Source: Khattab and Zaharia, ColBERT, SIGIR 2020, section 3.5; MaxSim is that of `limner.models.late`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64, UInt8
from torch import Tensor

from limner.data.token_rows import by_word, longest
from limner.data.transforms import ImageSettings
from limner.errors import SettingsError
from limner.inference.encoding import SENTENCES, evaluating
from limner.inference.image_engine import BackbonePass, to_half
from limner.inference.precision import InferenceEngine, Precision, autocast, pick_precision
from limner.models.dual_encoder import DualEncoder
from limner.models.image import LAST_MAP
from limner.models.late import maxsim, maxsim_of_pairs
from limner.models.pretrained import Pretrained
from limner.types import PADDING, PairScorer, RegionFeatures, RerankScores, Tokenizer

_PAIRS = 256
"""Pairs that are scored at once: 256 of 32 regions and 64 words with 128 numbers are 12 MB."""

_IMAGES = 1024
"""Pictures that one sentence is scored with at once."""

_CACHED = 64
"""Cached maps that are read at once."""

ATTENTION_SCALE = 100.0
"""Cosines times this are what the attention's softmax reads, as with `PatchReranker`: nearly all of it is on the
highest, which alone counts for a word."""


@dataclass(frozen=True, eq=False)
class _Words:
    """The words' vectors of several sentences behind one another; sentence i has the rows `starts[i]:starts[i + 1]`."""

    vectors: Float[np.ndarray, "tokens dim"]
    starts: Int[np.ndarray, " ends"]

    def padded(
        self, sentences: Int[np.ndarray, " pairs"]
    ) -> tuple[Float[np.ndarray, "pairs words dim"], Bool[np.ndarray, "pairs words"]]:
        """A row of words a sentence, and which of them are there."""
        first = self.starts[sentences]
        counts = self.starts[sentences + 1] - first
        place = np.arange(max(1, int(counts.max(initial=0))))
        present = place < counts[:, None]
        # row 0 stands where there is no word; without any word at all there is not even that
        rows = np.where(present, first[:, None] + place, 0)
        vectors = self.vectors if len(self.vectors) else np.zeros((1, self.vectors.shape[1]), np.float16)
        return vectors[rows], present


class LateReranker:
    """A `limner.types.Reranker`: the cosine of the wholes + `late.weight` × MaxSim, in eval mode.

    A network that has learnt since needs a new one. What is kept of an image are the unit vectors of its regions, in
    half precision and without its mirror image. Words are rounded alike, so that a pair has one score whoever asks;
    both come from the text tower in fp32, as queries do. Raises `SettingsError` for a network without late interaction.
    """

    # a weighted sum and no probability, so classes have the mean of what ranks pairs
    class_mean: Literal["confidences", "scores"] = "scores"

    def __init__(
        self,
        model: DualEncoder,
        tokenizer: Tokenizer,
        images: ImageSettings,
        precision: Precision = "fp32",
        engine: InferenceEngine = "torch",
    ) -> None:
        if not isinstance(model, Pretrained) or model.late is None:
            raise SettingsError(
                "this network has no late interaction to re-rank by; train one with model.late={}"
            )
        self.model = model
        self.late = model.late
        self.device = next(model.parameters()).device
        self.precision = pick_precision(precision, self.device)
        self._tokenizer = tokenizer
        self._images = images
        self._engine = engine

    @cached_property
    def backbone(self) -> BackbonePass:
        """The folded copy of the image tower."""
        return BackbonePass(self.model.backbone, self.precision, self._engine)

    @cached_property
    def region_shape(self) -> tuple[int, int, int]:
        """Rows and columns of the regions, and the width of their vectors."""
        # the backbone says it by an image: strides and padding differ from network to network
        blank = np.zeros((1, *self._images.crop, 3), np.uint8)
        rows, columns, width = self.region_features(blank).shape[1:]
        return rows, columns, width

    @torch.inference_mode()
    def region_features(self, pixels: UInt8[np.ndarray, "images height width 3"]) -> RegionFeatures:
        """Unit vectors of the regions of cropped images."""
        last = self.backbone.map_until(pixels, LAST_MAP).permute(0, 3, 1, 2)
        return to_half(self.late.regions(last), "the features of the regions")

    @torch.inference_mode()
    def region_features_of_cached(
        self, cached: Float[np.ndarray, "images _height _width _channels"]
    ) -> RegionFeatures:
        """The same from cached features: last maps, or the maps that a learning layer reads."""
        rows = []
        for start in range(0, len(cached), _CACHED):
            # a copy: torch warns of read-only memory, which a memory map is
            block = torch.from_numpy(np.array(cached[start : start + _CACHED])).to(self.device)
            with evaluating(self.model), autocast(self.precision, self.device):
                last = self.model.backbone.read_map(block)
            rows.append(to_half(self.late.regions(last), "the features of the regions"))
        return np.concatenate(rows)

    def rerank(self, sentence: str, regions: RegionFeatures) -> RerankScores:
        """MaxSim with every image, and each word's attention over the regions: the mean over the word's tokens."""
        read = self.model.tokenize([sentence], self._tokenizer, words=True)
        assert read.words is not None
        words = [word for word in read.words[0] if word.tokens and any(map(str.isalnum, word.text))]
        vectors, present = self._encoded(read.token_ids)
        parts = [
            self._attended(regions[start : start + _IMAGES], vectors, present)
            for start in range(0, len(regions), _IMAGES)
        ]
        logits, weights = (np.concatenate(part) for part in zip(*parts, strict=True))
        of_regions = by_word(weights, words, 1, mean=True)
        rows, columns = regions.shape[1:3]
        of_regions = of_regions.reshape(len(regions), len(words), rows, columns)
        return RerankScores(logits, tuple(word.text for word in words), of_regions, None)

    @torch.inference_mode()
    def _attended(
        self,
        regions: RegionFeatures,
        vectors: Float[Tensor, "1 words dim"],
        present: Bool[Tensor, "1 words"],
    ) -> tuple[Float[np.ndarray, " images"], Float[np.ndarray, "images words regions"]]:
        seen = self._seen(regions)
        weights = (ATTENTION_SCALE * vectors @ seen.transpose(1, 2)).softmax(dim=2)
        return maxsim(seen, vectors, present)[:, 0].cpu().numpy(), weights.cpu().numpy()

    def _seen(self, regions: RegionFeatures) -> Float[Tensor, "images regions dim"]:
        return torch.from_numpy(np.array(regions)).to(self.device).float().flatten(1, 2)

    @torch.inference_mode()
    def _encoded(
        self, rows: Int64[np.ndarray, "sentences _words"]
    ) -> tuple[Float[Tensor, "sentences words dim"], Bool[Tensor, "sentences words"]]:
        """Unit vectors of words, and where they are, from token ids."""
        token_ids = torch.from_numpy(np.ascontiguousarray(rows[:, : longest(rows)])).to(self.device)
        with evaluating(self.model):
            vectors = self.late.words(self.model.text.token_features(token_ids))
        return vectors.half().float(), token_ids != PADDING

    def _words(self, sentences: Sequence[str]) -> _Words:
        read = self.model.tokenize(sentences, self._tokenizer)
        packed = [np.zeros((0, self.late.settings.dim), np.float16)]
        # once a scorer: an evaluation asks for every sentence with some twenty pictures, and from both sides
        for start in range(0, len(read), SENTENCES):
            vectors, present = self._encoded(read.token_ids[start : start + SENTENCES])
            packed.append(vectors[present].half().cpu().numpy())
        counts = np.count_nonzero(read.token_ids != PADDING, axis=1)
        return _Words(np.concatenate(packed), np.concatenate([[0], np.cumsum(counts)]))

    def pair_scorer(
        self,
        images: Float[np.ndarray, "images dim"],
        texts: Float[np.ndarray, "sentences dim"],
        regions: RegionFeatures,
        sentences: Sequence[str],
    ) -> PairScorer:
        """Scores of pairs given by positions; each sentence is encoded once."""
        words = self._words(sentences)

        def score(
            of_images: Int[np.ndarray, " pairs"], of_sentences: Int[np.ndarray, " pairs"]
        ) -> Float[np.ndarray, " pairs"]:
            logits = np.empty(len(of_images), np.float32)
            for start in range(0, len(of_images), _PAIRS):
                block = slice(start, start + _PAIRS)
                vectors, present = words.padded(of_sentences[block])
                with torch.inference_mode():
                    found = maxsim_of_pairs(
                        self._seen(regions[of_images[block]]),
                        torch.from_numpy(vectors).to(self.device).float(),
                        torch.from_numpy(present).to(self.device),
                    )
                logits[block] = found.cpu().numpy()
            # of the pairs alone: the product of all pictures and sentences would be thrown away for the most part
            return self.scores(np.einsum("pd,pd->p", images[of_images], texts[of_sentences]), logits)

        return score

    def scores(
        self, similarities: Float[np.ndarray, " images"], logits: Float[np.ndarray, " images"]
    ) -> Float[np.ndarray, " images"]:
        """The cosine of the wholes + `late.weight` × MaxSim."""
        return np.asarray(similarities + self.late.settings.weight * logits, np.float32)

    def confidences(self, scores: Float[np.ndarray, " images"]) -> Float[np.ndarray, " images"]:
        """The weighted mean of what is summed, at least 0; no probability."""
        return np.asarray(np.clip(scores / (1 + self.late.settings.weight), 0, 1), np.float32)
