"""Late interaction: a picture's regions and a sentence's words compared one by one (MaxSim).

Sources: Khattab and Zaharia, "ColBERT: Efficient and Effective Passage Search via Contextualized Late Interaction over
BERT", SIGIR 2020, section 3; Yao et al., "FILIP: Fine-grained Interactive Language-Image Pre-Training", ICLR 2022,
section 3.1.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from limner.settings import Settings

_COSINES = 1 << 22
"""Cosines that are in memory at once, 16 MB in float32."""

_ABSENT = -2.0
"""Stands for the cosine of an empty position: below every cosine, and finite, since −inf of an empty sentence would
give NaN."""


class LateSettings(Settings):
    """Late interaction above both towers."""

    dim: int = Field(default=128, ge=1)
    """Width of a region's and a word's vector (ColBERT: 128)."""
    regions: int = Field(default=32, ge=1)
    """The most regions of a picture; the patches are averaged to a grid of so many or fewer. 32 of 128 numbers are 8 kB
    a picture in half precision."""
    weight: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """Weight of MaxSim beside the cosine of the wholes in a pair's score."""


class LateInteraction(nn.Module):
    """A linear layer a side, to unit vectors of regions and of words.

    **Decided**: regions are means of neighbouring patches, where FILIP keeps all patches and drops those that are least
    alike: a store then keeps 8 kB a picture whatever its size. The layers have no bias, as ColBERT's.
    """

    def __init__(self, settings: LateSettings, map_channels: int, text_channels: int) -> None:
        super().__init__()
        self.settings = settings
        self.of_regions = nn.Linear(map_channels, settings.dim, bias=False)
        self.of_words = nn.Linear(text_channels, settings.dim, bias=False)

    def regions(
        self, feature_map: Float[Tensor, "images channels height width"]
    ) -> Float[Tensor, "images rows columns dim"]:
        """Unit vectors of the regions of an image's last map."""
        height, width = feature_map.shape[2:]
        grid = grid_of(height, width, self.settings.regions)
        # the layer is linear: behind the mean it gives the same at fewer places
        pooled = F.adaptive_avg_pool2d(feature_map.float(), grid).permute(0, 2, 3, 1)
        return _unit(self.of_regions(pooled))

    def words(
        self, states: Float[Tensor, "sentences words channels"]
    ) -> Float[Tensor, "sentences words dim"]:
        """Unit vectors of tokens, from their last states."""
        return _unit(self.of_words(states))


def grid_of(rows: int, columns: int, most: int) -> tuple[int, int]:
    """Rows and columns of at most `most` regions in about the proportions of a map, and no more than the map has.

    >>> grid_of(14, 14, 32), grid_of(24, 8, 32), grid_of(4, 2, 32)
    ((5, 6), (9, 3), (4, 2))
    """
    if rows * columns <= most:
        return rows, columns
    kept = max(1, min(rows, most, math.isqrt(most * rows // columns)))
    return kept, min(columns, most // kept)


def maxsim(
    regions: Float[Tensor, "images regions dim"],
    words: Float[Tensor, "sentences words dim"],
    present: Bool[Tensor, "sentences words"],
) -> Float[Tensor, "images sentences"]:
    """MaxSim of all pairs of images and sentences, given as unit vectors; `present` says where there is a word.

    Our name = FILIP's symbol: `regions` = f_θ(x^I), `words` = g_φ(x^T); `_of_cosines` has their s^I and s^T. In float32
    at least, also under autocast, in blocks of images.
    """
    wide = torch.promote_types(regions.dtype, torch.float32)
    parts: Sequence[Tensor] = [regions.to(wide)]
    # how many blocks there are is a value of the input, which a recorded network must not depend on
    if not torch.compiler.is_exporting():
        parts = torch.split(parts[0], max(1, _COSINES // max(1, regions.shape[1] * present.numel())))
    # autocast would take the products in bf16, whose steps near 1 are 1/256
    with torch.autocast(regions.device.type, enabled=False):
        blocks = [
            _of_cosines(torch.einsum("ird,swd->isrw", block, words.to(wide)), present[None])
            for block in parts
        ]
    return torch.cat(blocks)


def maxsim_of_pairs(
    regions: Float[Tensor, "pairs regions dim"],
    words: Float[Tensor, "pairs words dim"],
    present: Bool[Tensor, "pairs words"],
) -> Float[Tensor, " pairs"]:
    """MaxSim of each image with the one sentence in the same row."""
    return _of_cosines(regions @ words.transpose(1, 2), present)


def _of_cosines(cosines: Float[Tensor, "*pairs regions words"], present: Tensor) -> Float[Tensor, "*pairs"]:
    """MaxSim of pairs from the cosines of their regions and words; 0 for a sentence without a word.

    - image → text (s^I): the mean over the regions of the highest cosine over the words;
    - text → image (s^T): the mean over the words of the highest cosine over the regions.

    **Decided**: the mean of both, one number a pair whichever side asks, so that what is learnt is what ranks. FILIP
    has s^I for an image's loss and s^T for a sentence's; ColBERT has the sum over the query's words alone, which would
    let long sentences outweigh the cosine of the wholes.
    """
    # `max`, not `amax`: backward needs the places of the highest alone, and not all cosines
    of_images = cosines.masked_fill(~present[..., None, :], _ABSENT).max(dim=-1).values.mean(dim=-1)
    of_words = cosines.max(dim=-2).values * present
    count = present.sum(dim=-1)
    of_texts = of_words.sum(dim=-1) / count.clamp(min=1)
    return torch.where(count > 0, (of_images + of_texts) / 2, 0.0)


def _unit(vectors: Tensor) -> Tensor:
    # float32: what autocast gives in bf16 would have lengths of 1 ± 1/256
    return F.normalize(vectors.to(torch.promote_types(vectors.dtype, torch.float32)), dim=-1)
