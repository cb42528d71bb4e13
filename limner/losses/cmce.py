"""The cross-modal cross-entropy (CMCE) loss: each sample is told from all identities, by the other modality's features.

Source: Li et al., "Identity-Aware Textual-Visual Matching with Latent Co-attention", ICCV 2017, section 3.1.1, Eq. 1–5.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor

from limner.errors import SettingsError
from limner.losses.blocked_softmax import blocked_cross_entropy
from limner.losses.loss import Embedded, Examples, Gather, Loss, LossSettings, Need, Terms, only_term

_BLOCK = 1 << 14
"""Identities whose affinities are held at once: 4 MB for a batch of 64."""


class CMCE(LossSettings):
    """The cross-modal cross-entropy over feature buffers."""

    kind: Literal["cmce"] = "cmce"
    """The loss."""
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Weight of the loss (Eq. 3)."""
    sigma_images: float = Field(default=0.04, gt=0, allow_inf_nan=False)
    """σ_v, temperature of an image's probabilities (Eq. 1)."""
    sigma_texts: float = Field(default=0.04, gt=0, allow_inf_nan=False)
    """σ_s, temperature of a sentence's probabilities (Eq. 2)."""
    keep: float = Field(default=0.5, ge=0, lt=1)
    """Share of the old row when the row of an identity with several pictures, or sentences, is updated (section 3.1.1:
    0.5). One with a single sample takes its new feature alone."""
    refill: int = Field(default=0, ge=0)
    """Epochs after which the feature buffers are filled again by the current network; 0 = only before the first step,
    as in the paper."""
    renormalise: bool = False
    """L2-normalise the rows of the feature buffers after each update (not in the paper)."""

    remembers: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[Need]:
        """The identities, which are its classes."""
        return frozenset({"classes"})

    @property
    def weights(self) -> Mapping[str, float]:
        """The one weight."""
        return {"cmce": self.weight}

    def build(self, dim: int, classes: int) -> "CMCELoss":
        """The loss with empty buffers."""
        return CMCELoss(dim, classes)


class CMCELoss(Loss, settings=CMCE):
    """`−Σ_v log p^S_{t_v}(v) − Σ_s log p^V_{t_s}(s)` (Eq. 3), divided by the number of pairs.

    Two buffers hold a feature of each identity: `texts` those of its sentences, `images` those of its pictures. A
    picture's probabilities are a softmax over `texts`, a sentence's over `images` (Eq. 1–2). No gradient flows
    into the buffers (Eq. 4–5): they change by `fill`, before the first step, and by `update`, after each.

    Our name = their symbol: `texts` = Sᵀ and `images` = Vᵀ, shape (identities, dim), so rows are their columns;
    `sigma_images` = σ_v, `sigma_texts` = σ_s (section 4.2: 0.04); `keep` = 0.5, the old row's share in an update of an
    identity with several samples.

    Features are L2-normalised (section 4.2), here within. **Decided**: the sum of Eq. 3 is divided by the number of
    pairs, so that rates do not depend on the batch; samples of one identity in a batch are averaged before they
    enter its row; rows are not normalised again, as written, unless `renormalise` is set; "multiple entity images or
    descriptions" is asked of each buffer by itself, so a picture with five sentences, an identity of its own, takes its
    new feature in V and the average in S. `fill` counts the samples, of the whole training split.

    The affinities with all identities are never held: loss and gradients are gathered over blocks of `block`
    identities, with memory for batch × block of them.
    """

    images: Tensor
    texts: Tensor
    several_images: Tensor
    several_texts: Tensor

    def __init__(
        self,
        dim: int,
        identities: int,
        *,
        sigma_images: float = 0.04,
        sigma_texts: float = 0.04,
        keep: float = 0.5,
        renormalise: bool = False,
        block: int = _BLOCK,
    ) -> None:
        super().__init__()
        self._sized(dim, identities)
        # buffers: a resumed run must go on with the same rows, and no optimiser may touch them
        self.register_buffer("images", torch.zeros(identities, dim))
        self.register_buffer("texts", torch.zeros(identities, dim))
        # which identities have more than one picture, and sentence, in the training split
        self.register_buffer("several_images", torch.zeros(identities, dtype=torch.bool))
        self.register_buffer("several_texts", torch.zeros(identities, dtype=torch.bool))
        self.sigma_images = sigma_images
        self.sigma_texts = sigma_texts
        self.keep = keep
        self.renormalise = renormalise
        self.refill = 0
        self.block = block
        self._is_filled = False
        # not a buffer: it lives from `terms` to `after_step` of one step, and checkpoints are written between steps
        self._seen: tuple[Tensor, Tensor, Tensor] | None = None

    def forward(
        self,
        images: Float[Tensor, "batch dim"],
        texts: Float[Tensor, "batch dim"],
        groups: Int64[Tensor, " batch"],
    ) -> Float[Tensor, ""]:
        """The loss of a batch of pairs; `groups` are their identities, 0 … identities − 1.

        Raises `SettingsError` before the buffers are filled.
        """
        self._expect_filled()
        of_images = self._cross_entropy(images, self.texts, groups, self.sigma_images)
        of_texts = self._cross_entropy(texts, self.images, groups, self.sigma_texts)
        return (of_images + of_texts).mean()

    if TYPE_CHECKING:
        __call__ = forward

    def terms(self, batch: Embedded) -> Terms:
        """The loss "cmce"; its features are kept for the update after the step."""
        # the update belongs behind the optimiser's step, but the features of this step are only here
        self._seen = batch.images.detach(), batch.texts.detach(), batch.classes
        return only_term("cmce", self.forward(batch.images, batch.texts, batch.classes))

    def start(self, examples: Callable[[], Examples], *, first: bool) -> None:
        """Fill the buffers by the current network, at the start of each stage."""
        found, device = examples(), self.images.device
        self.fill(
            found.images.to(device),
            found.image_classes.to(device),
            found.texts.to(device),
            found.text_classes.to(device),
        )

    def begin_epoch(self, epoch: int, examples: Callable[[], Examples]) -> None:
        """Fill the buffers again if `refill` says so."""
        if self.refill and epoch and epoch % self.refill == 0:
            # off by default: filled anew every epoch, generated people
            # had 16.1 text→image R@1 at epoch 16, without it 22.9
            self.start(examples, first=False)

    def after_step(self, gather: Gather) -> None:
        """Update the buffers with the features of the step, from all processes."""
        if self._seen is not None:
            # gathered in the same order everywhere, so that all processes hold the same rows
            images, texts, classes = (gather(part) for part in self._seen)
            self.update(images, texts, classes)
            self._seen = None

    def _expect_filled(self) -> None:
        """Refuse empty buffers: the loss would be log(identities) whatever the features, without a gradient."""
        # looked at until they are known to hold something: `fill` or a checkpoint may have filled them
        if not self._is_filled:
            self._is_filled = bool(self.images.any() and self.texts.any())
            if not self._is_filled:
                raise SettingsError(
                    "CMCELoss: its buffers are empty; call `fill` with the features of the training split before the "
                    "first step"
                )

    def _cross_entropy(
        self, features: Tensor, buffer: Tensor, groups: Tensor, sigma: float
    ) -> Float[Tensor, " batch"]:
        unit = F.normalize(features.to(torch.promote_types(features.dtype, buffer.dtype)), dim=1)
        # in float32 whatever the rest is: affinities over σ = 0.04 go up to 25, where bf16 has steps of an eighth. The
        # gradient is whole after one pass and is kept as batch × dim: a step over a million identities took 2.6 s and
        # 30 MB, with autograd 4.4 s and 1,025 MB (`benchmarks/cmce.py`)
        return blocked_cross_entropy(unit / sigma, buffer, None, groups, block=self.block)[0]

    @torch.no_grad()
    def fill(
        self,
        images: Float[Tensor, "pictures dim"],
        image_groups: Int64[Tensor, " pictures"],
        texts: Float[Tensor, "sentences dim"],
        text_groups: Int64[Tensor, " sentences"],
    ) -> None:
        """Set each identity's rows to the mean of its unit features; to be called before the first step."""
        for buffer, several, features, groups in (
            (self.images, self.several_images, images, image_groups),
            (self.texts, self.several_texts, texts, text_groups),
        ):
            which, means, counts = _means(F.normalize(features, dim=1), groups)
            buffer[which] = self._stored(means.to(buffer))
            several[which] = counts > 1

    @torch.no_grad()
    def update(
        self,
        images: Float[Tensor, "batch dim"],
        texts: Float[Tensor, "batch dim"],
        groups: Int64[Tensor, " batch"],
    ) -> None:
        """Update the rows of a batch's identities: `S_t ← s`, or `S_t ← 0.5 S_t + 0.5 s` for an identity with several
        sentences, and V likewise by its pictures.

        With several processes, give all of them the features of all.
        """
        for buffer, several, features in (
            (self.images, self.several_images, images),
            (self.texts, self.several_texts, texts),
        ):
            # one row an identity: writing each sample in turn would keep the last one alone
            which, means, _ = _means(F.normalize(features.to(buffer), dim=1), groups)
            keep = self.keep * several[which, None].to(buffer)
            buffer[which] = self._stored(keep * buffer[which] + (1 - keep) * means)

    def _stored(self, rows: Tensor) -> Tensor:
        # a mean of unit vectors is shorter than 1, as the paper leaves it: 10.0
        # text→image R@1 on generated people, 21.1 with rows normalised again
        return F.normalize(rows, dim=1) if self.renormalise else rows


def _means(
    features: Float[Tensor, "samples dim"], groups: Int64[Tensor, " samples"]
) -> tuple[Int64[Tensor, " present"], Float[Tensor, "present dim"], Int64[Tensor, " present"]]:
    """The identities among `groups`, the mean of each one's features, and how many these are."""
    which, member = torch.unique(groups, return_inverse=True)
    sums = features.new_zeros(len(which), features.shape[1]).index_add_(0, member, features)
    counts = torch.bincount(member, minlength=len(which))
    return which, sums / counts[:, None], counts
