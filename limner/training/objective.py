"""The network and the losses of a recipe as one module: what several processes train together.

It knows no loss by name. A batch is embedded once, every loss of the stage reads it, and the total is the weighted sum:
dual-path's `L = λ1·L_rank + λ2·L_visual + λ3·L_textual` (TOMM 2020, Eq. 9) is two losses with three terms.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor, nn

from limner.losses.loss import (
    LOCAL,
    Embedded,
    Examples,
    Gather,
    LocalSimilarity,
    Loss,
    LossSettings,
    Mined,
    Sextuples,
)
from limner.models.dual_encoder import DualEncoder
from limner.training.chunks import embed_in_chunks
from limner.training.whole_batch import whole_batch


@dataclass(frozen=True)
class TrainingBatch:
    """The input of a step.

    `images` are pixels, or what `DualEncoder.pool_cached` takes. Rows beyond the pairs, of images and of sentences,
    are those that `mined` or `sextuples` speak of; batch norm sees them, too. `phrases` says in which noun phrase each
    word is, `words_below` what a text encoder that is held fixed gives for it, where that was computed before.

    `shown` says which of `images` each row has, of pairs and behind them, where a picture stands once for several.
    `whole` is the number of pairs in the batch of which these are a process's share; None = these are all.
    """

    images: UInt8[Tensor, "rows 3 height width"] | Float[Tensor, "rows ..."]
    token_ids: Int64[Tensor, "text_rows words"]
    groups: Int64[Tensor, " batch"]
    classes: Int64[Tensor, " batch"]
    mined: Mined | None = None
    sextuples: Sextuples | None = None
    phrases: Int64[Tensor, "text_rows words"] | None = None
    words_below: Float[Tensor, "kept_rows kept_words channels"] | None = None
    shown: Int64[Tensor, " image_rows"] | None = None
    whole: int | None = None

    def to(self, device: torch.device) -> "TrainingBatch":
        """The batch on a device."""
        return replace(self, **dict(_each(self, lambda tensor: tensor.to(device))))

    def copied(self) -> "TrainingBatch":
        """A copy of the batch, in memory of its own."""
        return replace(self, **dict(_each(self, Tensor.clone)))


def _each(
    holder: TrainingBatch | Mined | Sextuples, change: Callable[[Tensor], Tensor]
) -> Iterator[tuple[str, Any]]:
    for field in fields(holder):
        value = getattr(holder, field.name)
        if isinstance(value, Tensor):
            yield field.name, change(value)
        elif isinstance(value, Mined | Sextuples):
            yield field.name, type(value)(**dict(_each(value, change)))


class Objective(nn.Module):
    """Embeds a batch of pairs and sums over the losses of a stage.

    There is one module for each kind of loss in any of the recipe's stages, so that its parameters and state persist
    across stages; `use` chooses those of a stage. They are made in the order of `stages`, behind the network: what
    starts at random depends on it.
    """

    def __init__(
        self, model: DualEncoder, stages: Iterable[Sequence[LossSettings]], classes: int = 0
    ) -> None:
        super().__init__()
        self.model = model
        # A ModuleDict: what losses learn is in the state_dict, also of those that rest in a stage.
        self.losses = nn.ModuleDict()
        self._parts: dict[str, str] = {}
        for settings in (loss for stage in stages for loss in stage):
            # once for all stages: a classifier's weights and CMCE's buffers outlive the stage that began them
            if settings.kind not in self.losses:
                self.losses[settings.kind] = settings.build(model.dim, classes)
                if settings.part is not None:
                    self._parts[settings.part] = settings.kind
        # Pairs that pass the network at once; None = all of a batch.
        self.chunk: int | None = None
        # Empty until `use`: nothing can be summed by mistake before a stage has begun.
        self.settings: tuple[LossSettings, ...] = ()

    def use(self, settings: Sequence[LossSettings], samples: int = 0) -> None:
        """Set the losses of a stage; `samples` is the number of pairs in an epoch."""
        self.settings = tuple(settings)
        # what rests must not move: weight decay would shrink it, and several processes would wait for its gradient
        self.losses.requires_grad_(False)
        for loss_settings in self.settings:
            loss = self.loss(loss_settings.kind)
            loss.use(loss_settings, samples)
            # A loss may make buffers in `use`, e.g. the queue, after the objective was moved.
            loss.requires_grad_(True).to(next(self.model.parameters()).device)

    def loss(self, kind: str) -> Loss:
        """The module of a kind."""
        # ModuleDict is typed as any module.
        found = self.losses[kind]
        assert isinstance(found, Loss)
        return found

    def parts(self) -> dict[str, list[nn.Parameter]]:
        """The network's parts, and those of the stage's losses that learn."""
        # Only losses of this stage: those that rest have no gradient, and an optimiser refuses a part of none.
        kinds = {settings.part: settings.kind for settings in self.settings if settings.part is not None}
        return {
            **self.model.parts(),
            **{part: list(self.losses[kind].parameters()) for part, kind in kinds.items()},
        }

    def handed_on(self) -> dict[str, nn.Module]:
        """The state that stages hand on to each other beside the network, by the names of the parts."""
        return {part: self.losses[kind] for part, kind in self._parts.items()}

    def forward(self, batch: TrainingBatch) -> dict[str, Float[Tensor, ""]]:
        """The weighted "loss", each unweighted term of it, and what the losses show beside them."""
        share = whole = self._embedded(batch)
        if batch.whole is not None and any(settings.compares_pairs for settings in self.settings):
            whole = whole_batch(share, batch.whole)
        weighted: list[Tensor] = []
        values: dict[str, Tensor] = {}
        extra: dict[str, Tensor] = {}
        for settings in self.settings:
            terms = self.loss(settings.kind).terms(whole if settings.compares_pairs else share)
            # Terms are weighted here and logged without their weights, so that curves of two recipes can be compared.
            weighted += [settings.weights[name] * value for name, value in terms.losses.items()]
            # Detached: the log must not keep the graph of a step.
            values |= {name: value.detach() for name, value in terms.losses.items()}
            extra |= terms.shown
        # in the recipe's order: another order of the sum is another last bit of the loss
        return {"loss": torch.stack(weighted).sum(), **values, **extra}

    def _embedded(self, batch: TrainingBatch) -> Embedded:
        if self.chunk is not None and len(batch.groups) > self.chunk:
            images, texts = embed_in_chunks(
                self.model, batch.images, batch.token_ids, batch.phrases, batch.words_below, self.chunk
            )
            return Embedded(images, texts, batch.groups, batch.classes, images, texts)
        # Words and phrases compare all pairs of a batch, so they are computed only for losses that read them.
        local = any(settings.needs & LOCAL for settings in self.settings)
        images, texts, matches = self.model.embed_pairs(
            batch.images, batch.token_ids, batch.phrases, batch.words_below, local=local
        )
        local_similarity = {
            name: LocalSimilarity(rows_shown(match.similarity, batch.shown), match.counted)
            for name, match in matches.items()
        }
        images = rows_shown(images, batch.shown)
        # Groups are of the pairs alone; rows behind them are mined or drawn.
        pairs = len(batch.groups)
        # sliced here once: if each loss cut its own rows out, their gradients would be added up in another order
        return Embedded(
            images[:pairs],
            texts[:pairs],
            batch.groups,
            batch.classes,
            images,
            texts,
            batch.mined,
            batch.sextuples,
            local_similarity,
        )

    def start(self, examples: Callable[[], Examples], first: Callable[[str], bool]) -> None:
        """Prepare the losses of a stage that begins, from the network; `first` = no stage before had this kind."""
        for settings in self.settings:
            self.loss(settings.kind).start(examples, first=first(settings.kind))

    def begin_epoch(self, epoch: int, examples: Callable[[], Examples]) -> None:
        """Prepare the losses for an epoch."""
        for settings in self.settings:
            self.loss(settings.kind).begin_epoch(epoch, examples)

    def after_step(self, gather: Gather) -> None:
        """Update the memory of the losses after a step; `gather` joins the rows of the processes."""
        for settings in self.settings:
            self.loss(settings.kind).after_step(gather)


def rows_shown(of_pictures: Tensor, shown: Int64[Tensor, " rows"] | None) -> Tensor:
    """A row of each pair from a row of each picture, where a picture stands once for several."""
    return of_pictures if shown is None else of_pictures[shown]
