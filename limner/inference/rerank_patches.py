"""Where the words of a sentence point in an image: patches of a vision tower against words, in the shared space.

Source: the states of single patches are taken through the tower's last layers and compared with the embeddings of
words, as Zhou et al., "Extract Free Dense Labels from CLIP", ECCV 2022, do with the names of classes.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, UInt8

from limner.data.transforms import ImageSettings
from limner.errors import SettingsError
from limner.inference.encoding import Encoding, evaluating
from limner.inference.image_engine import to_half
from limner.inference.precision import InferenceEngine, Precision, autocast, pick_precision
from limner.inference.reranker_base import RerankerBase, Scoring
from limner.models.dual_encoder import DualEncoder
from limner.models.pretrained import Pretrained
from limner.types import RegionFeatures, RerankScores, TokenBatch, Tokenizer

PLACES = 49
"""The most regions kept of an image: 7 × 7 of 768 numbers are 75 kB in half precision, 14 × 14 would be 300 kB."""

_SCALE = 100.0
"""Cosines times this are what the attention's softmax reads: the highest temperature that CLIP allows itself."""


class PatchReranker(RerankerBase):
    """A `limner.types.Reranker` that shows where words point and keeps the embedding's order.

    A region is the mean of the unit vectors of neighbouring patches. A word is embedded as a sentence of its own. Its
    attention is the softmax over the regions of 100 times the cosine; `logits` are the means over the words of the
    highest cosine. They order nothing: `scores` are the embedding's similarities, since patches of a pair that was not
    trained on them rank worse than the pair's own embedding. Raises `SettingsError` for a network without a vision
    tower.
    """

    # the similarities as they are
    scoring = Scoring((1.0, 0.0), 1.0)

    def __init__(
        self,
        model: DualEncoder,
        tokenizer: Tokenizer,
        images: ImageSettings,
        precision: Precision = "fp32",
        engine: InferenceEngine = "torch",
    ) -> None:
        if not isinstance(model, Pretrained) or model.tower is None:
            raise SettingsError("this network has no vision tower whose patches could be shown")
        self.model = model
        self.tower = model.tower
        self.device = next(model.parameters()).device
        self.precision = pick_precision(precision, self.device)
        self._tokenizer = tokenizer
        # in fp32, as queries are: a word's map should not change with who else asks
        self._encoding = Encoding(model, "fp32", flip=images.flip)
        rows, columns = self.tower.grid(*images.crop)
        shrink = min(1.0, math.sqrt(PLACES / (rows * columns)))
        self._grid = max(1, round(rows * shrink)), max(1, round(columns * shrink))

    @property
    def region_shape(self) -> tuple[int, int, int]:
        """Rows and columns of the regions, and the width of the shared space."""
        return *self._grid, self.model.dim

    @torch.inference_mode()
    def region_features(self, pixels: UInt8[np.ndarray, "images height width 3"]) -> RegionFeatures:
        """Patches in the shared space, averaged to `region_shape`."""
        found = []
        for start in range(0, len(pixels), self._encoding.batch):
            block = np.ascontiguousarray(pixels[start : start + self._encoding.batch])
            images = torch.from_numpy(block).to(self.device).permute(0, 3, 1, 2)
            with evaluating(self.model), autocast(self.precision, self.device):
                patches = F.normalize(self.model.embed_patches(images).float(), dim=3)
            pooled = F.adaptive_avg_pool2d(patches.permute(0, 3, 1, 2), self._grid)
            found.append(to_half(pooled.permute(0, 2, 3, 1), "the features of the patches"))
        return np.concatenate(found)

    def region_features_of_cached(
        self, cached: Float[np.ndarray, "images _height _width _channels"]
    ) -> RegionFeatures:
        """No cache keeps patches. Raises `SettingsError`."""
        raise SettingsError("patches of a pretrained tower are not cached; set the stage's views to 0")

    def rerank(self, sentence: str, regions: RegionFeatures) -> RerankScores:
        """The mean over the words of the highest cosine, and each word's attention over the regions."""
        words, cosines = self._cosines(sentence, regions)
        logits = cosines.max(2).mean(1) if words else np.zeros(len(regions), np.float32)
        heat = _SCALE * (cosines - cosines.max(2, keepdims=True)) if words else cosines
        weights = np.exp(heat)
        weights /= np.maximum(weights.sum(2, keepdims=True), 1e-12)
        of_regions = weights.reshape(len(regions), len(words), *self._grid)
        return RerankScores(logits.astype(np.float32), tuple(words), of_regions, None)

    def _cosines(
        self, sentence: str, regions: RegionFeatures
    ) -> tuple[list[str], Float[np.ndarray, "images words regions"]]:
        aligned = self._tokenized([sentence], words=True).words
        assert aligned is not None
        words = [word.text for word in aligned[0] if word.tokens and any(map(str.isalnum, word.text))]
        seen = np.asarray(regions, np.float32).reshape(len(regions), -1, self.model.dim)
        seen = seen / np.maximum(np.linalg.norm(seen, axis=2, keepdims=True), 1e-12)
        if not words:
            return words, np.zeros((len(regions), 0, seen.shape[1]), np.float32)
        # a word as a sentence of its own: towers learn the state of the whole, not that of each token
        token_ids = self._tokenized(words).token_ids
        vectors = self._encoding.token_ids(token_ids).numpy()
        return words, np.einsum("wd,ipd->iwp", vectors, seen).astype(np.float32)

    def _tokenized(self, sentences: Sequence[str], *, words: bool = False) -> TokenBatch:
        return self.model.tokenize(sentences, self._tokenizer, words=words)

    def _read(self, sentences: Sequence[str]) -> None:
        """Nothing: the words enter no score."""

    def logits(
        self,
        regions: RegionFeatures,
        read: None,
        of_images: Int[np.ndarray, " pairs"],
        of_sentences: Int[np.ndarray, " pairs"],
    ) -> Float[np.ndarray, " pairs"]:
        """0 of every pair: the embedding's order stays."""
        return np.zeros(len(of_images), np.float32)
