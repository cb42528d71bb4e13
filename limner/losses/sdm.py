"""Similarity distribution matching (SDM): how likely each sentence is for an image, held against which of them match.

Source: Jiang and Ye, "Cross-Modal Implicit Relation Reasoning and Aligning for Text-to-Image Person Retrieval" (IRRA),
CVPR 2023, "Similarity Distribution Matching".
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor

from limner.losses.loss import Embedded, Loss, LossSettings, Terms, cosines, only_term


class SDM(LossSettings):
    """Similarity distribution matching of a batch's images and sentences."""

    kind: Literal["sdm"] = "sdm"
    """The loss."""
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Weight of the loss."""
    temperature: float = Field(default=0.02, gt=0, allow_inf_nan=False)
    """τ, which cosines are divided by (the paper: 0.02)."""

    compares_pairs: ClassVar[bool] = True

    @property
    def weights(self) -> Mapping[str, float]:
        """The one weight."""
        return {"sdm": self.weight}

    def build(self, dim: int, classes: int) -> "SDMLoss":
        """The loss, which has no parameters."""
        return SDMLoss(self.temperature)


class SDMLoss(Loss, settings=SDM):
    """`Σ_j p_ij · log(p_ij / (q_ij + ε))`, averaged over the images i, and the same for the sentences, added.

    Our name = their symbol: p_i = softmax over j of cos(v_i, t_j) / τ; q_ij = y_ij / Σ_k y_ik, where y_ij = 1 for an
    image and a sentence of one identity; `temperature` = τ, `epsilon` = ε. It differs from the pair loss of HGAN by its
    cosines and its temperature.
    """

    def __init__(self, temperature: float = 0.02, epsilon: float = 1e-8) -> None:
        super().__init__()
        self.temperature = temperature
        self.epsilon = epsilon

    def forward(
        self,
        images: Float[Tensor, "batch dim"],
        texts: Float[Tensor, "batch dim"],
        groups: Int64[Tensor, " batch"],
    ) -> Float[Tensor, ""]:
        """Both directions of a batch, in float32 at least; features need not be normalised."""
        # plain cosines lie in −1 … 1, where a softmax over a batch is nearly flat
        logits = cosines(images, texts) / self.temperature
        same = groups[:, None] == groups[None, :]
        # `same` is symmetric, so its rows serve both directions; in half precision ε is 0 and log(q + ε) is −∞
        log_q = torch.log(same.to(logits.dtype) / same.sum(dim=1, keepdim=True) + self.epsilon)
        return _divergence(logits, log_q) + _divergence(logits.T, log_q)

    if TYPE_CHECKING:
        __call__ = forward

    def terms(self, batch: Embedded) -> Terms:
        """The loss "sdm"."""
        return only_term("sdm", self.forward(batch.images, batch.texts, batch.groups))


def _divergence(
    logits: Float[Tensor, "batch batch"], log_q: Float[Tensor, "batch batch"]
) -> Float[Tensor, ""]:
    """KL(p ‖ q + ε), the mean over the rows."""
    log_p = logits.log_softmax(dim=1)
    # not the log of a softmax: at cosines over 0.02 its small terms are 0
    return (log_p.exp() * (log_p - log_q)).sum(dim=1).mean()
