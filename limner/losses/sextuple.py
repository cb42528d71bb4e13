"""The sextuple loss: a pair of image and sentence, a positive and a hard negative of each modality.

Source: MNiL (Zhang et al., "Multi-Networks Joint Learning for Large-Scale Cross-Modal Retrieval", MM 2017), section
3.2, Eq. 1–6, gradients Eq. 7–8. The weights are those of WARP (Weston et al., Machine Learning 2010).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor, nn

from limner.losses.loss import Embedded, Loss, LossSettings, Need, Terms

Direction = Literal["both", "image_to_text", "text_to_image"]

# ψ(k + 1) = ℒ(k) − γ
_EULER = 0.5772156649015329


class Sextuple(LossSettings):
    """The sextuple loss with hard negatives that are found as WARP does."""

    kind: Literal["sextuple"] = "sextuple"
    """The loss."""
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Weight of the loss (Eq. 6)."""
    rho: float = Field(default=0.3, ge=0, allow_inf_nan=False)
    """ρ, margin between the modalities, in cosine similarity (Eq. 1 and 3)."""
    tau: float = Field(default=0.5, ge=0, allow_inf_nan=False)
    """τ, margin within a modality, in cosine similarity (Eq. 4–5)."""
    beta_images: float = Field(default=0.1, ge=0, allow_inf_nan=False)
    """β₁, weight of the term within the images (Eq. 6)."""
    beta_texts: float = Field(default=0.2, ge=0, allow_inf_nan=False)
    """β₂, weight of the term within the sentences (Eq. 6)."""
    direction: Direction = "both"
    """Both directions, or only "image_to_text" or "text_to_image", the paper's variants."""
    relevant: Literal["class", "label"] = "class"
    """Positives share the class (see `Recipe.classes`), or at least one label."""
    queue: int = Field(default=4096, ge=1)
    """The most recent pairs, from which hard negatives are drawn; memory is needed for their embeddings alone,
    however large the set."""

    remembers: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[Need]:
        """Positives and hard negatives beside the batch, and the labels that say what is relevant."""
        return frozenset({"sextuples"} if self.relevant == "class" else {"sextuples", "labels"})

    @property
    def weights(self) -> Mapping[str, float]:
        """The one weight."""
        return {"sextuple": self.weight}

    def build(self, dim: int, classes: int) -> "SextupleLoss":
        """The loss; its queue is made when a stage begins."""
        return SextupleLoss(dim=dim)


class SextupleLoss(Loss, settings=Sextuple):
    """`O(X, Y)` of Eq. 6, averaged over the sextuples.

    An image x_i meets a relevant sentence y_j and a hard negative y_k (the paper: violator), found in the v_x-th draw;
    its sentence y_i a relevant image x_j and a hard negative x_k, found in the v_y-th. The same serve within each side:

        ℒ(⌊(n−1)/v_x⌋) · [ρ + f(x_i,y_k) − f(x_i,y_j)]₊ + ℒ(⌊(n−1)/v_y⌋) · [ρ + f(x_k,y_i) − f(x_j,y_i)]₊
        + β₁ [τ + f(x_i,x_k) − f(x_i,x_j)]₊ + β₂ [τ + f(y_i,y_k) − f(y_i,y_j)]₊

    Our name = their symbol: rows of `images`, `positive_images`, `negative_images` = x_i, x_j, x_k or p, p⁺, p⁻, those
    of the texts y_i, y_j, y_k or t, t⁺, t⁻; `sentence_draws` = v_x, `image_draws` = v_y, `samples` = n; `rho` = ρ (0.3
    in section 3.3), `tau` = τ (0.5), `beta_images` = β₁ (0.1 in section 4.1), `beta_texts` = β₂ (0.2); f = the dot
    product of the rows as they are given, for which unit rows keep f ≤ 1 as section 3.2 has it.

    `direction` leaves one direction's terms: MNiL (I→T) the first and the third, MNiL (T→I) the other two. **Decided**:
    the sum of Eq. 6 is divided by the number of sextuples; where no hard negative was found (0 draws) there is no term
    of it, across the modalities or within one.
    """

    def __init__(
        self,
        *,
        rho: float = 0.3,
        tau: float = 0.5,
        beta_images: float = 0.1,
        beta_texts: float = 0.2,
        direction: Direction = "both",
        dim: int | None = None,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.samples = 0
        # made by `use`: its length is a setting of the stage
        self.queue: EmbeddingQueue | None = None
        self.rho = rho
        self.tau = tau
        self.beta_images = beta_images
        self.beta_texts = beta_texts
        self.direction = direction

    def forward(
        self,
        images: Float[Tensor, "batch dim"],
        texts: Float[Tensor, "batch dim"],
        positive_images: Float[Tensor, "batch dim"],
        positive_texts: Float[Tensor, "batch dim"],
        negative_images: Float[Tensor, "batch dim"],
        negative_texts: Float[Tensor, "batch dim"],
        *,
        image_draws: Int64[Tensor, " batch"],
        sentence_draws: Int64[Tensor, " batch"],
        samples: int,
    ) -> Float[Tensor, ""]:
        """The mean over the sextuples; `samples` is the number of training pairs."""
        terms = []
        if self.direction != "text_to_image":
            across = _hinge(self.rho, images, positive_texts, negative_texts)
            # Eq. 6 has ℒ within max(0, ·); it is never negative, so it may stand before
            terms.append(rank_weight(sentence_draws, samples).to(across) * across)
            within = _hinge(self.tau, images, positive_images, negative_images)
            # x_k was found for the sentence y_i and serves x_i as
            # well: six samples where Eq. 1–5 one by one would take ten
            terms.append(torch.where(image_draws > 0, self.beta_images * within, 0.0))
        if self.direction != "image_to_text":
            across = _hinge(self.rho, texts, positive_images, negative_images)
            terms.append(rank_weight(image_draws, samples).to(across) * across)
            within = _hinge(self.tau, texts, positive_texts, negative_texts)
            terms.append(torch.where(sentence_draws > 0, self.beta_texts * within, 0.0))
        return torch.stack(terms).sum(dim=0).mean()

    if TYPE_CHECKING:
        __call__ = forward

    def use(self, settings: LossSettings, samples: int) -> None:
        """Take over a stage's settings, with an empty queue."""
        assert isinstance(settings, Sextuple)
        assert self.dim is not None
        self.rho, self.tau, self.direction = settings.rho, settings.tau, settings.direction
        self.beta_images, self.beta_texts = settings.beta_images, settings.beta_texts
        self.samples = samples
        # empty at each stage: what the stage before embedded is far from what this one will
        # and of fixed length: a step takes 144 to 196 MB at 10⁴ to 10⁷ pairs (`benchmarks/mnil.py`), never n × n
        self.queue = EmbeddingQueue(self.dim, min(settings.queue, samples))

    def terms(self, batch: Embedded) -> Terms:
        """The loss "sextuple", and "violating": the percentage of irrelevant samples that violate the margin."""
        found, pairs = batch.sextuples, len(batch.groups)
        assert found is not None
        # unit rows: section 3.2 chooses ρ < 1 since f ≤ 1, or else
        # nearly everything violates the margin in its first draw
        images, texts = (F.normalize(rows.float(), dim=1) for rows in (batch.image_rows, batch.text_rows))
        loss = self.forward(
            *(images[:pairs], texts[:pairs]),
            # by index, since a positive may be a row of the batch
            # (Flickr30k: an image's neighbour is the image itself)
            *(images[found.positives[:, 0]], texts[found.positives[:, 1]]),
            *(images[-pairs:], texts[-pairs:]),
            image_draws=found.draws[:, 0],
            sentence_draws=found.draws[:, 1],
            samples=self.samples,
        )
        return Terms({"sextuple": loss}, {"violating": 100 * found.shares.mean()})


class EmbeddingQueue(nn.Module):
    """The embeddings of the most recent pairs, one slot each: image, sentence, and their numbers.

    The oldest slots are overwritten first. Embeddings are those that a batch is searched by, in eval mode. All of it is
    buffers, so that it is in the state that a run resumes from.
    """

    images: Tensor
    texts: Tensor
    image_numbers: Tensor
    sentence_numbers: Tensor
    oldest: Tensor

    def __init__(self, dim: int, slots: int) -> None:
        super().__init__()
        self.slots = slots
        for name in ("images", "texts"):
            self.register_buffer(name, torch.zeros(slots, dim))
        for name in ("image_numbers", "sentence_numbers"):
            self.register_buffer(name, torch.zeros(slots, dtype=torch.long))
        self.register_buffer("oldest", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def push(
        self,
        images: Float[Tensor, "pairs dim"],
        texts: Float[Tensor, "pairs dim"],
        image_numbers: Int64[Tensor, " pairs"],
        sentence_numbers: Int64[Tensor, " pairs"],
    ) -> None:
        """Put unit embeddings of pairs into the oldest slots; of more pairs than slots, the last ones.

        With several processes, give all of them the pairs of all.
        """
        count = min(len(images), self.slots)
        # `oldest` is a tensor: it is in the state that a run resumes from, and needs no wait for an accelerator
        places = (self.oldest + torch.arange(count, device=self.oldest.device)) % self.slots
        for buffer, rows in (
            (self.images, images),
            (self.texts, texts),
            (self.image_numbers, image_numbers),
            (self.sentence_numbers, sentence_numbers),
        ):
            # the last rows: of more pairs than slots, two would go
            # into one slot, and which of them stays is left open
            buffer[places] = rows[-count:].to(buffer)
        self.oldest.copy_((self.oldest + count) % self.slots)


def rank_weight(draws: Int64[Tensor, " batch"], samples: int) -> Float[Tensor, " batch"]:
    """`ℒ(⌊(n−1)/v⌋)` with `ℒ(k) = Σ_{i≤k} 1/i` (Eq. 2), in float64; 0 for 0 draws and for more than n − 1.

    No table of n sums: ℒ(k) is the digamma function at k + 1 and Euler's constant.

    >>> import torch
    >>> rank_weight(torch.tensor([1, 2, 4, 5, 0]), 5).tolist()  # 1 + 1/2 + 1/3 + 1/4, 1 + 1/2, 1, none, none
    [2.083333333333333, 1.5, 0.9999999999999999, 0.0, 0.0]
    """
    rank = torch.where(draws > 0, (samples - 1) // draws.clamp(min=1), 0)
    weight = torch.digamma(rank.double() + 1) + _EULER
    # by the rank, not by the sum: ψ(1) + γ is 0 only to rounding
    return torch.where(rank > 0, weight, 0.0)


def _hinge(
    margin: float,
    anchors: Float[Tensor, "batch dim"],
    positives: Float[Tensor, "batch dim"],
    negatives: Float[Tensor, "batch dim"],
) -> Float[Tensor, " batch"]:
    """max(0, margin + f(anchor, negative) − f(anchor, positive))."""
    return F.relu(margin + (anchors * negatives).sum(dim=1) - (anchors * positives).sum(dim=1))
