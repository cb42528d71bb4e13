"""Stages of training: the interface that the loop calls, and the one stage that learns an embedding."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from jaxtyping import Float, Int64
from torch import nn

from limner.data.kept_rows import KeptRows
from limner.evaluation.report import Report
from limner.inference.encoding import Encoding
from limner.inference.precision import Arithmetic, measuring_precision
from limner.inference.rerankers import reranker_of
from limner.losses.loss import Examples
from limner.losses.wrong_pairs import pair_losses, probability_of_right
from limner.models.adapters import add_adapters, hold_adapted
from limner.models.image import ImageEncoder
from limner.models.transformer_layers import set_checkpointing, transformer_layers
from limner.training.feature_cache import cached_views
from limner.training.log import Listener, Preparing
from limner.training.objective import Objective, TrainingBatch
from limner.training.optimiser import freeze_parts, hold_backbone
from limner.training.pairs import Batch, TrainingPairs, epoch_batches, pairs_per_epoch, steps_per_epoch
from limner.training.pictures import Pictures, ahead, encode_all
from limner.training.prepare import Prepared
from limner.training.samplers import BatchSource, Beside, sampler_for
from limner.training.sentence_features import SentenceFeatures, sentence_features
from limner.training.validation import validate, validate_reranked
from limner.types import Reranker


# eq=False: a stage is compared and hashed by identity; repr=False: its fields hold the whole training split
@dataclass(eq=False, repr=False)
class Stage(ABC):
    """One stage of a recipe at work: parts, batches, what follows a step, validation.

    - `index`: its number in the recipe; `classes`: the class of each training picture.
    - `precision`: arithmetic of the steps; `measured`: that of validation, fp32 on a CPU.
    - `objective`: what processes train together, from batches to losses; `parts`: what of it may learn.

    Everything random is drawn from (seed, stage, epoch, step, process).
    """

    data: Prepared
    index: int
    classes: Int64[np.ndarray, " images"]
    accelerator: Accelerator
    precision: Arithmetic
    listener: Listener
    objective: nn.Module = field(init=False)
    parts: Mapping[str, Sequence[nn.Parameter]] = field(init=False)

    def __post_init__(self) -> None:
        self.stage = self.data.recipe.stages[self.index]
        self.model = self.data.objective.model
        self.train_cached: KeptRows | None = None
        self.val_cached: KeptRows | None = None
        # as `limner evaluate`: a checkpoint must not be chosen by figures that depend on the processor
        self.measured = measuring_precision(None, self.accelerator.device, self.precision)

    @property
    @abstractmethod
    def towers(self) -> tuple[nn.Module, nn.Module]:
        """The image and the text path that learn, without what is above them."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """Steps of an epoch."""

    @property
    def notes(self) -> dict[str, float]:
        """Numbers in an epoch's row beside its losses."""
        return {}

    @abstractmethod
    def read_features(self) -> None:
        """Compute or open what is cached of a frozen backbone, where the stage has any."""

    @abstractmethod
    def start(self) -> None:
        """Take from the network as it stands what a stage needs that begins, and is not resumed."""

    @abstractmethod
    def train_mode(self) -> None:
        """Training mode, except for frozen parts."""

    @abstractmethod
    def inputs(self, epoch: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """The batches of an epoch: pairs and what the objective takes of them; this process's share of each."""

    @abstractmethod
    def after_step(self) -> None:
        """Remember what later steps need of a batch."""

    @abstractmethod
    def project_weights(self) -> None:
        """Bring the weights back to what the network holds them to; most hold them to nothing."""

    @abstractmethod
    def validate(self) -> Report:
        """Both directions on the validation split, by the network as it stands."""

    def _freeze(self, backbone: ImageEncoder) -> None:
        """Hold what the stage does not learn, of its parts and of their backbone, and say what is computed twice."""
        set_checkpointing(self.objective, self.stage.checkpointing)
        # Gradients are switched for the parts; a backbone that learns from some layer on has its own switch.
        freeze_parts(self.parts, self.stage)
        hold_backbone(backbone, self.stage)

    def _encoding(self, precision: Arithmetic) -> Encoding:
        """The embedding as it stands now, at test."""
        images = self.data.recipe.images
        return Encoding(self.model, precision, flip=images.flip, scales=images.test_scales)

    def _reranker(self) -> Reranker:
        """The reranker of the network as it stands now, for validation."""
        found = reranker_of(self.model, self.data.tokenizer, self.data.recipe.images, self.measured)
        # Asked only where there is one: the network has levels below the sentence, or a stage learns a cross-encoder.
        assert found is not None
        return found

    def _views(
        self, what: str, backbone: ImageEncoder, pictures: Pictures, views: int, until: str | None
    ) -> Float[KeptRows, "images views ..."]:
        """Cached features of a split, or maps `until` a layer; one process computes them.

        Those of validation pictures are computed as validation is, all others as the steps are.
        """
        measures = pictures is self.data.val_pictures
        # The first process computes and writes the cache, the others then read it from the disk.
        with self.accelerator.main_process_first():
            return cached_views(
                backbone,
                self.data.recipe.model.backbone,
                pictures,
                views,
                until=until,
                seed=self.data.recipe.seed,
                precision=self.measured if measures else self.precision,
                report=lambda done, total: self.listener(Preparing(what, done, total)),
            )


class EmbeddingStage(Stage):
    """A stage of learning the embedding, and, where losses and network have them, the levels below it.

    What differs between systems is asked of the losses (needs), of the sampler that they need, and of the network.
    """

    objective: Objective

    def __post_init__(self) -> None:
        super().__post_init__()
        self.objective = self.data.objective
        # The number of pairs is n of MNiL's Eq. 1 and bounds the queue of its loss.
        self.objective.use(self.stage.losses, pairs_per_epoch(self.data.pairs, self.stage))
        self.objective.chunk = self.stage.chunk
        self.source = BatchSource(self.data, self.index, self.accelerator, self.precision, self.listener)
        self.sampler = sampler_for(self.stage, self.source, self.objective, self.classes)
        self.pairs = self.data.pairs
        self.words_below: SentenceFeatures | None = None
        adapted = self._adapted()
        # After `use`: the parts are those of this stage's losses.
        self.parts = self.objective.parts()
        self._freeze(self.model.backbone)
        # Behind `_freeze`, which lets all of a part learn or nothing.
        for tower in adapted:
            hold_adapted(tower)

    def _adapted(self) -> list[nn.Module]:
        """The towers that have got adapters, if the stage asks for them; their values depend on the seed alone."""
        if (settings := self.stage.lora) is None:
            return []
        parts = zip(("backbone", "text"), self.towers, strict=True)
        found = [
            tower for part, tower in parts if part not in self.stage.frozen and transformer_layers(tower)
        ]
        # As where a cross-encoder is made: a resumed run makes them at another moment.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.data.recipe.seed + self.index)
            for tower in found:
                add_adapters(tower, settings)
        return found

    @property
    def towers(self) -> tuple[nn.Module, nn.Module]:
        """Those of the network."""
        return self.model.backbone, self.model.text

    @property
    def steps(self) -> int:
        """Steps of the epoch that `inputs` was asked for last."""
        return steps_per_epoch(self.pairs, self.stage)

    @property
    def notes(self) -> dict[str, float]:
        """The percentage of sentences that the epoch was drawn from, where the stage divides them."""
        kept = self.pairs.kept
        return {} if kept is None else {"pairs_kept": round(100 * float(kept.mean()), 2)}

    def read_features(self) -> None:
        """Compute or open the cached features, where the stage has any; the images themselves are then forgotten."""
        self.train_cached, self.val_cached = self._cached()
        # Set by hand, since the sampler was made before there were cached features.
        self.source.cached = self.train_cached
        if self.train_cached is not None:
            # up to 2 GiB of resized images that nobody will ask for in this stage
            self.data.train_pictures.forget()
            self.data.val_pictures.forget()
        self.words_below = self.source.words_below = self._words_below()

    def start(self) -> None:
        """Take from the network as it stands what the losses of a stage need that begins, and is not resumed."""
        recipe = self.data.recipe
        self.objective.start(self._examples, lambda kind: recipe.first_with(kind) == self.index)
        self.sampler.start()

    def train_mode(self) -> None:
        """Training mode, except for frozen parts."""
        self.objective.train()
        # `train` switches everything on; frozen parts must keep their batch norm's statistics.
        self.model.eval_parts(self.stage.frozen)

    def inputs(self, epoch: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """The batches of an epoch: pairs and what the objective takes of them; this process's share of each."""
        # at once and not at the first batch: embedding the split puts the network into eval mode for a while
        self.objective.begin_epoch(epoch, self._examples)
        self.sampler.begin_epoch()
        self.pairs = self._divided(epoch)
        process = self.accelerator.process_index
        # Every n-th row: shares differ by one row at most.
        share = slice(process, None, self.accelerator.num_processes)
        # The whole batch is drawn in every process, by one generator, and then cut: no process needs to be told its
        # pairs.
        batches = epoch_batches(self.pairs, self.stage, self.source.words, self.source.random(epoch))

        def make(item: tuple[int, Batch]) -> tuple[Batch, Beside, TrainingBatch]:
            step, whole = item
            batch = Batch(
                whole.images[share], whole.sentences[share], whole.token_ids[share], whole.groups[share]
            )
            # A generator of its own for each step, so that threads cannot change each other's draws.
            rng = self.source.random(epoch, step, process)
            beside = self.sampler.beside(batch, rng)
            made = self._made(batch, beside, epoch, step, rng)
            return batch, beside, replace(made, whole=len(whole.images))

        def at_its_turn() -> Iterator[tuple[int, dict[str, Any]]]:
            # batches are made ahead; what depends on the network as it stands waits for its step
            for step, (batch, beside, made) in enumerate(ahead(enumerate(batches), make)):
                complete = self.sampler.complete(batch, beside, made, epoch, step)
                self.model.anneal((epoch + step / self.steps) / self.stage.epochs)
                yield len(batch.images), {"batch": complete}

        return at_its_turn()

    def _divided(self, epoch: int) -> TrainingPairs:
        """The pairs that an epoch draws from: those that the network finds right, where the stage divides them."""
        settings, pairs = self.stage.division, self.data.pairs
        if settings is None or epoch < settings.start:
            return pairs
        self.listener(Preparing("pairs told apart", 0, 1))
        bank = self.source.bank()
        # Behind those of the epoch's batches, steps and rows.
        random = self.source.random(epoch, 0, 0, 3)
        losses = pair_losses(
            bank.images, bank.texts, pairs.sentence_image, pairs.groups, self.stage.batch, random
        )
        kept = probability_of_right(losses) > settings.least
        if kept.sum() < 2 * self.accelerator.num_processes:
            # A step needs two pairs of each process; so few are no division.
            kept[:] = True
        # One process decides: others could round otherwise, and would wait for batches that it does not have.
        return pairs.keeping(broadcast_object_list([kept])[0])

    def _made(
        self, batch: Batch, beside: Beside, epoch: int, step: int, rng: np.random.Generator
    ) -> TrainingBatch:
        """A batch on the device, with what stands beside it."""
        ids = batch.token_ids
        # Rows beside the batch follow its own, in images and in sentences alike.
        if len(beside.sentences):
            ids = np.concatenate([ids, self.source.token_ids(beside.sentences, rng)])
        phrases = words_below = None
        if self.data.pairs.phrases is not None:
            # Positions of the words, which is why networks that read phrases refuse the shift.
            phrases = torch.from_numpy(self.data.pairs.phrase_layout(batch.sentences, self.source.words))
        if self.words_below is not None:
            read = np.concatenate([batch.sentences, beside.sentences])
            words_below = torch.from_numpy(self.words_below.rows(read, self.source.words))
        images, shown = batch.images, None
        if self.stage.sentences == "together":
            images, row = np.unique(images, return_inverse=True)
            # The rows beside the batch have an image each.
            beyond = len(images) + np.arange(len(beside.images))
            shown = torch.from_numpy(np.concatenate([row, beyond]))
        images = np.concatenate([images, beside.images])
        # Moved to the device here, in a thread, so that copying overlaps with the step before.
        return TrainingBatch(
            self.source.images(images, epoch, step, rng),
            torch.from_numpy(ids),
            torch.from_numpy(batch.groups),
            torch.from_numpy(self.classes[batch.images]),
            mined=beside.mined,
            phrases=phrases,
            words_below=words_below,
            shown=shown,
        ).to(self.accelerator.device)

    def after_step(self) -> None:
        """Remember the batch for losses and sampler, and bring the weights back to what the network holds them to."""
        self.objective.after_step(self.accelerator.gather)
        self.project_weights()
        self.sampler.after_step()

    def project_weights(self) -> None:
        """Bring the weights back to what the network holds them to, e.g. orthonormal rows."""
        self.model.after_step()

    def validate(self) -> Report:
        """Both directions on the validation split, by the network as it stands: re-ranked where it re-ranks itself."""
        if (correction := self.model.hub_correction) is not None:
            self.listener(Preparing("hub correction", 0, 1))
            correction.fill(*self.source.spread(correction.settings.items))
        encoding = self._encoding(self.measured)
        # A network without a reranker, or with a recipe that asks for no re-ranking, is validated by its embedding.
        if self.data.recipe.rerank == 0 or not self.model.reorders:
            return validate(self.data, encoding, self.val_cached)
        reranker, texts = self._reranker(), encoding.token_ids(self.data.val_tokens.token_ids)
        if self.val_cached is None:
            images = encode_all(self.data.val_pictures, encoding)
            return validate_reranked(self.data, reranker, images, texts, None)
        # The views of testing come first in the cache; `[:, 0]` is the image as it is, whose regions are compared.
        images = encoding.cached(self.val_cached[:, : self.data.recipe.images.test_views])
        return validate_reranked(self.data, reranker, images, texts, self.val_cached[:, 0])

    def _cached(self) -> tuple[KeptRows | None, KeptRows | None]:
        """Cached features of both splits while the backbone is frozen, all or in part, and the stage allows it."""
        stage, data, backbone = self.stage, self.data, self.model.backbone
        # Of a backbone that learns as a whole nothing stays the same.
        if not stage.views or ("backbone" not in stage.frozen and stage.backbone_from is None):
            return None, None
        # A network that re-ranks by regions needs the map itself; for the others the pooled feature is enough.
        until, views = stage.backbone_from or self.model.cached_map, data.recipe.images.test_views
        return (
            self._views("training features", backbone, data.train_pictures, stage.views, until),
            self._views("validation features", backbone, data.val_pictures, views, until),
        )

    def _words_below(self) -> SentenceFeatures | None:
        """A frozen layer's features of the training sentences, where the stage allows a cache."""
        # Asked only where it is cached: a tower refuses what cannot be read back from a cache.
        layer = self.model.kept_words(self.stage.frozen) if self.stage.views else None
        if layer is None:
            return None
        # As for images: one process fills the cache.
        with self.accelerator.main_process_first():
            return sentence_features(
                layer,
                self.data.pairs.sentences,
                self.source.words,
                precision=self.precision,
                report=lambda done, total: self.listener(Preparing("sentence features", done, total)),
            )

    def _examples(self) -> Examples:
        """The training split by the network as it stands."""
        self.listener(Preparing("training embeddings", 0, 1))
        bank = self.source.bank()
        return Examples(
            bank.images,
            torch.from_numpy(self.classes),
            bank.texts,
            torch.from_numpy(self.classes[self.data.pairs.sentence_image]),
        )
