"""Hub correction: items that are near to every query lose what they are nearer than others.

In many dimensions some items are among the nearest of far more queries than others: hubs. Their score is lowered by how
near they are to the training items of the other modality.

Sources: Smith et al., "Offline bilingual word vectors, orthogonal transformations and the inverted softmax", ICLR 2017,
section 2.2; Bogolin et al., "Cross Modal Retrieval with Querybank Normalisation", CVPR 2022; the coordinates that make
it part of an embedding: Bachrach et al., "Speeding Up the Xbox Recommender System Using a Euclidean Transformation for
Inner-Product Spaces", RecSys 2014. Cited from memory.
"""

import math

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from limner.settings import Settings

MORE_COORDINATES = 4
"""Numbers that stand behind an embedding for its correction."""

# of centred corrections, in cosine; on Flickr8k they have a deviation of 0.03 and stay below 0.1
_LEAST_LIMIT = 0.05
_HEADROOM = 1.5


class HubCorrectionSettings(Settings):
    """The correction of embeddings that are near to every query."""

    temperature: float = Field(default=0.1, gt=0, allow_inf_nan=False)
    """T of the inverted softmax, in cosine. From 0.05 to 0.1 R@1 of Flickr8k's validation split moves by 1.5 points."""
    items: int = Field(default=5000, ge=1)
    """The most training images, and training sentences, that an item is compared with; they stand in the checkpoint."""


class HubCorrection(nn.Module):
    """Unit embeddings whose product is the cosine less the correction of both items, scaled.

    With the bank b_1 … b_n of the other modality the correction of an item x is
    `h(x) = T log (1/n Σ_j exp(cos(x, b_j) / T))`, less its mean over the training items of x's own modality. A query's
    own correction is the same for all items, so ranking by `cos(q, x) − h(q) − h(x)` is ranking by the inverted
    softmax of Smith et al. (there p(x|q) ∝ exp(cos / T) / Σ_j exp(cos(x, b_j) / T)), in both directions.

    It is made a cosine again, so that search, index and evaluation need not know of it: with the limit B of |h|,
    an image's embedding `e` becomes `[e, −h/√B, √B, √(B − h²/B), 0] / √(1 + 2B)` and a sentence's
    `[e, √B, −h/√B, 0, √(B − h²/B)] / √(1 + 2B)`. These are of length 1, and the product of one of each is
    `(cos − h(image) − h(sentence)) / (1 + 2B)`. Of two images it is their cosine but for terms of the size of B.

    **Decided**: the bank is of the training split alone (Bogolin et al., too), never of the gallery's or of other
    queries; weight 1, as the inverted softmax has it. Before `fill` all corrections are 0.
    """

    images: Tensor
    texts: Tensor
    count: Tensor
    """How many rows of `images`, and of `texts`, are filled."""
    means: Tensor
    """Mean of h over the training images, and over the training sentences."""
    limit: Tensor

    def __init__(self, settings: HubCorrectionSettings, dim: int) -> None:
        super().__init__()
        self.settings = settings
        self._is_trimmed = False
        self.register_buffer("images", torch.zeros(settings.items, dim))
        self.register_buffer("texts", torch.zeros(settings.items, dim))
        self.register_buffer("count", torch.zeros(2, dtype=torch.int64))
        self.register_buffer("means", torch.zeros(2))
        self.register_buffer("limit", torch.tensor(_LEAST_LIMIT))

    @torch.no_grad()
    def fill(self, images: Float[Tensor, "images dim"], texts: Float[Tensor, "sentences dim"]) -> None:
        """Take unit embeddings of training images and sentences for the bank, at most `items` of each."""
        for number, (bank, found) in enumerate(((self.images, images), (self.texts, texts))):
            bank.zero_()
            bank[: len(found)] = found.to(bank)
            self.count[number] = len(found)
        self.means.zero_()
        corrections = self._of(self._kept(0), self._kept(1)), self._of(self._kept(1), self._kept(0))
        for number, found in enumerate(corrections):
            self.means[number] = found.mean()
        highest = max(float((found - found.mean()).abs().max()) for found in corrections)
        # items of other pictures may lie a little beyond; further ones are held to the limit
        self.limit.fill_(max(_LEAST_LIMIT, _HEADROOM * highest))

    def trimmed(self) -> "HubCorrection":
        """A copy for inference alone whose banks hold the filled rows and no others."""
        copied = HubCorrection(self.settings.replace(items=1), self.images.shape[1])
        copied.images, copied.texts = self._kept(0), self._kept(1)
        copied.count, copied.means, copied.limit = self.count, self.means, self.limit
        copied._is_trimmed = True
        return copied

    def of_images(self, unit: Float[Tensor, "images dim"]) -> Float[Tensor, "images _more"]:
        """Unit embeddings of images with their correction."""
        correction, constant, rest, nothing = self._coordinates(unit, self._kept(1), self.means[0])
        return self._joined(unit, correction, constant, rest, nothing)

    def of_texts(self, unit: Float[Tensor, "sentences dim"]) -> Float[Tensor, "sentences _more"]:
        """Unit embeddings of sentences with their correction."""
        correction, constant, rest, nothing = self._coordinates(unit, self._kept(0), self.means[1])
        return self._joined(unit, constant, correction, nothing, rest)

    def _kept(self, number: int) -> Tensor:
        bank = (self.images, self.texts)[number]
        return bank if self._is_trimmed else bank[: int(self.count[number])]

    def _of(self, unit: Tensor, bank: Tensor) -> Float[Tensor, " rows"]:
        """h before it is centred."""
        if not len(bank):
            return unit.new_zeros(unit.shape[0])
        temperature = self.settings.temperature
        near = torch.logsumexp(unit @ bank.to(unit).T / temperature, dim=1)
        return temperature * (near - math.log(len(bank)))

    def _coordinates(self, unit: Tensor, bank: Tensor, mean: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        limit = self.limit.to(unit)
        found = (self._of(unit, bank) - mean.to(unit)).clamp(-limit, limit)
        root = limit.sqrt()
        # clamped: rounding may leave less than nothing at the limit
        rest = (limit - found.square() / limit).clamp(min=0).sqrt()
        return -found / root, root.expand_as(found), rest, torch.zeros_like(found)

    def _joined(self, unit: Tensor, *behind: Tensor) -> Tensor:
        length = (1 + 2 * self.limit.to(unit)).sqrt()
        return torch.cat([unit, torch.stack(behind, dim=1)], dim=1) / length
