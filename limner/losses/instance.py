"""The instance loss: each image/text group is a class, and both modalities share one classifier.

Source: dual-path TOMM 2020, section 4.2, Eq. 5–8; the one-loss ablation is Eq. 11–12.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from pydantic import Field, model_validator
from torch import Tensor, nn

from limner.losses.blocked_softmax import SHORTEST, blocked_cross_entropy
from limner.losses.loss import Embedded, Examples, Loss, LossSettings, Need, Terms
from limner.losses.sampled_classes import draw_classes, rows_of
from limner.losses.sharded_classes import Shard, draw_of_shards, own_shard, random_rows, summed


class Instance(LossSettings):
    """The instance loss on images and on sentences with one classifier, or the one loss on their sum.

    Equations are those of the dual-path paper; HGAN's L_ide is the same loss.
    """

    kind: Literal["instance"] = "instance"
    """The loss."""
    visual: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """λ2, weight of the loss on images (Eq. 6); 0 leaves it out."""
    textual: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """λ3, weight of the loss on sentences (Eq. 8); 0 leaves it out."""
    joint: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Weight of the one loss on f_img + f_text (Eq. 11–12), an ablation; 0 leaves it out."""
    dropout: float = Field(default=0.75, ge=0, lt=1)
    """Dropout before the classifier (section 6.2: 0.75)."""
    scale: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """None = plain logits as in the paper; a number = cosine logits times it (a departure)."""
    smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Label smoothing (paper: 0)."""
    bias: bool = False
    """A bias in the classifier (released code, CUHK-PEDES and Flickr30k); stages share it: the same in all."""
    initial: Literal["random", "images"] = "random"
    """Rows of the classifier start at random, or at the mean image embedding of their class (a departure); the same in
    all stages."""
    block: int | None = Field(default=None, gt=0)
    """Classes whose logits are held at once, for very many of them; None = all. Loss and gradient are the same but for
    rounding; beside bf16, blocks are in float32."""
    sample: float = Field(default=1.0, gt=0, le=1)
    """Share of the classes that a step learns from: the batch's, the rest drawn (Partial FC, a departure); errors are
    then among these. 1 = all."""

    sharded: bool = False
    """Where several processes train, each holds a part of the classes' rows (the parallel classifier of ArcFace): loss
    and gradient are the same but for rounding. The same in all stages."""

    lasting: ClassVar[tuple[str, ...]] = ("bias", "initial", "sharded")

    @model_validator(mode="after")
    def _some_term(self) -> "Instance":
        if not (self.visual or self.textual or self.joint):
            raise ValueError("visual, textual and joint are all 0; give one a weight, or leave the loss out")
        return self

    @property
    def part(self) -> str:
        """The shared classifier."""
        return "classifier"

    @property
    def needs(self) -> frozenset[Need]:
        """A class for each pair."""
        return frozenset({"classes"})

    @property
    def weights(self) -> Mapping[str, float]:
        """λ2, λ3 and that of the sum."""
        return {"visual": self.visual, "textual": self.textual, "joint": self.joint}

    @property
    def sparse(self) -> bool:
        """True for a share of the classes."""
        return self.sample < 1

    @property
    def in_shards(self) -> bool:
        """True if asked for."""
        return self.sharded

    def build(self, dim: int, classes: int) -> "InstanceLoss":
        """The shared classifier."""
        # dropout, scale, smoothing and the terms may differ between stages: `Loss.use` sets them at each
        return InstanceLoss(dim, classes, bias=self.bias, initial=self.initial, sharded=self.sharded)


class InstanceLoss(Loss, settings=Instance):
    """`−log softmax(W_shareᵀ f)[c]`, averaged over the batch.

    Call it once with the image features and once with the sentence features: since `weight` is one
    parameter, both calls share the classifier (Eq. 5–8). Called with `f_img + f_text`, it is the ablation of Eq. 11–12.

    Our name = their symbol: `weight[c]` = W_c, rows of `W_shareᵀ`, shape (identities, dim); `groups` = c.

    - `bias`: the paper has none; the released code has one for CUHK-PEDES and Flickr30k.
    - `dropout`: probability on the features before the classifier (section 6.2: 0.75).
    - `scale`: None as the paper. A number is a **departure**: features and rows of W are L2-normalised and
      the cosine is multiplied by it, which bounds the logits and trains the angle that retrieval ranks by.
    - `smoothing`: label smoothing in [0, 1); 0 as the paper.
    - `sample`, an attribute: below 1 it is a **departure**, Partial FC (An et al., ICCVW 2021, arXiv 2010.05222, and
      CVPR 2022, arXiv 2203.15565). In training mode softmax and label smoothing go over the classes of the batch and
      others drawn uniformly for each call, `round(sample × identities)` together, or more if the batch has more. The
      gradients of `weight` and `bias` are sparse and hold the drawn rows alone, for an optimiser that takes such
      (`limner.training.sparse_rows.RowOptimiser`).
    - `sharded`: of several processes of `torch.distributed` each holds the rows of `shard`, and `weight` and `bias` are
      these. `forward` and `terms` are called in all of them, each with its own part of a batch, as many pairs; the loss
      is that of this part over all classes. The gradient of `weight` and `bias` is that of the mean over the processes,
      as DistributedDataParallel has it for what is held by each.

    The rows of W are drawn with standard deviation 1/√dim, so that features of unit variance give logits of it.
    """

    recordable = True

    def __init__(
        self,
        dim: int,
        identities: int,
        *,
        bias: bool = False,
        dropout: float = 0.0,
        scale: float | None = None,
        smoothing: float = 0.0,
        initial: Literal["random", "images"] = "random",
        sharded: bool = False,
    ) -> None:
        super().__init__()
        self._sized(dim, identities)
        self.shard = own_shard(identities) if sharded else None
        rows = torch.randn(identities, dim) if self.shard is None else random_rows(dim, self.shard)
        self.weight = nn.Parameter(rows / dim**0.5)
        self.bias = nn.Parameter(torch.zeros(len(rows))) if bias else None
        self.dropout = dropout
        self.scale = scale
        self.smoothing = smoothing
        self.initial = initial
        self.block: int | None = None
        self.sample = 1.0
        # which terms a stage has; `forward` alone, as a library's user calls it, does not ask
        self.visual, self.textual, self.joint = 1.0, 1.0, 0.0

    def forward(
        self, features: Float[Tensor, "batch dim"], groups: Int64[Tensor, " batch"]
    ) -> Float[Tensor, ""]:
        """The mean loss of a batch of one modality; `groups` are in 0 … identities − 1."""
        weight, bias, places, shard = self._learnt(groups)
        given = self._dropped(features)
        if self.block is not None or shard is not None:
            return self._blocked(given, weight, bias, places, shard)[0].mean()
        return self.of(self._logits(given, weight, bias), places)

    if TYPE_CHECKING:
        # nn.Module's own is typed as Any; this gives callers the types of `forward` and changes no call
        __call__ = forward

    def logits(self, features: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch identities"]:
        """W_shareᵀ f of all identities that this process holds, with bias, dropout and scale as set."""
        return self._logits(self._dropped(features), self.weight, self.bias)

    def _learnt(
        self, classes: Int64[Tensor, " batch"]
    ) -> tuple[
        Float[Tensor, "drawn dim"], Float[Tensor, " drawn"] | None, Int64[Tensor, " batch"], Shard | None
    ]:
        """The rows and biases that a step learns from, the places among them of the batch's classes, and where several
        processes hold rows, what of all that learn these are."""
        if self.sample == 1 or not self.training:
            return self.weight, self.bias, classes, self.shard
        if self.shard is None:
            drawn, shard = draw_classes(classes, len(self.weight), self.sample), None
            places = torch.searchsorted(drawn, classes)
        else:
            drawn, places, shard = draw_of_shards(classes, self.shard, self.sample)
        bias = None if self.bias is None else rows_of(self.bias, drawn)
        return rows_of(self.weight, drawn), bias, places, shard

    def _logits(
        self,
        given: Float[Tensor, "batch dim"],
        weight: Float[Tensor, "drawn dim"],
        bias: Float[Tensor, " drawn"] | None,
    ) -> Float[Tensor, "batch drawn"]:
        if self.scale is None:
            logits = F.linear(given, weight, bias)
        else:
            # dividing the logits by the lengths of W's rows spares several passes over all of W
            cosine = F.linear(given, weight) / weight.norm(dim=1).clamp(min=SHORTEST)
            logits = self.scale * cosine if bias is None else self.scale * cosine + bias
        # a softmax over thousands of classes loses its small terms in half precision
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def _dropped(self, features: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch dim"]:
        """The features that W is multiplied by."""
        # features of another type than W's would be refused; autocast sees to that itself
        is_cast = torch.is_autocast_enabled(features.device.type)
        given = features if is_cast else features.to(self.weight.dtype)
        given = given if self.scale is None else F.normalize(given, dim=1)
        return F.dropout(given, self.dropout, self.training)

    def _blocked(
        self,
        given: Float[Tensor, "rows dim"],
        weight: Float[Tensor, "drawn dim"],
        bias: Float[Tensor, " drawn"] | None,
        places: Int64[Tensor, " rows"],
        shard: Shard | None,
    ) -> tuple[Float[Tensor, " rows"], Bool[Tensor, " rows"]]:
        return blocked_cross_entropy(
            given,
            weight,
            bias,
            places,
            scale=self.scale,
            smoothing=self.smoothing,
            block=self.block or len(weight) or 1,
            shard=shard,
        )

    def of(
        self, logits: Float[Tensor, "batch identities"], groups: Int64[Tensor, " batch"]
    ) -> Float[Tensor, ""]:
        """The mean loss of `logits`."""
        return F.cross_entropy(logits, groups, label_smoothing=self.smoothing)

    def terms(self, batch: Embedded) -> Terms:
        """The losses "visual", "textual" and "joint" that have a weight, and NAME_error of each.

        The error is the share of the batch whose class does not have the highest logit, in percent (Figure 8). Dropout
        before the classifier counts as in the loss. With a `sample` below 1 one draw serves all of them, and the error
        is among the drawn classes: at most that among all.
        """
        weight, bias, places, shard = self._learnt(batch.classes)
        if self.block is not None or shard is not None:
            return self._blocked_terms(batch, weight, bias, places, shard)
        losses: dict[str, Tensor] = {}
        errors: dict[str, Tensor] = {}
        for name, features in self._classified(batch):
            # two products with W, not one over both: that was hardly faster (202, 197,
            # 190 pairs/s against 202, 190, 174 in turns) and drew dropout otherwise
            logits = self._logits(self._dropped(features), weight, bias)
            losses[name] = self.of(logits, places)
            errors[f"{name}_error"] = 100 * (logits.argmax(1) != places).float().mean()
        return Terms(losses, errors)

    def _blocked_terms(
        self,
        batch: Embedded,
        weight: Float[Tensor, "drawn dim"],
        bias: Float[Tensor, " drawn"] | None,
        places: Int64[Tensor, " batch"],
        shard: Shard | None,
    ) -> Terms:
        named = {name: self._dropped(features) for name, features in self._classified(batch)}
        # one pass over W for all of them: each would have a gradient of W's size
        losses, right = self._blocked(
            torch.cat([*named.values()]), weight, bias, places.repeat(len(named)), shard
        )
        wrong = 100 * (~right).float()
        return Terms(
            {name: part.mean() for name, part in zip(named, losses.chunk(len(named)), strict=True)},
            {f"{name}_error": part.mean() for name, part in zip(named, wrong.chunk(len(named)), strict=True)},
        )

    def _classified(self, batch: Embedded) -> Iterator[tuple[str, Tensor]]:
        if self.visual:
            yield "visual", batch.images
        if self.textual:
            yield "textual", batch.texts
        # an ablation: on Flickr8k it falls to 0.003 on the training
        # split and finds nothing (0.0 and 0.2 R@1), as in Table 8
        if self.joint:
            yield "joint", batch.images + batch.texts

    @torch.no_grad()
    def start(self, examples: Callable[[], Examples], *, first: bool) -> None:
        """Set the rows of W to the mean embedding of their class's images, at the scale of random rows."""
        if not first or self.initial == "random":
            return
        found = examples()
        images, classes, count = found.images, found.image_classes, len(self.weight)
        if self.shard is not None:
            classes, count = classes - self.shard.first, self.shard.classes
            held = (classes >= 0) & (classes < self.shard.held)
            images, classes = images[held], classes[held]
        # on the CPU, where the embeddings of a whole split are kept
        means = torch.zeros_like(self.weight, device="cpu")
        means.index_add_(0, classes, images)
        # sums would leave the common part below in the rows of large classes and take too much from small ones
        means /= torch.bincount(classes, minlength=len(means)).clamp(min=1)[:, None]
        common = means.sum(dim=0)
        if self.shard is not None:
            common = summed(common.to(self.weight.device)).cpu()
        # less what all classes have in common: otherwise all rows point nearly the same way
        self.weight.copy_(F.normalize(means - common / count, dim=1))
