"""A loss: each image is told from the other images of the batch by its sentence, and each sentence by its image."""

from collections.abc import Mapping
from typing import Literal

import torch.nn.functional as F
from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor

from limner.losses.loss import Embedded, Loss, LossSettings, Terms, only_term


class InBatch(LossSettings):
    """The symmetric softmax over a batch (Radford et al., ICML 2021, Figure 3)."""

    kind: Literal["in-batch"] = "in-batch"
    """The loss."""
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Its weight in the stage's sum."""
    temperature: float = Field(default=0.1, gt=0, allow_inf_nan=False)
    """The cosines are divided by it."""

    @property
    def weights(self) -> Mapping[str, float]:
        """The weight of each of its terms."""
        return {"in-batch": self.weight}

    def build(self, dim: int, classes: int) -> "InBatchLoss":
        """The module, which has no parameters."""
        return InBatchLoss(self.temperature)


class InBatchLoss(Loss):
    """Cross-entropy of the cosines of a batch, image→text and text→image; all pairs of one group are right."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature  # named as the setting, so that each stage can set its own

    def forward(
        self,
        images: Float[Tensor, "batch dim"],
        texts: Float[Tensor, "batch dim"],
        groups: Int64[Tensor, " batch"],
    ) -> Float[Tensor, ""]:
        """The mean of both directions; features need not be normalised."""
        cosines = F.normalize(images, dim=1) @ F.normalize(texts, dim=1).T / self.temperature
        right = (groups[:, None] == groups[None, :]).float()
        target = right / right.sum(dim=1, keepdim=True)
        return (F.cross_entropy(cosines, target) + F.cross_entropy(cosines.T, target)) / 2

    def terms(self, batch: Embedded) -> Terms:
        """The loss of a batch; in fp32, since half precision has steps of 1/256 near a cosine of 1."""
        return only_term("in-batch", self(batch.images.float(), batch.texts.float(), batch.groups))
