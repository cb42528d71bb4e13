"""The triplet alignment loss (TAL): a hinge on all negatives of an anchor at once, the near ones before the others.

Source: Qin et al., "Noisy-Correspondence Learning for Text-to-Image Person Re-identification" (RDE), CVPR 2024,
"Triplet Alignment Loss".
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int64
from pydantic import Field
from torch import Tensor

from limner.losses.loss import Embedded, Loss, LossSettings, Terms, of_both_directions, only_term


class TAL(LossSettings):
    """The triplet alignment loss of a batch's images and sentences."""

    kind: Literal["tal"] = "tal"
    """The loss."""
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Weight of the loss."""
    margin: float = Field(default=0.1, ge=0, allow_inf_nan=False)
    """m, in cosine similarity (the released code: 0.1)."""
    temperature: float = Field(default=0.015, gt=0, allow_inf_nan=False)
    """τ, in cosine similarity: negatives so far below the hardest one still count (the released code: 0.015)."""

    compares_pairs: ClassVar[bool] = True

    @property
    def weights(self) -> Mapping[str, float]:
        """The one weight."""
        return {"tal": self.weight}

    def build(self, dim: int, classes: int) -> "TALLoss":
        """The loss, which has no parameters."""
        return TALLoss(self.margin, self.temperature)


class TALLoss(Loss, settings=TAL):
    """`[m − S⁺(I_i) + τ · log Σ_j q_ij exp(S(I_i, T_j) / τ)]₊`, averaged over the images i, and the same for the
    sentences, added.

    Our name = their symbol: `margin` = m, `temperature` = τ, S = cosine similarity; q_ij = 1 for a sentence of another
    identity and 0 for one of image i's own; S⁺(I_i) = Σ_j α_ij S(I_i, T_j), where α_i is the softmax of S(I_i, T_j) / τ
    over the sentences of its own identity.

    τ · log Σ exp(S / τ) is the highest similarity of a negative or more, so the loss is an upper bound of the ranking
    loss with the hardest negatives, and near it for a small τ; its gradient is spread over the negatives near the
    hardest one, whose pair may be wrong.

    **Decided**: the sum over the batch is its mean. No gradient flows into α, as in the released code; the text does
    not say. An anchor without a negative adds 0. Rows beside the batch are not read: they are mined to be hard, which
    the sum over all negatives is there to replace.
    """

    def __init__(self, margin: float = 0.1, temperature: float = 0.015) -> None:
        super().__init__()
        self.margin = margin
        self.temperature = temperature

    def forward(
        self,
        images: Float[Tensor, "batch dim"],
        texts: Float[Tensor, "batch dim"],
        groups: Int64[Tensor, " batch"],
    ) -> Float[Tensor, ""]:
        """Both directions of a batch, in float32 at least; features need not be normalised."""
        return self.of_pairs(images, texts, groups).mean()

    def of_pairs(
        self,
        images: Float[Tensor, "batch dim"],
        texts: Float[Tensor, "batch dim"],
        groups: Int64[Tensor, " batch"],
    ) -> Float[Tensor, " batch"]:
        """The loss of each pair of a batch: of its image and of its sentence as anchors."""
        return of_both_directions(self._of_anchors, images, texts, groups)

    if TYPE_CHECKING:
        __call__ = forward

    def terms(self, batch: Embedded) -> Terms:
        """The loss "tal"."""
        return only_term("tal", self.forward(batch.images, batch.texts, batch.groups))

    def _of_anchors(
        self, similarities: Float[Tensor, "batch batch"], same: Bool[Tensor, "batch batch"]
    ) -> Float[Tensor, " batch"]:
        scaled = similarities / self.temperature
        # a row of `same` is never empty: its own pair is in it
        alpha = scaled.detach().masked_fill(~same, -torch.inf).softmax(dim=1)
        positive = (alpha * similarities).sum(dim=1)
        # not the plain sum: exp(1 / 0.015) is 1e29 already, and for τ = 0.01 it is beyond float32
        negative = self.temperature * scaled.masked_fill(same, -torch.inf).logsumexp(dim=1)
        # −∞ without a negative, of which the hinge makes 0 without a gradient
        return (self.margin - positive + negative).relu()
