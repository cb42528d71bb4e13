"""The interface of a loss: settings that a recipe holds, and a module that reads an embedded batch.

A loss is one file of this package: a small settings class, its `nn.Module` with the equation, and what it needs of a
batch. The objective (`limner.training.objective`) embeds once and sums over the losses of a stage, none of which it
knows by name.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from inspect import signature
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from limner.errors import SettingsError
from limner.losses.shapes import ShapeChecked
from limner.losses.sharded_classes import Shard
from limner.settings import Settings

Need = Literal["classes", "labels", "mined", "sextuples", "levels", "late"]
"""The needs of a loss beside the embeddings of a batch:

- "classes": the number of classes, and each pair's class;
- "labels": labels of the training images, by which something is relevant;
- "mined": rows beside the batch that are hard negatives of its anchors (`Mined`);
- "sextuples": rows beside the batch that are positives and hard negatives (`Sextuples`);
- "levels": similarities of words and of phrases (`LocalSimilarity`), which only some networks offer;
- "late": similarities by late interaction, MaxSim, which only some networks offer.

The first two come from the data; a sampler provides the next two (`limner.training.samplers`), the network the others.
"""

LOCAL: frozenset[Need] = frozenset({"levels", "late"})
"""The needs of what a network makes of all pairs beside its embeddings."""

Gather = Callable[[Tensor], Tensor]
"""Joins the rows of all processes."""


@dataclass(frozen=True)
class Mined:
    """Hard negatives beside a batch: the groups of the rows of images and of texts behind it."""

    image_groups: Int64[Tensor, " more_images"]
    text_groups: Int64[Tensor, " more_texts"]


@dataclass(frozen=True)
class Sextuples:
    """Which rows are the samples of a batch's sextuples; the first column is of images, the second of sentences.

    - `positives`: the rows in which the relevant samples stand; the hard negatives are the last rows.
    - `draws`: after how many draws a hard negative was found (0 = none).
    - `shares`: how much of what is irrelevant violates the margin, 0 to 1.
    """

    positives: Int64[Tensor, "batch 2"]
    draws: Int64[Tensor, "batch 2"]
    shares: Float[Tensor, "batch 2"]


@dataclass(frozen=True)
class LocalSimilarity:
    """Similarities of all pairs of a batch by their parts: those of one granularity, "word" or "phrase", in 0 … 1, or
    all words by late interaction, "late", in -1 … 1.

    `counted` says which sentences have such a part.
    """

    similarity: Float[Tensor, "batch batch"]
    counted: Bool[Tensor, " batch"]


# one record instead of a dozen arguments: what one loss needs is a field that the others never see
@dataclass(frozen=True)
class Embedded:
    """A batch of pairs after the network, as the objective gives it to every loss.

    - `images`, `texts`: the embeddings of the pairs, not normalised; row i of both belongs together.
    - `groups` say what matches; `classes` what is told apart: the same unless pseudo-classes are used.
    - `image_rows`, `text_rows`: the same embeddings, and behind them those of rows beside the batch.
    - `mined`, `sextuples`, `local`: what the losses of the stage need (see `Need`).
    """

    images: Float[Tensor, "batch dim"]
    texts: Float[Tensor, "batch dim"]
    groups: Int64[Tensor, " batch"]
    classes: Int64[Tensor, " batch"]
    image_rows: Float[Tensor, "image_rows dim"]
    text_rows: Float[Tensor, "text_rows dim"]
    mined: Mined | None = None
    sextuples: Sextuples | None = None
    local: Mapping[str, LocalSimilarity] = field(default_factory=dict)


@dataclass(frozen=True)
class Terms:
    """The output of a loss for a batch: its terms by name, without weights, and figures to show beside them: errors in
    percent, learnt scales as they are."""

    losses: Mapping[str, Float[Tensor, ""]]
    shown: Mapping[str, Float[Tensor, ""]] = field(default_factory=dict)


@dataclass(frozen=True)
class Examples:
    """Unit embeddings of the training split by the current network, with their classes."""

    images: Float[Tensor, "images dim"]
    image_classes: Int64[Tensor, " images"]
    texts: Float[Tensor, "sentences dim"]
    text_classes: Int64[Tensor, " sentences"]


class LossSettings(Settings, ABC):
    """The base of every loss's settings.

    A stage holds each `kind` once. Every setting here has an effect: a setting of one loss does not exist in another,
    and a loss that is not wanted is left out rather than weighted with 0.
    """

    kind: str
    """Name of the loss: in recipes, and on the command line as `stages.STAGE.losses.KIND`."""

    lasting: ClassVar[tuple[str, ...]] = ()
    """Settings of state that persists across stages; all stages with this loss must agree in them."""
    remembers: ClassVar[bool] = False
    """True if it keeps features of a step for later ones."""
    of_embedding: ClassVar[bool] = True
    """True if it reads the embeddings of whole images and sentences."""
    compares_pairs: ClassVar[bool] = False
    """True if it compares the pairs of a batch with each other by their embeddings, with nothing drawn at random: each
    of several processes gives it those of all."""

    # of the settings, too: whether something is learnt can be a setting, as the temperature of `contrastive`
    @property
    def part(self) -> str | None:
        """The name of its parameters among the parts of a network, and in the file that hands them on to the next
        stage; None = it has none."""
        return None

    @property
    def sparse(self) -> bool:
        """True if the gradients of its part are sparse: they hold the rows that a step drew, and no others change."""
        return False

    @property
    def in_shards(self) -> bool:
        """True if each of several processes holds a part of its classes, and learns from the features of all."""
        return False

    # of the settings and not of the module: a recipe is held against its network before anything is built
    @property
    def needs(self) -> frozenset[Need]:
        """Its needs beside the embeddings."""
        return frozenset()

    # terms are weighted outside, so that the log shows each loss as its equation has it
    @property
    @abstractmethod
    def weights(self) -> Mapping[str, float]:
        """The weight of each of its terms; a term of weight 0 is not computed."""

    @abstractmethod
    def build(self, dim: int, classes: int) -> "Loss":
        """The module for embeddings of `dim` numbers and so many classes."""


class Loss(ShapeChecked, ABC):
    """The module of a loss. `forward` is the paper's equation; `terms` passes it the parts of an embedded batch that
    it needs.

    Each setting of the same name is an attribute, so that one module serves all stages: its parameters and buffers
    live on, `use` sets the rest.
    """

    recordable: ClassVar[bool] = False
    """True if the same operations on tensors are its terms in each step of a stage, with nothing decided in Python."""

    shard: Shard | None = None
    """The rows of its parameters that this process holds; None = all."""

    def __init_subclass__(cls, *, settings: type[LossSettings] | None = None, **options: Any) -> None:
        """With `settings`, `__init__` raises `SettingsError` for arguments that fields of the same names would refuse.

        A misspelt variant would compute another one without a word.
        """
        super().__init_subclass__(**options)
        if settings is None:
            return
        build, fields = cls.__init__, settings.model_fields
        order = tuple(signature(build).parameters)[1:]

        @wraps(build)
        def checked(self: Any, *given: Any, **named: Any) -> None:
            values = dict(zip(order, given, strict=False)) | named
            try:
                held = settings.parse({name: one for name, one in values.items() if name in fields})
            except SettingsError as error:
                raise SettingsError(f"{cls.__name__}: {error}") from None
            made = {name: getattr(held, name) for name in values if name in fields}
            places = [made.get(name, one) for name, one in zip(order, given, strict=False)]
            build(
                self,
                *places,
                *given[len(order) :],
                **{name: made.get(name, one) for name, one in named.items()},
            )

        cls.__init__ = checked  # type: ignore[method-assign]

    def use(self, settings: LossSettings, samples: int) -> None:
        """Take over a stage's settings; `samples` is the number of pairs in an epoch."""
        for name in type(settings).model_fields:
            # what lasts is built once and cannot be changed; `weight` is the objective's
            # a setting that is no attribute is for others: `candidates` is the sampler's
            if name not in ("kind", "weight", *settings.lasting) and hasattr(self, name):
                setattr(self, name, getattr(settings, name))

    @abstractmethod
    def terms(self, batch: Embedded) -> Terms:
        """Its terms for a batch."""

    # `examples` is a call, not a value: encoding the training split takes a while, and most losses never ask
    def start(self, examples: Callable[[], Examples], *, first: bool) -> None:
        """Called before the first step of a stage that is not resumed; `first` = no stage before had this loss."""

    # empty rather than abstract, as `start` and `after_step`: most losses remember nothing
    def begin_epoch(self, epoch: int, examples: Callable[[], Examples]) -> None:
        """Called before each epoch, counted from 0."""

    # a hook behind the optimiser, and not a part of `terms`: the loss of a step must not see what the step changes
    def after_step(self, gather: Gather) -> None:
        """Called after each step of the optimiser, on all processes alike, to update state from the batch."""


def only_term(name: str, value: Float[Tensor, ""]) -> Terms:
    """The terms of a loss that has one."""
    return Terms({name: value})


def cosines(
    images: Float[Tensor, "batch dim"], texts: Float[Tensor, "batch dim"]
) -> Float[Tensor, "batch batch"]:
    """The cosine of each image and each sentence of a batch, in float32 at least, also under autocast.

    Features need not be normalised.
    """
    wide = torch.promote_types(images.dtype, torch.float32)
    return dots(F.normalize(images.to(wide), dim=1), F.normalize(texts.to(wide), dim=1))


def dots(
    rows: Float[Tensor, "rows dim"], others: Float[Tensor, "others dim"]
) -> Float[Tensor, "rows others"]:
    """The dot product of each row with each of the others, in float32 at least, also under autocast."""
    wide = torch.promote_types(torch.promote_types(rows.dtype, others.dtype), torch.float32)
    # bf16 has steps of 1/256 near 1: over a temperature of 0.015 that is a quarter in a logit
    with torch.autocast(rows.device.type, enabled=False):
        return rows.to(wide) @ others.to(wide).T


def of_both_directions(
    of_anchors: Callable[[Tensor, Tensor], Tensor],
    images: Float[Tensor, "batch dim"],
    texts: Float[Tensor, "batch dim"],
    groups: Int64[Tensor, " batch"],
) -> Float[Tensor, "*anchors"]:
    """The sum of a loss over images as anchors and over sentences as anchors.

    `of_anchors` takes the cosines of each anchor, a row each, and which of them are of its group.
    """
    similarities = cosines(images, texts)
    # `same` is symmetric, so its rows serve both directions
    same = groups[:, None] == groups[None, :]
    return of_anchors(similarities, same) + of_anchors(similarities.T, same)
