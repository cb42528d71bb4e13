"""The contrastive loss over late interaction: pairs are as alike as their regions and words are (MaxSim).

Source: Yao et al., "FILIP: Fine-grained Interactive Language-Image Pre-Training", ICLR 2022, section 3.1.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from jaxtyping import Bool, Float, Int64
from pydantic import Field, model_validator
from torch import Tensor

from limner.losses.contrastive import ContrastiveLoss, expect_within_the_clip
from limner.losses.loss import Embedded, Gather, Loss, LossSettings, Need, Terms


class MaxSim(LossSettings):
    """The symmetric cross-entropy over MaxSim, with all pairs of a group as positives."""

    kind: Literal["maxsim"] = "maxsim"
    """The loss."""
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Weight of the loss."""
    temperature: float = Field(default=0.07, gt=0, allow_inf_nan=False)
    """τ, which MaxSim is divided by; if it is learnt, where it starts. The same in all stages."""
    learnt: bool = True
    """Learn the temperature, down to 0.01, as the part `maxsim_scale`; or hold it fixed. The same in all stages."""

    of_embedding: ClassVar[bool] = False
    lasting: ClassVar[tuple[str, ...]] = ("temperature", "learnt")

    @model_validator(mode="after")
    def _within_the_clip(self) -> "MaxSim":
        expect_within_the_clip(self.temperature, learnt=self.learnt)
        return self

    @property
    def part(self) -> str | None:
        """The learnt temperature."""
        return "maxsim_scale" if self.learnt else None

    @property
    def needs(self) -> frozenset[Need]:
        """MaxSim of all pairs of a batch."""
        return frozenset({"late"})

    @property
    def weights(self) -> Mapping[str, float]:
        """The one weight."""
        return {"maxsim": self.weight}

    def build(self, dim: int, classes: int) -> "MaxSimLoss":
        """The loss with its temperature."""
        return MaxSimLoss(self.temperature, learnt=self.learnt)


class MaxSimLoss(Loss, settings=MaxSim):
    """`−Σ_j q_ij · log softmax_j(S_ij / τ)`, averaged over the images i; the same for the sentences; their mean.

    Our name = their symbol: `similarity` = S, which FILIP has as s^I and s^T (`limner.models.late` says what S is);
    `contrastive` = their loss. The temperature and the positives q are those of `ContrastiveLoss`, **decided** there.
    """

    def __init__(self, temperature: float = 0.07, *, learnt: bool = True) -> None:
        super().__init__()
        self.contrastive = ContrastiveLoss(temperature, learnt=learnt)

    def forward(
        self,
        similarity: Float[Tensor, "batch batch"],
        counted: Bool[Tensor, " batch"],
        groups: Int64[Tensor, " batch"],
    ) -> Float[Tensor, ""]:
        """The mean over the pairs whose sentence is `counted`; 0 without such a pair.

        **Decided**: a pair whose sentence has no word takes no part, neither as an anchor nor as a negative.
        """
        rows = counted.nonzero().squeeze(1)
        # with a gradient of 0: processes that wait for one would wait for ever
        if not len(rows):
            return 0.0 * similarity.sum()
        return self.contrastive.of_similarities(similarity[rows][:, rows], groups[rows])

    if TYPE_CHECKING:
        __call__ = forward

    def terms(self, batch: Embedded) -> Terms:
        """The loss "maxsim"; a learnt 1/τ is shown as "maxsim_scale"."""
        late = batch.local["late"]
        loss = self.forward(late.similarity, late.counted, batch.groups)
        if self.contrastive.log_scale is None:
            return Terms({"maxsim": loss})
        return Terms({"maxsim": loss}, {"maxsim_scale": self.contrastive.scale(loss).detach()})

    def after_step(self, gather: Gather) -> None:
        """Clip a learnt 1/τ at 100; all processes have the same one."""
        self.contrastive.after_step(gather)
