"""Confidences of a matcher at test: what validation, evaluation and search share when they re-rank."""

from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int, Int64, UInt8

from limner.data.token_rows import longest
from limner.evaluation.reranking import PairScorer
from limner.inference.backbone_pass import BackbonePass, to_half
from limner.inference.encoding import evaluating
from limner.inference.precision import InferenceEngine, Precision, autocast, pick_precision
from limner.models.co_attention import CrossEncoder, PairMatch
from limner.models.image import LAST_MAP
from limner.types import Maps, TokenBatch

_MEETINGS = 1 << 25
"""Numbers that words and regions make where they meet (Eq. 6) at once: 128 MiB of float32."""


class Matching:
    """Matches with a matcher in eval mode; a matcher that has learnt since needs a new `Matching`.

    **Decided**: regions are those of the picture as it is, without its mirror image, whose regions would lie
    elsewhere.
    """

    def __init__(
        self, matcher: CrossEncoder, precision: Precision = "auto", engine: InferenceEngine = "torch"
    ) -> None:
        self.matcher = matcher
        self.device = next(matcher.parameters()).device
        self.precision = pick_precision(precision, self.device)
        self.engine = engine

    @cached_property
    def backbone(self) -> BackbonePass:
        """The folded copy of the matcher's backbone."""
        return BackbonePass(self.matcher.backbone, self.precision, self.engine)

    def maps(self, pixels: UInt8[np.ndarray, "images height width 3"]) -> Maps:
        """The last maps of cropped pictures. Raises `DataError` for values beyond half precision."""
        return to_half(self.backbone.map_until(pixels, LAST_MAP))

    @torch.inference_mode()
    def maps_of_cached(self, cached: Float[np.ndarray, "images _height _width _channels"]) -> Maps:
        """The last maps of what the feature cache keeps, which is these maps unless the backbone learns in part."""
        if self.matcher.backbone.learns_from is None:
            return np.asarray(cached)
        rows = []
        for start in range(0, len(cached), 64):
            block = torch.from_numpy(np.array(cached[start : start + 64])).to(self.device)
            with evaluating(self.matcher), autocast(self.precision, self.device):
                rows.append(to_half(self.matcher.map_pictures(block).permute(0, 2, 3, 1)))
        return np.concatenate(rows)

    @torch.inference_mode()
    def match(
        self,
        maps: Float[np.ndarray, "batch map_height map_width channels"],
        numbers: Int64[np.ndarray, "sentences words"],
        rows: Int[np.ndarray, " batch"] | None = None,
    ) -> PairMatch:
        """One batched forward: map i with sentence `rows[i]` (without `rows`: with sentence i)."""
        taken = torch.from_numpy(np.ascontiguousarray(numbers[:, : longest(numbers)])).to(self.device)
        with evaluating(self.matcher), autocast(self.precision, self.device):
            words, present = self.matcher.encode_words(taken)
            if rows is not None:
                which = torch.from_numpy(np.asarray(rows, dtype=np.int64)).to(self.device)
                words, present = words[which], present[which]
            seen = torch.from_numpy(np.array(maps)).to(self.device).float().flatten(1, 2)
            found: PairMatch = self.matcher.co_attention(seen, words, present)
        return found

    def at_once(self, maps: Maps, numbers: Int64[np.ndarray, "sentences words"]) -> int:
        """How many pairs of these memory should hold at once."""
        height, width = int(maps.shape[1]), int(maps.shape[2])
        a_pair = height * width * longest(numbers) * self.matcher.settings.spatial_dim
        return max(1, _MEETINGS // a_pair)

    def scorer(
        self,
        images: Float[np.ndarray, "images dim"],
        texts: Float[np.ndarray, "sentences dim"],
        maps: Maps,
        read: TokenBatch,
    ) -> PairScorer:
        """Logits of pairs given by positions; the embeddings do not enter them."""

        def score(
            of_images: Int[np.ndarray, " pairs"], of_sentences: Int[np.ndarray, " pairs"]
        ) -> Float[np.ndarray, " pairs"]:
            return self.logits(maps, read.token_ids, of_images, of_sentences)

        return score

    def logits(
        self,
        maps: Maps,
        numbers: Int64[np.ndarray, "sentences words"],
        images: Int[np.ndarray, " pairs"],
        sentences: Int[np.ndarray, " pairs"],
    ) -> Float[np.ndarray, " pairs"]:
        """The confidence before its sigmoid of pairs given by positions, as many at once as memory should hold.

        Pairs of one sentence that stand together encode it once.
        """
        step = self.at_once(maps, numbers)
        found = np.empty(len(images), np.float32)
        for start in range(0, len(images), step):
            pairs = slice(start, start + step)
            which, rows = np.unique(sentences[pairs], return_inverse=True)
            match = self.match(maps[images[pairs]], numbers[which], rows)
            found[pairs] = match.logits.float().cpu().numpy()
        return found
