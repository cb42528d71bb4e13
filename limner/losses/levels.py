"""HGAN's hinges over the similarities of words and of phrases.

Source: Zheng et al., HGAN, MM 2020, section 3.4, Eq. 9.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from jaxtyping import Bool, Float, Int64
from pydantic import Field, model_validator
from torch import Tensor

from limner.losses.loss import Embedded, Loss, LossSettings, Need, Terms
from limner.losses.ranking import Negatives, RankingLoss


class Levels(LossSettings):
    """The hinges over the local similarities of a batch's pairs, by words and by phrases."""

    kind: Literal["levels"] = "levels"
    """The loss."""
    word: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """Weight of the hinges over word similarities (Eq. 9); 0 leaves them out."""
    phrase: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """Weight of the hinges over phrase similarities (Eq. 9); 0 leaves them out."""
    margin: float = Field(default=0.2, ge=0, le=1, allow_inf_nan=False)
    """Margin of both, whose similarities lie in 0 … 1 (the paper does not say)."""
    negatives: Negatives = "sum"
    """The negatives of an anchor in both: all of the batch as in Eq. 9, or the "hardest" one."""

    of_embedding: ClassVar[bool] = False

    @model_validator(mode="after")
    def _some_term(self) -> "Levels":
        if not (self.word or self.phrase):
            raise ValueError("word and phrase are both 0; give one a weight, or leave the loss out")
        return self

    @property
    def needs(self) -> frozenset[Need]:
        """Similarities of words and of phrases."""
        return frozenset({"levels"})

    @property
    def weights(self) -> Mapping[str, float]:
        """One for each granularity."""
        return {"word": self.word, "phrase": self.phrase}

    def build(self, dim: int, classes: int) -> "LevelsLoss":
        """The loss, which has no parameters."""
        return LevelsLoss(self.margin, self.negatives)


class LevelsLoss(Loss, settings=Levels):
    """`Σ [γ − S(V, T) + S(V, T⁻)]₊ + [γ − S(V, T) + S(V⁻, T)]₊` of one granularity, averaged over the pairs.

    Our name = their symbol: `margin` = γ; `similarity[i, j]` = S of image i and sentence j.
    """

    def __init__(self, margin: float = 0.2, negatives: Negatives = "sum") -> None:
        super().__init__()
        self.margin = margin
        self.negatives = negatives
        # `use` puts a stage's weights here; only whether one is 0 counts, the objective multiplies by them
        self.word, self.phrase = 1.0, 1.0

    def forward(
        self,
        similarity: Float[Tensor, "batch batch"],
        counted: Bool[Tensor, " batch"],
        groups: Int64[Tensor, " batch"],
    ) -> Float[Tensor, ""]:
        """The mean over the pairs whose sentence is `counted`; 0 without such a pair.

        **Decided**: a sentence without a noun phrase takes no part in the hinges over phrases.
        """
        rows = counted.nonzero().squeeze(1)
        # the hinges are those of the ranking loss, of similarities that are no cosines
        # made at each call, since `use` sets margin and negatives here and would not reach a module within
        hinge = RankingLoss(self.margin, self.negatives)
        # **Decided**: the image of a sentence that is left out goes with it, also as a negative of the others
        hinges = hinge.of_similarities(similarity[rows][:, rows], groups[rows]) if len(rows) else 0.0
        # a batch without any phrase still has a gradient, of 0: processes that wait for one would wait for ever
        return hinges + 0.0 * similarity.sum()

    if TYPE_CHECKING:
        __call__ = forward

    def terms(self, batch: Embedded) -> Terms:
        """The losses "word" and "phrase" that have a weight."""
        return Terms(
            {
                name: self.forward(local.similarity, local.counted, batch.groups)
                for name, local in batch.local.items()
                if getattr(self, name)
            }
        )
