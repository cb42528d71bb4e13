"""The contrastive loss of CLIP: a softmax over the sentences of a batch for each image, and over its images for each
sentence.

Source: Radford et al., "Learning Transferable Visual Models From Natural Language Supervision" (CLIP), ICML 2021,
section 2.3 with Figure 3, and section 2.5 on the temperature.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from jaxtyping import Float, Int64
from pydantic import Field, model_validator
from torch import Tensor, nn

from limner.losses.loss import Embedded, Gather, Loss, LossSettings, Terms, cosines

Positives = Literal["group", "pair"]

_HIGHEST_SCALE = 100.0
"""1/τ at most, while it is learnt (section 2.5)."""


class Contrastive(LossSettings):
    """CLIP's symmetric cross-entropy (InfoNCE), with all pairs of a group as positives."""

    kind: Literal["contrastive"] = "contrastive"
    """The loss."""
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Weight of the loss."""
    temperature: float = Field(default=0.07, gt=0, allow_inf_nan=False)
    """τ, which cosines are divided by; if it is learnt, where it starts (section 2.5: 0.07). The same in all stages."""
    learnt: bool = True
    """Learn the temperature, down to 0.01, as the part `contrastive_scale`; or hold it fixed. The same in all
    stages."""
    positives: Positives = "group"
    """The positives of an anchor: all of its "group", or its own "pair" alone, literally as CLIP, where two pairs of a
    group are negatives of each other."""

    compares_pairs: ClassVar[bool] = True
    # a fixed temperature could differ between stages; one that is learnt lives on, and so do both settings
    lasting: ClassVar[tuple[str, ...]] = ("temperature", "learnt")

    @model_validator(mode="after")
    def _within_the_clip(self) -> "Contrastive":
        expect_within_the_clip(self.temperature, learnt=self.learnt)
        return self

    @property
    def part(self) -> str | None:
        """The learnt temperature."""
        # with an underscore, which stage names cannot have: STAGE-PART.safetensors is no stage's file
        return "contrastive_scale" if self.learnt else None

    @property
    def weights(self) -> Mapping[str, float]:
        """The one weight."""
        return {"contrastive": self.weight}

    def build(self, dim: int, classes: int) -> "ContrastiveLoss":
        """The loss with its temperature."""
        return ContrastiveLoss(self.temperature, learnt=self.learnt, positives=self.positives)


def expect_within_the_clip(temperature: float, *, learnt: bool) -> None:
    """Raise `ValueError` for a learnt temperature that would start beyond its clip."""
    if learnt and temperature * _HIGHEST_SCALE < 1:
        raise ValueError(
            f"a learnt temperature is clipped at 1/{_HIGHEST_SCALE:g}, so it starts there or above; got "
            f"{temperature:g}; give a higher one, or learnt=false"
        )


class ContrastiveLoss(Loss, settings=Contrastive):
    """`−Σ_j q_ij · log softmax_j(cos(I_i, T_j) / τ)`, averaged over the images i; the same for the sentences; their
    mean.

    Our name = their symbol: `temperature` = τ; the parameter `log_scale` = t of Figure 3, so that 1/τ = exp(t).

    **Decided**: q_ij is 1 / (how many sentences of the batch are of image i's group) for each of them and 0 for the
    others. CLIP has q_ij = 1 for j = i alone: its web pairs have no identities, and two descriptions of one person
    would be pushed apart here. Where each group is in the batch once both are the same. With several matches the loss
    has a floor, the entropy of q, which has no gradient.

    - `learnt`: t is a parameter, and `after_step` keeps 1/τ at 100 or below (section 2.5). Not in `forward`: a clamp
      there has no gradient above its limit, and t would stay where it is. The optimiser gives t no weight decay, as it
      gives none to biases (`limner.training.optimiser`).
    - `positives`: "pair" is CLIP to the letter.

    Rows beside the batch are not read: they were mined to be hard, and p would not be a distribution over a random
    batch. With several processes each has the negatives of all, as CLIP has (`LossSettings.compares_pairs`).
    """

    def __init__(
        self, temperature: float = 0.07, *, learnt: bool = True, positives: Positives = "group"
    ) -> None:
        super().__init__()
        self.temperature = temperature
        # the logarithm, as CLIP has it: a step of the optimiser is a ratio, and 1/τ stays positive
        self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature))) if learnt else None
        self.positives = positives

    def forward(
        self,
        images: Float[Tensor, "batch dim"],
        texts: Float[Tensor, "batch dim"],
        groups: Int64[Tensor, " batch"],
    ) -> Float[Tensor, ""]:
        """Both directions of a batch, in float32 at least; features need not be normalised."""
        return self.of_similarities(cosines(images, texts), groups)

    if TYPE_CHECKING:
        __call__ = forward

    def of_similarities(
        self, similarities: Float[Tensor, "batch batch"], groups: Int64[Tensor, " batch"]
    ) -> Float[Tensor, ""]:
        """The same from similarities, whose row i is of image i and whose column j is of sentence j."""
        logits = similarities * self.scale(similarities)
        if self.positives == "group":
            same = groups[:, None] == groups[None, :]
        else:
            same = torch.eye(len(groups), dtype=torch.bool, device=groups.device)
        # `same` is symmetric, so its rows serve both directions
        targets = same.to(logits.dtype) / same.sum(dim=1, keepdim=True)
        return (_cross_entropy(logits, targets) + _cross_entropy(logits.T, targets)) / 2

    def scale(self, like: Tensor) -> Float[Tensor, ""]:
        """1/τ, with the type and device of `like`."""
        if self.log_scale is None:
            return like.new_tensor(1 / self.temperature)
        return self.log_scale.to(like).exp()

    def terms(self, batch: Embedded) -> Terms:
        """The loss "contrastive"; a learnt 1/τ is shown as "contrastive_scale"."""
        loss = self.forward(batch.images, batch.texts, batch.groups)
        if self.log_scale is None:
            return Terms({"contrastive": loss})
        return Terms({"contrastive": loss}, {"contrastive_scale": self.scale(loss).detach()})

    @torch.no_grad()
    def after_step(self, gather: Gather) -> None:
        """Clip a learnt 1/τ at 100; all processes have the same one."""
        if self.log_scale is not None:
            self.log_scale.clamp_(max=math.log(_HIGHEST_SCALE))


def _cross_entropy(
    logits: Float[Tensor, "batch batch"], targets: Float[Tensor, "batch batch"]
) -> Float[Tensor, ""]:
    return -(targets * logits.log_softmax(dim=1)).sum(dim=1).mean()
