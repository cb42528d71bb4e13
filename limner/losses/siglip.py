"""The sigmoid loss of SigLIP: each image and each sentence of a batch is a yes or no of its own.

Source: Zhai et al., "Sigmoid Loss for Language Image Pre-Training" (SigLIP), ICCV 2023, the section of that name and
Algorithm 1.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor, nn

from limner.losses.loss import Embedded, Loss, LossSettings, Terms, cosines


class SigLIP(LossSettings):
    """SigLIP's sigmoid loss on all pairs of a batch, with a learnt scale and bias."""

    kind: Literal["siglip"] = "siglip"
    """The loss."""
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Weight of the loss."""
    scale: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    """t, which cosines are multiplied by, at the start (Algorithm 1: t' = log 10); it is learnt. The same in all
    stages."""
    bias: float = Field(default=-10.0, allow_inf_nan=False)
    """b, which is added to them, at the start (Algorithm 1: −10); it is learnt. The same in all stages."""

    compares_pairs: ClassVar[bool] = True
    lasting: ClassVar[tuple[str, ...]] = ("scale", "bias")

    @property
    def part(self) -> str:
        """The learnt scale and bias."""
        return "siglip_scale"

    @property
    def weights(self) -> Mapping[str, float]:
        """The one weight."""
        return {"siglip": self.weight}

    def build(self, dim: int, classes: int) -> "SigLIPLoss":
        """The loss with its scale and bias."""
        return SigLIPLoss(self.scale, self.bias)


class SigLIPLoss(Loss, settings=SigLIP):
    """`−Σ_i Σ_j log sigmoid(z_ij · (t · cos(I_i, T_j) + b))`, divided by the number of pairs in the batch.

    Our name = their symbol: `log_scale` = t', with t = exp(t'); `bias` = b; z_ij = 1 for an image and a sentence that
    match and −1 for the others. Both are parameters; the optimiser gives them no weight decay
    (`limner.training.optimiser`), and `frozen` with the part `siglip_scale` holds them.

    **Decided**: z_ij = 1 for all of one group, where the paper has j = i alone. b has the sign of Algorithm 1, with
    which −10 makes a match unlikely at the start; the equation, as printed, has the other one. Rows beside the batch
    are not read. With several processes each has the negatives of all, gathered at once; the paper passes sentences
    around.
    """

    def __init__(self, scale: float = 10.0, bias: float = -10.0) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(math.log(scale)))
        self.bias = nn.Parameter(torch.tensor(float(bias)))

    def forward(
        self,
        images: Float[Tensor, "batch dim"],
        texts: Float[Tensor, "batch dim"],
        groups: Int64[Tensor, " batch"],
    ) -> Float[Tensor, ""]:
        """The loss of a batch, in float32 at least; features need not be normalised."""
        similarities = cosines(images, texts)
        logits = similarities * self.log_scale.to(similarities).exp() + self.bias.to(similarities)
        same = groups[:, None] == groups[None, :]
        # by pairs of the batch, not by all that are compared, as the paper: the sum of matches keeps its size
        return -F.logsigmoid(torch.where(same, logits, -logits)).sum() / len(groups)

    if TYPE_CHECKING:
        __call__ = forward

    def terms(self, batch: Embedded) -> Terms:
        """The loss "siglip"; t and b are shown as "siglip_scale" and "siglip_bias"."""
        return Terms(
            {"siglip": self.forward(batch.images, batch.texts, batch.groups)},
            {"siglip_scale": self.log_scale.detach().exp(), "siglip_bias": self.bias.detach().clone()},
        )
