"""The network and its losses as one module: what several processes train together.

`L = λ1·L_rank + λ2·L_visual + λ3·L_textual` (dual-path TOMM 2020, Eq. 9), or the one loss on the sum (Eq. 12).
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from limner.losses import InstanceLoss, RankingLoss
from limner.models.dual_path import DualPath
from limner.training.settings import LossSettings


class Objective(nn.Module):
    """Computes the losses of a batch of pairs; the classifier lives on across stages."""

    def __init__(self, model: DualPath, identities: int, *, bias: bool) -> None:
        super().__init__()
        self.model = model
        self.classifier = InstanceLoss(model.dim, identities, bias=bias)
        self.ranking = RankingLoss()
        self.losses = LossSettings()

    def use(self, losses: LossSettings) -> None:
        """Set the losses of a stage."""
        self.losses = losses
        self.ranking = RankingLoss(losses.margin, losses.negatives)
        self.classifier.dropout = losses.dropout
        self.classifier.scale = losses.scale
        self.classifier.smoothing = losses.smoothing

    def parts(self) -> dict[str, list[nn.Parameter]]:
        """The network's parts and the classifier."""
        return {**self.model.parts(), "classifier": list(self.classifier.parameters())}

    def forward(
        self,
        pictures: Tensor,
        numbers: Int64[Tensor, "rows words"],
        groups: Int64[Tensor, " batch"],
        classes: Int64[Tensor, " batch"],
        extra_image_groups: Int64[Tensor, " more_images"] | None = None,
        extra_text_groups: Int64[Tensor, " more_texts"] | None = None,
    ) -> dict[str, Float[Tensor, ""]]:
        """The weighted "loss" and each unweighted part of it; of each instance loss, NAME_error, in percent.

        The error is the share of the batch whose class does not have the highest logit (TOMM 2020, Figure 8). Dropout
        before the classifier counts as in the loss.

        `groups` say what matches; `classes` what the classifier tells apart: the same unless pseudo-classes are used.

        `pictures` are pixels, uint8 (rows, 3, height, width), or what `DualPath.pool_cached` takes. Rows beyond the
        batch, of pictures and of sentences, are mined negatives with groups of their own: they enter the ranking
        loss only, though batch norm sees them.
        """
        batch = len(groups)
        pixels = pictures.dtype == torch.uint8
        pooled = self.model.pool_images(pictures) if pixels else self.model.pool_cached(pictures)
        all_images = self.model.embed_images(pooled)
        all_texts = self.model.encode_texts(numbers)
        images, texts = all_images[:batch], all_texts[:batch]
        weights = self.losses
        parts: dict[str, Tensor] = {}
        errors: dict[str, Tensor] = {}
        for name, features in self._classified(images, texts):
            logits = self.classifier.logits(features)
            parts[name] = self.classifier.of(logits, classes)
            errors[f"{name}_error"] = 100 * (logits.argmax(1) != classes).float().mean()
        if weights.ranking:
            parts["ranking"] = self.ranking(
                images.float(),
                texts.float(),
                groups,
                extra_images=None if extra_image_groups is None else all_images[batch:].float(),
                extra_image_groups=extra_image_groups,
                extra_texts=None if extra_text_groups is None else all_texts[batch:].float(),
                extra_text_groups=extra_text_groups,
            )
        total = torch.stack([getattr(weights, name) * value for name, value in parts.items()]).sum()
        return {"loss": total, **{name: value.detach() for name, value in parts.items()}, **errors}

    def _classified(self, images: Tensor, texts: Tensor) -> Iterator[tuple[str, Tensor]]:
        """The features whose classes the stage learns to tell, by the name of their loss."""
        if self.losses.visual:
            yield "visual", images
        if self.losses.textual:
            yield "textual", texts
        if self.losses.joint:
            yield "joint", images + texts
