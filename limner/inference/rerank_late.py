"""The reranker by late interaction: MaxSim of regions and words beside the cosine of the wholes.

Source: Khattab and Zaharia, ColBERT, SIGIR 2020, section 3.5; MaxSim is that of `limner.models.late`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor

from limner.data.token_rows import longest
from limner.errors import SettingsError
from limner.inference.encoding import SENTENCES, evaluating
from limner.inference.network_reranker import Block, NetworkReranker, joined
from limner.inference.reranker_base import Attended, Scoring
from limner.models.dual_encoder import DualEncoder
from limner.models.late import maxsim, maxsim_of_pairs
from limner.models.pretrained import Pretrained
from limner.types import PADDING, RegionFeatures, TokenBatch

_PAIRS = 256
"""Pairs that are scored at once: 256 of 32 regions and 64 words with 128 numbers are 12 MB."""

_IMAGES = 1024
"""Pictures that one sentence is scored with at once."""

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


class LateReranker(NetworkReranker):
    """A `limner.types.Reranker`: the cosine of the wholes + `late.weight` × MaxSim.

    What is kept of an image are the unit vectors of its regions, in half precision. Words are rounded alike, so that a
    pair has one score whoever asks; both come from the text tower in fp32, as queries do.
    """

    model: Pretrained

    def _scoring_part(self, model: DualEncoder) -> Pretrained:
        if not isinstance(model, Pretrained) or model.late is None:
            raise SettingsError(
                "this network has no late interaction to re-rank by; train one with model.late={}"
            )
        self.late = model.late
        return model

    @property
    def scoring(self) -> Scoring:
        """The weighted sum of the cosine and MaxSim."""
        weight = self.late.settings.weight
        return Scoring((1.0, weight), 1 + weight, alphanumeric=True)

    def cut(
        self, last: Float[Tensor, "images _channels _height _width"]
    ) -> Float[Tensor, "images rows columns numbers"]:
        """Unit vectors of the regions."""
        return self.late.regions(last)

    @torch.inference_mode()
    def _attended(self, regions: RegionFeatures, read: TokenBatch) -> Attended:
        vectors, present = self._encoded(read.token_ids)
        blocks: list[Block] = []
        for start in range(0, len(regions), _IMAGES):
            seen = self._seen(regions[start : start + _IMAGES])
            weights = (ATTENTION_SCALE * vectors @ seen.transpose(1, 2)).softmax(dim=2)
            blocks.append((maxsim(seen, vectors, present)[:, 0], weights, None))
        return joined(blocks)

    @torch.inference_mode()
    def _encoded(
        self, rows: Int64[np.ndarray, "sentences _words"]
    ) -> tuple[Float[Tensor, "sentences words dim"], Bool[Tensor, "sentences words"]]:
        """Unit vectors of words, and where they are, from token ids."""
        token_ids = torch.from_numpy(np.ascontiguousarray(rows[:, : longest(rows)])).to(self.device)
        with evaluating(self.model):
            vectors = self.late.words(self.model.text.token_features(token_ids))
        return vectors.half().float(), token_ids != PADDING

    def _read(self, sentences: Sequence[str]) -> _Words:
        read = self._tokenized(sentences)
        packed = [np.zeros((0, self.late.settings.dim), np.float16)]
        # once a scorer: an evaluation asks for every sentence with some twenty pictures, and from both sides
        for start in range(0, len(read), SENTENCES):
            vectors, present = self._encoded(read.token_ids[start : start + SENTENCES])
            packed.append(vectors[present].half().cpu().numpy())
        counts = np.count_nonzero(read.token_ids != PADDING, axis=1)
        return _Words(np.concatenate(packed), np.concatenate([[0], np.cumsum(counts)]))

    def logits(
        self,
        regions: RegionFeatures,
        read: _Words,
        of_images: Int[np.ndarray, " pairs"],
        of_sentences: Int[np.ndarray, " pairs"],
    ) -> Float[np.ndarray, " pairs"]:
        """MaxSim of pairs given by positions, in blocks that limit memory."""
        logits = np.empty(len(of_images), np.float32)
        for start in range(0, len(of_images), _PAIRS):
            block = slice(start, start + _PAIRS)
            vectors, present = read.padded(of_sentences[block])
            with torch.inference_mode():
                found = maxsim_of_pairs(
                    self._seen(regions[of_images[block]]),
                    torch.from_numpy(vectors).to(self.device).float(),
                    torch.from_numpy(present).to(self.device),
                )
            logits[block] = found.cpu().numpy()
        return logits
