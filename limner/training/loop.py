"""The training loop: stages one after the other, each epoch validated, every epoch a point to resume from.

`kill -9` at any moment and resuming ends in exactly the weights of an uninterrupted run (same machine, CPU,
same number of threads): all that is random in a step is drawn from (seed, stage, epoch, step, process), and the
state is written only between epochs.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import Tensor

from limner.data.records import Dataset
from limner.errors import CheckpointError, DataError, SettingsError
from limner.freed_memory import keep_freed_memory
from limner.runs.checkpoint import load_into, read_checkpoint
from limner.runs.encoding import Encoding
from limner.runs.precision import pick_precision
from limner.training.events import EpochEnded, Listener, Preparing, StageEnded, Stepped, silent
from limner.training.feature_cache import Report, cached_views
from limner.training.metrics_log import MetricsLog
from limner.training.mining import Bank
from limner.training.optimiser import freeze_parts, make_optimisers, rate_at, set_rate
from limner.training.outcome import classifier_file, stage_file, write_outcome, write_stage_checkpoint
from limner.training.pairs import Batch, epoch_batches, generator, steps_per_epoch
from limner.training.pictures import ahead, encode_all
from limner.training.pseudo_classes import pseudo_classes
from limner.training.settings import Recipe, StageSettings
from limner.training.setup import Prepared, prepare
from limner.training.state import (
    STATE_FILE,
    Progress,
    StageBest,
    first_difference,
    read_progress,
    restore,
    write_state,
)
from limner.training.validation import score, validate


def train(
    recipe: Recipe,
    train_split: Dataset,
    val_split: Dataset,
    out: Path,
    *,
    resume: bool = False,
    listener: Listener = silent,
    cpu: bool = False,
) -> Path:
    """Train a recipe and return the run folder, ready for `limner.load`.

    The loop gets the training and the validation split and nothing else. A folder that holds a run is refused unless
    `resume` is set; a finished run that is resumed is left as it is. Raises `LimnerError` for what the user can mend.
    """
    if (out / STATE_FILE).exists() and not resume:
        raise CheckpointError(
            f"{out}: there is a run in this folder; give --resume to go on, or another folder"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"--out {out}: the run's folder cannot be made ({error.strerror}); name a folder that can be written"
        ) from None
    return _Training(recipe, train_split, val_split, out, listener, cpu).run()


class _Training:
    def __init__(
        self,
        recipe: Recipe,
        train_split: Dataset,
        val_split: Dataset,
        out: Path,
        listener: Listener,
        cpu: bool,
    ) -> None:
        keep_freed_memory()
        self.recipe = recipe
        self.out = out
        self.accelerator = Accelerator(cpu=cpu, mixed_precision="no")
        self.device = self.accelerator.device
        self.precision = pick_precision(recipe.precision, self.device)
        self.listener = listener if self.accelerator.is_main_process else silent
        listener(Preparing("vocabulary and network", 0, 1))
        self.data: Prepared = prepare(recipe, train_split, val_split)
        self._check_batches()
        self.objective = self.data.objective.to(self.device)
        self.model = self.objective.model
        self.progress = Progress()
        self.log = MetricsLog(out, enabled=self.accelerator.is_main_process)
        self.classes = self.data.pairs.groups

    def _check_batches(self) -> None:
        for stage in self.recipe.stages:
            pairs = self.data.pairs
            there = len(pairs.groups) if stage.sentences == "one" else len(pairs.sentences)
            if min(there, stage.batch) < 2 * self.accelerator.num_processes:
                raise DataError(
                    f"stage '{stage.name}': a step needs at least 2 pairs for each of {self.accelerator.num_processes} "
                    f"process(es), but there are {there} and stages.{stage.name}.batch is {stage.batch}"
                )

    def run(self) -> Path:
        resumed = (self.out / STATE_FILE).exists()
        if resumed:
            self.progress, identity = read_progress(self.out)
            _must_agree(self.out, identity, self.data.identity)
            if self.progress.finished:
                return self.out
        self.log.cut(self.progress.log_bytes)
        if self.recipe.classes == "images":
            self.classes = np.arange(len(self.classes))
        elif self.recipe.classes is not None:
            self.classes = self._pseudo_classes(self.recipe.classes)
        for index in range(self.progress.stage, len(self.recipe.stages)):
            self._stage(index, resumed and index == self.progress.stage)
        self.progress.finished = True
        self._write_state(())
        self.log.close()
        return self.out

    def _stage(self, index: int, resumed: bool) -> None:
        stage = self.recipe.stages[index]
        self.objective.use(stage.losses)
        parts = self.objective.parts()
        freeze_parts(parts, stage)
        self.model.backbone.set_frozen(
            "backbone" in stage.frozen,
            fixed_statistics=stage.backbone_statistics == "fixed",
            until=stage.backbone_from,
        )
        optimisers = make_optimisers(parts, stage)
        if resumed:
            restore(self.out, self.objective, optimisers)
        else:
            self._begin_stage(index)
        ended = self._ended(stage)
        train_cached, val_cached = (None, None) if ended else self._cached(stage)
        if train_cached is not None:
            self.data.train_pictures.forget()
            self.data.val_pictures.forget()
        if index == 0 and not resumed and self.recipe.classifier_start == "images":
            self._start_classifier(train_cached)
        if stage.losses.cmce and not resumed:
            self._fill_buffers(train_cached)
        self._step_module, *self._optimisers = self.accelerator.prepare(self.objective, *optimisers)
        while not ended:
            began = time.monotonic()
            epoch = self.progress.epoch
            losses, rate, pairs_per_second = self._epoch(index, stage, epoch, train_cached)
            self.progress.epoch += 1
            self.progress.seconds += time.monotonic() - began
            row: dict[str, Any] = {
                "stage": stage.name,
                "epoch": epoch + 1,
                **losses,
                "rate": rate,
                "pairs_per_second": round(pairs_per_second, 1),
                "seconds": round(self.progress.seconds, 1),
            }
            improved = False
            last = self.progress.epoch == stage.epochs
            if self.progress.epoch % stage.validate_every == 0 or last:
                improved = self._validate(stage, val_cached, row)
            self.progress.log_bytes = self.log.add(row)
            self._write_state(optimisers)
            self.listener(EpochEnded(row, improved))
            ended = self._ended(stage)
        best = self.progress.best[index]
        self.listener(StageEnded(stage.name, ended, best.epoch, best.score))
        self.accelerator.free_memory()

    def _begin_stage(self, index: int) -> None:
        """Start from the best weights of the stage before, network and classifier."""
        if index > 0:
            before = self.recipe.stages[index - 1].name
            for module, file in (
                (self.model, stage_file(before)),
                (self.objective.classifier, classifier_file(before)),
            ):
                tensors, _ = read_checkpoint(self.out / file)
                load_into(module, tensors, self.out / file)
        self.progress.stage, self.progress.epoch = index, 0
        self.progress.best = [*self.progress.best[:index], StageBest()]

    def _cached(self, stage: StageSettings) -> tuple[np.ndarray | None, np.ndarray | None]:
        """What is cached of both splits while the backbone is frozen, all or in part, and the stage allows it."""
        if not stage.views or ("backbone" not in stage.frozen and stage.backbone_from is None):
            return None, None
        found = []
        with self.accelerator.main_process_first():
            for what, pictures, views in (
                ("training features", self.data.train_pictures, stage.views),
                ("validation features", self.data.val_pictures, self.recipe.images.test_views),
            ):
                found.append(
                    cached_views(
                        self.model,
                        pictures,
                        views,
                        until=stage.backbone_from,
                        seed=self.recipe.seed,
                        precision=self.precision,
                        report=self._preparing(what),
                    )
                )
        return found[0], found[1]

    def _preparing(self, what: str) -> Report:
        return lambda done, total: self.listener(Preparing(what, done, total))

    def _epoch(
        self, index: int, stage: StageSettings, epoch: int, cached: np.ndarray | None
    ) -> tuple[dict[str, float], float, float]:
        """One epoch; returns mean losses, the last rate and pairs per second."""
        steps = steps_per_epoch(self.data.pairs, stage)
        bank = self._bank(cached) if stage.losses.ranking and stage.losses.candidates else None
        self.objective.train()
        self.model.eval_parts(stage.frozen)
        sums: dict[str, float] = {}
        done, began, rate = 0, time.monotonic(), 0.0
        for step, (batch, inputs) in enumerate(self._inputs(index, stage, epoch, cached, bank)):
            rate = rate_at(epoch + step / steps, stage.epochs, stage.optimiser.rate, stage.schedule)
            for optimiser in self._optimisers:
                set_rate(optimiser.optimizer, rate)
            torch.manual_seed(_mix(self.recipe.seed, index, epoch, step, self.accelerator.process_index))
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
                losses: dict[str, Tensor] = self._step_module(**inputs)
            if not torch.isfinite(losses["loss"]):
                raise CheckpointError(
                    f"{self.out}: the loss became {losses['loss'].item()} in stage '{stage.name}', epoch {epoch + 1}, "
                    f"step {step + 1}; lower stages.{stage.name}.optimiser.rate or set optimiser.clip, and start anew"
                )
            for optimiser in self._optimisers:
                optimiser.zero_grad()
            self.accelerator.backward(losses["loss"])
            if stage.optimiser.clip is not None:
                self.accelerator.clip_grad_norm_(self.objective.parameters(), stage.optimiser.clip)
            for optimiser in self._optimisers:
                optimiser.step()
            self.objective.remember(self.accelerator.gather)
            done += len(batch.images) * self.accelerator.num_processes
            for name, value in losses.items():
                sums[name] = sums.get(name, 0.0) + float(value.detach())
            means = {name: total / (step + 1) for name, total in sums.items()}
            per_second = done / max(time.monotonic() - began, 1e-9)
            self.listener(Stepped(stage.name, epoch + 1, stage.epochs, step + 1, steps, means, per_second))
        return {name: total / steps for name, total in sums.items()}, rate, per_second

    def _inputs(
        self, index: int, stage: StageSettings, epoch: int, cached: np.ndarray | None, bank: Bank | None
    ) -> Iterator[tuple[Batch, dict[str, Any]]]:
        """The batches of an epoch as what the objective takes; this process's share of each."""
        pairs, words = self.data.pairs, self.recipe.model.text.words
        batches = list(epoch_batches(pairs, stage, words, generator(self.recipe.seed, index, epoch)))
        share = slice(self.accelerator.process_index, None, self.accelerator.num_processes)

        def make(item: tuple[int, Batch]) -> tuple[Batch, dict[str, Any]]:
            step, whole = item
            batch = Batch(
                whole.images[share], whole.sentences[share], whole.numbers[share], whole.groups[share]
            )
            rng = generator(self.recipe.seed, index, epoch, step, self.accelerator.process_index)
            images, numbers = batch.images, batch.numbers
            inputs: dict[str, Any] = {
                "groups": torch.from_numpy(batch.groups),
                "classes": torch.from_numpy(self.classes[batch.images]),
            }
            if bank is not None:
                count = stage.losses.candidates
                texts = bank.hard_texts(batch.images, count, rng)
                extra = bank.hard_images(batch.sentences, count, rng)
                images = np.concatenate([images, extra])
                numbers = np.concatenate(
                    [numbers, pairs.layout(texts, words, rng if stage.position_shift else None)]
                )
                inputs["extra_image_groups"] = torch.from_numpy(pairs.groups[extra])
                inputs["extra_text_groups"] = torch.from_numpy(pairs.groups[pairs.sentence_image[texts]])
            inputs["numbers"] = torch.from_numpy(numbers)
            if cached is not None:
                inputs["pictures"] = torch.from_numpy(
                    cached[images, rng.integers(cached.shape[1], size=len(images))]
                )
            else:
                # with every sentence in an epoch, a picture comes several times and should look different
                where = (index, epoch) if stage.sentences == "one" else (index, epoch, step)
                pixels = self.data.train_pictures.random(images, self.recipe.seed, *where)
                inputs["pictures"] = torch.from_numpy(pixels).permute(0, 3, 1, 2)
            return batch, {name: value.to(self.device) for name, value in inputs.items()}

        return ahead(enumerate(batches), make)

    def _encoding(self) -> Encoding:
        """The network as it stands now, at test."""
        return Encoding(self.model, self.precision, flip=self.recipe.images.flip)

    def _bank(self, cached: np.ndarray | None) -> Bank:
        """Embeddings of the training split as the network stands now."""
        pairs, pictures = self.data.pairs, self.data.train_pictures
        encoding = self._encoding()
        images = encoding.cached(cached[:, :1]) if cached is not None else encode_all(pictures, encoding)
        numbers = pairs.layout(np.arange(len(pairs.sentences)), self.recipe.model.text.words, None)
        texts = encoding.numbers(numbers)
        return Bank(images, pairs.groups, texts, pairs.groups[pairs.sentence_image])

    def _validate(self, stage: StageSettings, cached: np.ndarray | None, row: dict[str, Any]) -> bool:
        """Measure, note the measures in the row, and keep the weights if they are the stage's best."""
        report = validate(self.data, self._encoding(), cached)
        value = score(report, self.recipe.select)
        value, measured = self._of_main((value, report.to_dict()))
        row |= {
            "image_to_text": measured["image_to_text"],
            "text_to_image": measured["text_to_image"],
            "score": value,
        }
        best = self.progress.best[-1]
        if value <= best.score:
            return False
        best.epoch, best.score = self.progress.epoch, value
        if self.accelerator.is_main_process:
            write_stage_checkpoint(self.out, self.data, stage.name, self.progress, row)
            write_outcome(self.out, self.data, self.progress)
        return True

    def _of_main(self, found: tuple[float, dict[str, Any]]) -> tuple[float, dict[str, Any]]:
        """The main process's validation: batch norm statistics differ between processes, decisions must not."""
        if self.accelerator.num_processes == 1:
            return found
        shared: list[tuple[float, dict[str, Any]]] = broadcast_object_list([found])
        return shared[0]

    def _ended(self, stage: StageSettings) -> str:
        """Why the stage is over, empty while it is not; a function of the progress, so a resumed run knows it too."""
        if self.progress.epoch >= stage.epochs:
            return "all epochs"
        waited = self.progress.epoch - self.progress.best[-1].epoch
        if stage.patience is not None and waited >= stage.patience * stage.validate_every:
            return f"no better validation in {stage.patience}"
        return ""

    def _pseudo_classes(self, count: int) -> np.ndarray:
        pooled = cached_views(
            self.model,
            self.data.train_pictures,
            1,
            seed=self.recipe.seed,
            precision=self.precision,
            report=self._preparing("features for classes"),
        )
        found = pseudo_classes(torch.from_numpy(np.array(pooled[:, 0])).float(), count, seed=self.recipe.seed)
        return found.numpy()

    @torch.no_grad()
    def _start_classifier(self, cached: np.ndarray | None) -> None:
        """Rows of W at the mean embedding of their class's pictures, at the scale that random rows have."""
        means = torch.zeros_like(self.objective.classifier.weight, device="cpu")
        means.index_add_(0, torch.from_numpy(self.classes), self._bank(cached).images)
        unit = torch.nn.functional.normalize(means - means.mean(dim=0), dim=1)
        self.objective.classifier.weight.copy_(unit)

    def _fill_buffers(self, cached: np.ndarray | None) -> None:
        """CMCE's buffers before the first step: the mean feature of each identity, by the network as it stands."""
        assert self.objective.cmce is not None
        self.listener(Preparing("feature buffers", 0, 1))
        bank = self._bank(cached)
        of_images = torch.from_numpy(self.classes)
        of_texts = torch.from_numpy(self.classes[self.data.pairs.sentence_image])
        self.objective.cmce.fill(
            *(part.to(self.device) for part in (bank.images, of_images, bank.texts, of_texts))
        )

    def _write_state(self, optimisers: Sequence[torch.optim.Optimizer]) -> None:
        if self.accelerator.is_main_process:
            write_state(self.out, self.objective, optimisers, self.progress, self.data.identity)
        self.accelerator.wait_for_everyone()


def _mix(*numbers: int) -> int:
    """One seed of several numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


def _must_agree(out: Path, there: dict[str, Any], here: dict[str, Any]) -> None:
    if (difference := first_difference(there, here)) is not None:
        name, was, now = difference
        raise CheckpointError(
            f"{out}: cannot resume, {name} is {now!r} now and was {was!r}; resume with the recipe and data it was "
            "started with, or use another folder"
        )
