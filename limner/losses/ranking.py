"""The ranking loss: a hinge on cosine similarities, with an image anchor and a text anchor.

Source: dual-path TOMM 2020, section 4.1, Eq. 4. The paper does not say which negatives enter it; the released code
takes the hardest of a pool of sampled candidates.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from pydantic import Field
from torch import Tensor

from limner.losses.loss import Embedded, Loss, LossSettings, Need, Terms, dots, only_term

Negatives = Literal["hardest", "sum", "mean"]


class Ranking(LossSettings):
    """The ranking loss on the embeddings; the triplet loss of other papers."""

    kind: Literal["ranking"] = "ranking"
    """The loss."""
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """λ1 (dual-path, Eq. 9)."""
    margin: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """α, in cosine similarity."""
    negatives: Negatives = "hardest"
    """"hardest" negative of each anchor; or of all of them the "sum", or the "mean", as a random one gives."""
    candidates: int = Field(default=0, ge=0)
    """Random candidates an anchor's extra hard negative is mined from; 0 = the batch alone (released code: 256)."""

    compares_pairs: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[Need]:
        """Mined negatives, if there are candidates to mine them from."""
        return frozenset({"mined"}) if self.candidates else frozenset()

    @property
    def weights(self) -> Mapping[str, float]:
        """λ1."""
        return {"ranking": self.weight}

    def build(self, dim: int, classes: int) -> "RankingLoss":
        """The loss, which has no parameters."""
        return RankingLoss(self.margin, self.negatives)


class RankingLoss(Loss, settings=Ranking):
    """`max[0, α − (D(I_a,T_a) − D(I_a,T_n))] + max[0, α − (D(T_a,I_a) − D(T_a,I_n))]`, averaged over the pairs.

    Our name = their symbol: `margin` = α, cosine similarity = D, row i of `images` and of `texts` = (I_a, T_a).

    **Decided**: the negatives of an anchor are the other pairs of the batch and, where given, extra candidates
    (mined from a pool, `limner.training.hard_negatives`); items of the anchor's own group are never negatives.
    "hardest" takes for each anchor the one with the highest similarity (the paper's four-tuple with mined negatives);
    "sum" adds the hinges of all of them (the form of VSE0), a baseline. "mean" is their mean: what the released code
    for CUHK-PEDES has on average, which compares an anchor with one random negative. An anchor without a negative
    adds 0.
    """

    recordable = True

    def __init__(self, margin: float = 1.0, negatives: Negatives = "hardest") -> None:
        super().__init__()
        self.margin = margin
        self.negatives = negatives

    def forward(
        self,
        images: Float[Tensor, "batch dim"],
        texts: Float[Tensor, "batch dim"],
        groups: Int64[Tensor, " batch"],
        *,
        extra_images: Float[Tensor, "more_images dim"] | None = None,
        extra_image_groups: Int64[Tensor, " more_images"] | None = None,
        extra_texts: Float[Tensor, "more_texts dim"] | None = None,
        extra_text_groups: Int64[Tensor, " more_texts"] | None = None,
    ) -> Float[Tensor, ""]:
        """The mean over the batch of both hinges; features need not be normalised."""
        images, texts = F.normalize(images, dim=1), F.normalize(texts, dim=1)
        positive = (images * texts).sum(dim=1)
        # one positive for both anchors: D(I_a, T_a) = D(T_a, I_a)
        image_anchor = self._hinge(images, groups, positive, texts, groups, extra_texts, extra_text_groups)
        text_anchor = self._hinge(texts, groups, positive, images, groups, extra_images, extra_image_groups)
        # the released code's weight of 2 on a sum over 16 anchors divided by the batch of 32 is 1 times this mean
        return (image_anchor + text_anchor).mean()

    if TYPE_CHECKING:
        __call__ = forward

    def terms(self, batch: Embedded) -> Terms:
        """The loss "ranking", with mined negatives if there are any."""
        pairs, mined = len(batch.groups), batch.mined
        return only_term(
            "ranking",
            self.forward(
                # features of half precision, too, are normalised in full precision
                batch.images.float(),
                batch.texts.float(),
                # not the classes: with pseudo-classes, two images of one class do not have each other's sentences
                batch.groups,
                extra_images=None if mined is None else batch.image_rows[pairs:].float(),
                extra_image_groups=None if mined is None else mined.image_groups,
                extra_texts=None if mined is None else batch.text_rows[pairs:].float(),
                extra_text_groups=None if mined is None else mined.text_groups,
            ),
        )

    def of_similarities(
        self, similarities: Float[Tensor, "batch batch"], groups: Int64[Tensor, " batch"]
    ) -> Float[Tensor, ""]:
        """The same for similarities of image i and text j that are not cosines (HGAN, Eq. 9)."""
        positive = similarities.diagonal()
        same_group = groups[:, None] == groups[None, :]
        image_anchor = self._of_anchors(similarities, positive, same_group)
        return (image_anchor + self._of_anchors(similarities.T, positive, same_group)).mean()

    def _hinge(
        self,
        anchors: Float[Tensor, "batch dim"],
        anchor_groups: Int64[Tensor, " batch"],
        positive: Float[Tensor, " batch"],
        others: Float[Tensor, "batch dim"],
        other_groups: Int64[Tensor, " batch"],
        extra: Float[Tensor, "more dim"] | None,
        extra_groups: Int64[Tensor, " more"] | None,
    ) -> Float[Tensor, " batch"]:
        if extra is not None and extra_groups is not None:
            # mined rows serve one anchor, so they are normalised here; those of the batch serve both
            others = torch.cat([others, F.normalize(extra, dim=1)])
            other_groups = torch.cat([other_groups, extra_groups])
        # by group and not by row: an image's other sentences, five in Flickr30k, are right as well
        same_group = anchor_groups[:, None] == other_groups[None, :]
        return self._of_anchors(dots(anchors, others), positive, same_group)

    def _of_anchors(
        self,
        similarity: Float[Tensor, "batch others"],
        positive: Float[Tensor, " batch"],
        same_group: Bool[Tensor, "batch others"],
    ) -> Float[Tensor, " batch"]:
        if self.negatives == "hardest":
            # an anchor without a negative has −∞ here, of which the hinge makes 0 without a gradient
            # with the paper's margin of 1 a network that starts at random may collapse: on
            # generated people the loss stayed at 2.0, equal similarities for both anchors
            hardest = similarity.masked_fill(same_group, -torch.inf).amax(dim=1)
            return F.relu(self.margin - positive + hardest)
        hinges = F.relu(self.margin - positive[:, None] + similarity)
        total = hinges.masked_fill(same_group, 0.0).sum(dim=1)
        if self.negatives == "sum":
            return total
        # its own negatives are counted, not the batch: groups differ in size
        return total / (~same_group).sum(dim=1).clamp(min=1)
