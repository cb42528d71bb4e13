"""The identity-aware system's reranker: co-attention between a sentence's words and an image's regions.

Source: Li et al., "Identity-Aware Textual-Visual Matching with Latent Co-attention", ICCV 2017, section 3.2.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

from limner.data.token_rows import longest
from limner.errors import SettingsError
from limner.inference.encoding import evaluating
from limner.inference.network_reranker import NetworkReranker, joined
from limner.inference.precision import autocast
from limner.inference.reranker_base import Attended, Scoring
from limner.models.co_attention import CrossEncoder, PairMatch
from limner.models.dual_encoder import DualEncoder
from limner.types import RegionFeatures, TokenBatch

_MEETINGS = 1 << 25
"""Size of the hidden layer of Eq. 6 that is in memory at once: 128 MiB of float32."""


class CoAttentionReranker(NetworkReranker):
    """A `limner.types.Reranker`: the cross-encoder of a network. Regions are the places of its backbone's last map."""

    # it takes nothing from the embedding but the shortlist; the sigmoid is the matching confidence C (Eq. 12)
    scoring = Scoring((0.0, 1.0), None)

    def _scoring_part(self, model: DualEncoder) -> CrossEncoder:
        if model.cross_encoder is None:
            raise SettingsError("this network has no cross-encoder to re-rank with")
        self.cross_encoder = model.cross_encoder
        return self.cross_encoder

    def cut(
        self, last: Float[Tensor, "images channels height width"]
    ) -> Float[Tensor, "images height width channels"]:
        """The last map with channels last."""
        return last.permute(0, 2, 3, 1)

    def region_features_of_cached(
        self, cached: Float[np.ndarray, "images _height _width _channels"]
    ) -> RegionFeatures:
        """The last maps of what the feature cache keeps, which is these maps unless the backbone learns in part."""
        if self.cross_encoder.backbone.learns_from is None:
            # a memory map is opened, not read: pairs ask for single rows of it
            return np.asarray(cached)
        return super().region_features_of_cached(cached)

    def _attended(self, regions: RegionFeatures, read: TokenBatch) -> Attended:
        step = self._at_once(regions, read.token_ids)
        matches = []
        for start in range(0, len(regions), step):
            block = regions[start : start + step]
            matches.append(self._match(block, read.token_ids, np.zeros(len(block), np.int64)))
        return joined([(match.logits, match.of_regions, match.of_words) for match in matches])

    def _read(self, sentences: Sequence[str]) -> Int64[np.ndarray, "sentences words"]:
        return self._tokenized(sentences).token_ids

    def logits(
        self,
        regions: RegionFeatures,
        read: Int64[np.ndarray, "sentences words"],
        of_images: Int[np.ndarray, " pairs"],
        of_sentences: Int[np.ndarray, " pairs"],
    ) -> Float[np.ndarray, " pairs"]:
        """The confidence before its sigmoid of pairs given by positions, in blocks that limit memory.

        Pairs of one sentence that stand together encode it once.
        """
        step = self._at_once(regions, read)
        found = np.empty(len(of_images), np.float32)
        for start in range(0, len(of_images), step):
            pairs = slice(start, start + step)
            # the text encoder runs once a sentence: twenty candidates of a query would otherwise encode it twenty times
            which, rows = np.unique(of_sentences[pairs], return_inverse=True)
            match = self._match(regions[of_images[pairs]], read[which], rows)
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
            found: PairMatch = self.cross_encoder.co_attention(
                self._seen(regions), words[which], present[which]
            )
        return found

    def _at_once(self, regions: RegionFeatures, token_ids: Int64[np.ndarray, "sentences words"]) -> int:
        """How many of these pairs are in memory at once."""
        height, width = int(regions.shape[1]), int(regions.shape[2])
        # a hidden vector for each word and region: nothing else of a pair is as large
        a_pair = height * width * longest(token_ids) * self.cross_encoder.settings.spatial_dim
        return max(1, _MEETINGS // a_pair)
