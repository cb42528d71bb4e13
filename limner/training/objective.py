"""The network and its losses as one module: what several processes train together.

Dual-path: `L = λ1·L_rank + λ2·L_visual + λ3·L_textual` (TOMM 2020, Eq. 9), or the one loss on the sum (Eq. 12).
Identity-aware, stage 1: the CMCE loss (ICCV 2017, Eq. 3). MNiL: the sextuple loss (MM 2017, Eq. 6). HGAN: the pair loss
(MM 2020, Eq. 11), and hinges over the similarities of words and of phrases (Eq. 9).
"""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from limner.losses import CMCELoss, InstanceLoss, MatchingLoss, RankingLoss, SextupleLoss
from limner.models.dual_encoder import DualEncoder
from limner.models.hgan import HGAN, Level
from limner.models.local_matching import LocalMatch
from limner.training.loss_settings import LossSettings
from limner.training.violators import RecentBank


class Objective(nn.Module):
    """Computes the losses of a batch of pairs; the classifier lives on across stages.

    `classes` are those of the shared classifier, `compared` those of CMCE's feature buffers; 0 for what no
    stage uses.
    """

    def __init__(self, model: DualEncoder, classes: int, *, compared: int = 0, bias: bool = False) -> None:
        super().__init__()
        self.model = model
        self.classifier = InstanceLoss(model.dim, classes, bias=bias)
        self.cmce = CMCELoss(model.dim, compared) if compared else None
        self._seen: tuple[Tensor, Tensor, Tensor] | None = None
        self.ranking = RankingLoss()
        self.sextuple = SextupleLoss()
        self.pair = MatchingLoss()
        self.level = RankingLoss()
        self.bank: RecentBank | None = None
        self.samples = 0
        self.losses = LossSettings()

    def use(self, losses: LossSettings, samples: int = 0) -> None:
        """Set the losses of a stage.

        With sextuples there is then an empty bank, and `samples` is the number of training pairs.
        """
        self.losses, self.samples = losses, samples
        self.ranking = RankingLoss(losses.margin, losses.negatives)
        self.level = RankingLoss(losses.level_margin, losses.level_negatives)
        self.classifier.dropout = losses.dropout
        self.classifier.scale = losses.scale
        self.classifier.smoothing = losses.smoothing
        if self.cmce is not None:
            self.cmce.sigma_images, self.cmce.sigma_texts = losses.sigma_images, losses.sigma_texts
            self.cmce.keep, self.cmce.renormalise = losses.keep, losses.renormalise
        self.bank = None
        if losses.sextuple:
            self.sextuple = SextupleLoss(
                rho=losses.rho,
                tau=losses.tau,
                beta_images=losses.beta_images,
                beta_texts=losses.beta_texts,
                direction=losses.direction,
            )
            bank = RecentBank(self.model.dim, min(losses.bank, samples))
            self.bank = bank.to(next(self.model.parameters()).device)

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
        positives: Int64[Tensor, "batch 2"] | None = None,
        draws: Int64[Tensor, "batch 2"] | None = None,
        shares: Float[Tensor, "batch 2"] | None = None,
        phrases: Int64[Tensor, "rows words"] | None = None,
        words_below: Float[Tensor, "rows words width"] | None = None,
    ) -> dict[str, Float[Tensor, ""]]:
        """The weighted "loss" and each unweighted part of it; of each instance loss, NAME_error, in percent; of
        sextuples, "violating", the percentage of the irrelevant samples that violate the margin.

        The error is the share of the batch whose class does not have the highest logit (TOMM 2020, Figure 8). Dropout
        before the classifier counts as in the loss.

        `groups` say what matches; `classes` what the classifier tells apart: the same unless pseudo-classes are used.

        `pictures` are pixels, uint8 (rows, 3, height, width), or what `DualEncoder.pool_cached` takes. Rows beyond
        the batch, of pictures and of sentences, are mined negatives with groups of their own: they enter the ranking
        loss only, though batch norm sees them.

        Of sextuples, the first column is of pictures and the second of sentences: `positives` says in which rows the
        relevant samples stand, `draws` after how many draws a violator was found (0 = none), `shares` how much of what
        is irrelevant violates; the violators are the last rows. `phrases` says in which noun phrase each
        word is (HGAN), `words_below` what a BERT that is held fixed gives for it, where that was computed before.
        """
        batch = len(groups)
        matches: dict[Level, LocalMatch] = {}
        if phrases is None:
            all_images, all_texts = self.embed(pictures, numbers)
        else:
            all_images, all_texts, matches = self._all_levels(pictures, numbers, phrases, words_below)
        images, texts = all_images[:batch], all_texts[:batch]
        weights = self.losses
        parts: dict[str, Tensor] = {}
        errors: dict[str, Tensor] = {}
        for name, features in self._classified(images, texts):
            logits = self.classifier.logits(features)
            parts[name] = self.classifier.of(logits, classes)
            errors[f"{name}_error"] = 100 * (logits.argmax(1) != classes).float().mean()
        if weights.cmce:
            assert self.cmce is not None
            parts["cmce"] = self.cmce(images, texts, classes)
            self._seen = images.detach(), texts.detach(), classes
        if weights.sextuple:
            assert positives is not None
            assert draws is not None
            assert shares is not None
            unit_images, unit_texts = (F.normalize(rows.float(), dim=1) for rows in (all_images, all_texts))
            parts["sextuple"] = self.sextuple(
                *(unit_images[:batch], unit_texts[:batch]),
                *(unit_images[positives[:, 0]], unit_texts[positives[:, 1]]),
                *(unit_images[-batch:], unit_texts[-batch:]),
                image_draws=draws[:, 0],
                sentence_draws=draws[:, 1],
                samples=self.samples,
            )
            errors["violating"] = 100 * shares.mean()
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
        if weights.pair:
            parts["pair"] = self.pair(images.float(), texts.float(), groups)
        for level, match in matches.items():
            if getattr(weights, level):
                # **Decided**: a sentence without a noun phrase takes no part in that level's hinges
                there = match.counted.nonzero().squeeze(1)
                similarity = match.similarity[there][:, there]
                hinges = self.level.of_similarities(similarity, groups[there]) if len(there) else 0.0
                parts[level] = hinges + 0.0 * match.similarity.sum()
        total = torch.stack([getattr(weights, name) * value for name, value in parts.items()]).sum()
        return {"loss": total, **{name: value.detach() for name, value in parts.items()}, **errors}

    def embed(
        self, pictures: Tensor, numbers: Int64[Tensor, "rows words"]
    ) -> tuple[Float[Tensor, "images dim"], Float[Tensor, "texts dim"]]:
        """Embeddings of pictures and of sentences as `forward` takes them, not normalised."""
        pixels = pictures.dtype == torch.uint8
        pooled = self.model.pool_images(pictures) if pixels else self.model.pool_cached(pictures)
        return self.model.embed_images(pooled), self.model.encode_texts(numbers)

    def _all_levels(
        self,
        pictures: Tensor,
        numbers: Int64[Tensor, "batch words"],
        phrases: Int64[Tensor, "batch words"],
        words_below: Tensor | None,
    ) -> tuple[Tensor, Tensor, dict[Level, LocalMatch]]:
        """Embeddings of a batch, and the matches of all its pairs at each level, where the stage learns any."""
        model = self.model
        assert isinstance(model, HGAN)
        seen = model.read_pictures(pictures)
        texts, parts = model.read_sentences(numbers, phrases, words_below)
        if not self.losses.local:
            return seen.embedding, texts, {}
        matches = model.match(model.project_pictures(seen.regions), model.project_sentences(parts))
        return seen.embedding, texts, matches

    def remember(self, gather: Callable[[Tensor], Tensor]) -> None:
        """Move CMCE's buffers to the features of the last batch; to be called after each step.

        `gather` joins what the processes have, so that all of them hold the same rows.
        """
        if self.cmce is not None and self._seen is not None:
            images, texts, classes = (gather(part) for part in self._seen)
            self.cmce.update(images, texts, classes)
            self._seen = None

    def _classified(self, images: Tensor, texts: Tensor) -> Iterator[tuple[str, Tensor]]:
        """The features whose classes the stage learns to tell, by the name of their loss."""
        if self.losses.visual:
            yield "visual", images
        if self.losses.textual:
            yield "textual", texts
        if self.losses.joint:
            yield "joint", images + texts
