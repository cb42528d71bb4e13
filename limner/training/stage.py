"""What the loop asks of a stage, and what the stages of embedding and cross-encoder have in common."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from accelerate import Accelerator
from jaxtyping import Float, Int64
from torch import nn

from limner.evaluation.report import Report
from limner.inference.encoding import Encoding
from limner.inference.precision import Arithmetic
from limner.inference.rerankers import reranker_of
from limner.models.image import ImageEncoder
from limner.training.events import Listener, Preparing
from limner.training.feature_cache import cached_views
from limner.training.optimiser import freeze_parts
from limner.training.pictures import Pictures
from limner.training.setup import Prepared
from limner.types import Reranker


class Stage(ABC):
    """One stage of a recipe at work: parts, batches, what follows a step, validation.

    - `index`: its number in the recipe; `classes`: the class of each training picture.
    - `objective`: what processes train together, from batches to losses; `parts`: what of it may learn.

    Everything random is drawn from (seed, stage, epoch, step, process).
    """

    objective: nn.Module
    parts: Mapping[str, Sequence[nn.Parameter]]

    def __init__(
        self,
        data: Prepared,
        index: int,
        classes: Int64[np.ndarray, " images"],
        accelerator: Accelerator,
        precision: Arithmetic,
        listener: Listener,
    ) -> None:
        self.data = data
        self.index = index
        self.stage = data.recipe.stages[index]
        self.classes = classes
        self.accelerator = accelerator
        self.precision = precision
        self.listener = listener
        self.model = data.objective.model
        self.train_cached: np.ndarray | None = None
        self.val_cached: np.ndarray | None = None

    @property
    @abstractmethod
    def steps(self) -> int:
        """Steps of an epoch."""

    @abstractmethod
    def read_features(self) -> None:
        """Compute or open what is cached of a frozen backbone, where the stage has any."""

    @abstractmethod
    def start(self) -> None:
        """What a stage that begins, and is not resumed, takes from the network as it stands."""

    @abstractmethod
    def train_mode(self) -> None:
        """Training mode, but for what is frozen."""

    @abstractmethod
    def inputs(self, epoch: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """The batches of an epoch: pairs and what the objective takes of them; this process's share of each."""

    @abstractmethod
    def after_step(self) -> None:
        """What is remembered of a batch."""

    @abstractmethod
    def validate(self) -> Report:
        """Both directions on the validation split, by the network as it stands."""

    def _freeze(self, backbone: ImageEncoder) -> None:
        """Hold what the stage does not learn, of its parts and of their backbone."""
        freeze_parts(self.parts, self.stage)
        backbone.set_frozen(
            "backbone" in self.stage.frozen,
            fixed_statistics=self.stage.backbone_statistics == "fixed",
            until=self.stage.backbone_from,
        )

    def _encoding(self) -> Encoding:
        """The embedding as it stands now, at test."""
        return Encoding(self.model, self.precision, flip=self.data.recipe.images.flip)

    def _reranker(self) -> Reranker:
        """What re-ranks with the network as it stands now."""
        found = reranker_of(self.model, self.data.tokenizer, self.data.recipe.images, self.precision)
        assert found is not None
        return found

    def _views(
        self, what: str, backbone: ImageEncoder, pictures: Pictures, views: int, until: str | None
    ) -> Float[np.ndarray, "images views ..."]:
        """Cached features of a split, or maps `until` a layer; one process computes them."""
        with self.accelerator.main_process_first():
            return cached_views(
                backbone,
                self.data.recipe.model.backbone,
                pictures,
                views,
                until=until,
                seed=self.data.recipe.seed,
                precision=self.precision,
                report=lambda done, total: self.listener(Preparing(what, done, total)),
            )
