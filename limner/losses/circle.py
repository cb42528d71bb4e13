"""The circle loss: similarities are pulled the harder the further they are from where they should be.

Source: Sun et al., "Circle Loss: A Unified Perspective of Pair Similarity Optimization", CVPR 2020, the section on the
circle loss, with pair-wise labels.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from pydantic import Field
from torch import Tensor

from limner.losses.loss import Embedded, Loss, LossSettings, Terms, of_both_directions, only_term


class Circle(LossSettings):
    """The circle loss between a batch's images and sentences."""

    kind: Literal["circle"] = "circle"
    """The loss."""
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Weight of the loss."""
    margin: float = Field(default=0.25, ge=0, le=1)
    """m, the relaxation: matches are pulled to 1 − m and more, others pushed to m and less (0.25 for faces, as
    pytorch-metric-learning has it of the paper)."""
    gamma: float = Field(default=256.0, gt=0, allow_inf_nan=False)
    """γ, the scale of the similarities (256 for faces, beside m = 0.25; 80 for retrieval, beside 0.4: from
    the same source)."""

    compares_pairs: ClassVar[bool] = True

    @property
    def weights(self) -> Mapping[str, float]:
        """The one weight."""
        return {"circle": self.weight}

    def build(self, dim: int, classes: int) -> "CircleLoss":
        """The loss, which has no parameters."""
        return CircleLoss(self.margin, self.gamma)


class CircleLoss(Loss, settings=Circle):
    """`log[1 + Σ_j exp(γ α_n^j (s_n^j − Δ_n)) · Σ_i exp(−γ α_p^i (s_p^i − Δ_p))]` of an anchor's similarities: s_p with
    what matches it, s_n with the others.

    Our name = their symbol: `margin` = m, `gamma` = γ; α_p = [1 + m − s_p]₊ and α_n = [s_n + m]₊, that is O_p = 1 + m
    and O_n = −m; Δ_p = 1 − m, Δ_n = m. No gradient flows into the weights α: the paper's own gradients have γ(s_n + m)
    and γ(s_p − 1 − m) as factors.

    **Decided**: the paper compares features of one kind. Here an anchor is an image and its similarities are those with
    the sentences of the batch, or the other way round; s_p are those of its group, its own pair among them. Each
    direction is averaged over its anchors and the two are added, as in the ranking loss and SDM. An anchor without a
    negative adds 0. Rows beside the batch are not read.
    """

    def __init__(self, margin: float = 0.25, gamma: float = 256.0) -> None:
        super().__init__()
        self.margin = margin
        self.gamma = gamma

    def forward(
        self,
        images: Float[Tensor, "batch dim"],
        texts: Float[Tensor, "batch dim"],
        groups: Int64[Tensor, " batch"],
    ) -> Float[Tensor, ""]:
        """Both directions of a batch, in float32 at least; features need not be normalised."""
        return of_both_directions(self._of_anchors, images, texts, groups)

    if TYPE_CHECKING:
        __call__ = forward

    def terms(self, batch: Embedded) -> Terms:
        """The loss "circle"."""
        return only_term("circle", self.forward(batch.images, batch.texts, batch.groups))

    def _of_anchors(
        self, similarities: Float[Tensor, "batch batch"], same: Bool[Tensor, "batch batch"]
    ) -> Float[Tensor, ""]:
        # the weights as numbers: α_n (s_n − m) is s_n² − m², whose own gradient would vanish for a negative at 0
        fixed = similarities.detach()
        pulled = self.gamma * (1 + self.margin - fixed).relu() * (similarities - (1 - self.margin))
        pushed = self.gamma * (fixed + self.margin).relu() * (similarities - self.margin)
        # the product of the sums as a sum of logarithms: at γ = 256 a single exponent goes up to 1,000
        of_matches = (-pulled).masked_fill(~same, -torch.inf).logsumexp(dim=1)
        of_others = pushed.masked_fill(same, -torch.inf).logsumexp(dim=1)
        return F.softplus(of_matches + of_others).mean()
