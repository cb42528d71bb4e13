"""The training loop: runs the stages one after the other, validates every epoch, and can resume between them.

`kill -9` at any moment and resuming ends in exactly the weights of an uninterrupted run (same machine, CPU,
same number of threads): all that is random in a step is drawn from (seed, stage, epoch, step, process), and the
state is written only between epochs.
"""

import math
import time
from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs, broadcast_object_list
from torch import Tensor, nn

from limner.data.records import Dataset
from limner.errors import CheckpointError, DataError, SettingsError
from limner.inference.checkpoint import load_into, read_checkpoint
from limner.inference.precision import pick_precision
from limner.inference.run_file import expect_free
from limner.inference.source import RUN_FILE, STATE_FILE
from limner.models.adapters import remove_adapters
from limner.models.registry import network_class
from limner.models.transformer_layers import layers_above
from limner.training.average import WeightAverage
from limner.training.chunks import expect_no_statistics_of_chunks
from limner.training.feature_cache import cached_views
from limner.training.log import EpochEnded, Listener, MetricsLog, Preparing, StageEnded, Stepped, silent
from limner.training.optimiser import make_optimisers, rate_at, set_rate
from limner.training.pairs import pairs_per_epoch
from limner.training.prepare import Prepared, prepare
from limner.training.pseudo_classes import pseudo_classes
from limner.training.recipe import Recipe, StageSettings
from limner.training.recorded_step import RecordedStep, is_recordable
from limner.training.rerank_stage import RerankStage
from limner.training.run_files import (
    expect_own_checkpoints,
    expect_own_files,
    handed_file,
    stage_file,
    write_last_checkpoint,
    write_run_file,
    write_stage_checkpoint,
)
from limner.training.sharded_rows import clip_gradients, rows_in, sharded_parameters, shards_in, whole_rows
from limner.training.sparse_rows import join_rows, keep_apart
from limner.training.stage import EmbeddingStage, Stage
from limner.training.state import (
    Progress,
    StageBest,
    StateTimes,
    expect_possible,
    first_difference,
    read_progress,
    restore,
    write_state,
)
from limner.training.step_losses import StepLosses
from limner.training.validation import score

Found = TypeVar("Found")


def train(
    recipe: Recipe,
    train_split: Dataset,
    val_split: Dataset,
    out: Path,
    *,
    resume: bool = False,
    listener: Listener = silent,
    cpu: bool = False,
    cuda_graphs: bool = False,
) -> Path:
    """Train a recipe and return the run folder, ready for `limner.load`.

    The loop gets the training and the validation split and nothing else. A folder that holds a run is refused unless
    `resume` is set; a finished run that is resumed is left as it is. With `cuda_graphs` the steps of stages that allow
    it are recorded once and replayed (`limner.training.recorded_step`), on one CUDA device. Raises `LimnerError` for
    what the user can mend.
    """
    # A run is never overwritten: hours of training are not worth a mistyped folder.
    if (out / STATE_FILE).exists() and not resume:
        raise CheckpointError(
            f"{out}: there is a run in this folder; give --resume to go on, or another folder"
        )
    if not (out / STATE_FILE).exists():
        expect_free(out, "the run", resume=resume)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"--out {out}: the run's folder cannot be made ({error.strerror}); name a folder that can be written"
        ) from None
    return _Training(recipe, train_split, val_split, out, listener, cpu, cuda_graphs).run()


class _Training:
    def __init__(
        self,
        recipe: Recipe,
        train_split: Dataset,
        val_split: Dataset,
        out: Path,
        listener: Listener,
        cpu: bool,
        cuda_graphs: bool = False,
    ) -> None:
        self.recipe = recipe
        self.out = out
        # Looking for unused parameters costs a walk over the graph in every step, so only networks that need it ask.
        unused = network_class(recipe.model).leaves_parameters_unused
        kwargs = DistributedDataParallelKwargs(find_unused_parameters=unused)
        # mixed_precision="no": autocast stands around the forward pass below, with fp32 where a processor emulates
        # bf16.
        self.accelerator = Accelerator(cpu=cpu, mixed_precision="no", kwargs_handlers=[kwargs])
        self.device = self.accelerator.device
        if cuda_graphs and (self.device.type != "cuda" or self.accelerator.num_processes > 1):
            raise SettingsError("--cuda-graphs is for training by one process on a CUDA device; leave it out")
        self.cuda_graphs = cuda_graphs
        self.precision = pick_precision(recipe.precision, self.device)
        self.states = StateTimes()
        # Every process trains, one of them talks.
        self.listener = listener if self.accelerator.is_main_process else silent
        self.listener(Preparing("tokenizer and network", 0, 1))
        self.data: Prepared = prepare(recipe, train_split, val_split)
        self._check_batches()
        # Moved before the optimisers are made: these keep the very parameters they were given.
        self.objective = self.data.objective.to(self.device)
        self.model = self.objective.model
        self.progress = Progress()
        self.average: WeightAverage | None = None
        self._recorded: RecordedStep | None = None
        self._sparse: list[nn.Parameter] = []
        self.log = MetricsLog(out, enabled=self.accelerator.is_main_process)
        self.classes = self.data.pairs.groups

    def _check_batches(self) -> None:
        for stage in self.recipe.stages:
            if stage.chunk is not None:
                # Before the first stage: the mistake may be one of the last, hours away.
                expect_no_statistics_of_chunks(self.data.objective.model, stage)
            pairs = self.data.pairs
            available = len(pairs.groups)
            # A rerank stage has pairs for each sentence, so a set of few images can still fill its steps.
            if stage.sentences != "one" or stage.reranker_pairs is not None:
                available = len(pairs.sentences)
            # Batch norm and the ranking loss need two pairs in each process's share: with one there is no negative.
            if min(available, stage.batch) < 2 * self.accelerator.num_processes:
                raise DataError(
                    f"stage '{stage.name}': a step needs at least 2 pairs for each of {self.accelerator.num_processes} "
                    f"process(es), but there are {available} and stages.{stage.name}.batch is {stage.batch}"
                )
            # `gather` needs shares of one shape: with unequal ones processes fail or wait for each other for ever.
            joined = "what its loss remembers of a step" if stage.remembers else "a sharded classifier"
            joins = stage.remembers or any(loss.in_shards for loss in stage.losses)
            if joins and min(available, stage.batch) % self.accelerator.num_processes:
                raise DataError(
                    f"stage '{stage.name}': {joined} needs as many pairs of each of "
                    f"{self.accelerator.num_processes} processes, but a step has {min(available, stage.batch)}; change "
                    f"stages.{stage.name}.batch"
                )

    def run(self) -> Path:
        try:
            return self._run()
        finally:
            self.log.close()

    def _run(self) -> Path:
        # Before any image is decoded, and with its progress: the first time all files are read.
        for what, pictures in (
            ("training pictures read", self.data.train_pictures),
            ("validation pictures read", self.data.val_pictures),
        ):
            pictures.digests(lambda done, total, what=what: self.listener(Preparing(what, done, total)))  # type: ignore[misc]
        resumed = (self.out / STATE_FILE).exists()
        if resumed:
            self.progress, identity = read_progress(self.out)
            # Before anything is written: a refused resume leaves the folder as it was. Files before the recipe: that of
            # another run's state differs, too, but the advice to resume with it would be wrong.
            is_later = expect_own_checkpoints(self.out, self.progress, identity)
            _must_agree(self.out, identity, self.data.identity)
            expect_possible(self.out, self.progress, self.recipe)
            if self.progress.finished:
                self._write_run_file()
                return self.out
            if is_later:
                # The file of the best epoch is gone. Its successor is run again and may come out no better, as on a
                # GPU: some epoch has to take the file's place.
                self.progress.best[-1].score = float("-inf")
        if self.recipe.classes == "images":
            self.classes = np.arange(len(self.classes))
        elif self.recipe.classes is not None:
            # Of the backbone as it was loaded, also when a run is resumed: it is the network of the first stage's
            # start.
            self.classes = self._pseudo_classes(self.recipe.classes)
        for index in range(self.progress.stage, len(self.recipe.stages)):
            self._stage(index, resumed and index == self.progress.stage)
        self.progress.finished = True
        # Without moments and average: a finished run needs its weights and progress alone.
        self.average = None
        self._write_state(())
        # Behind the state, which says first that there is no later epoch.
        self._write_run_file()
        self.accelerator.wait_for_everyone()
        return self.out

    def _stage(self, index: int, resumed: bool) -> None:
        if not resumed:
            self._begin_stage(index)  # first: a cross-encoder starts from the embedding as it then stands
        elif self.recipe.stages[index].reranker_pairs is not None:
            # the state still holds what the embedding's last losses remember, e.g. a queue: it needs its place
            embedding = [before for before in self.recipe.stages[:index] if before.reranker_pairs is None]
            if embedding:
                self.objective.use(embedding[-1].losses, pairs_per_epoch(self.data.pairs, embedding[-1]))
        stage = self.recipe.stages[index]
        kind = EmbeddingStage if stage.reranker_pairs is None else RerankStage
        work: Stage = kind(self.data, index, self.classes, self.accelerator, self.precision, self.listener)
        # What rests or is frozen keeps the last gradient of the stage before, no optimiser of this one empties it, and
        # `clip` would count it in every step: a resumed run has none.
        work.objective.zero_grad(set_to_none=True)
        # Anew for each stage: its parts learn at other rates, and moments of the stage before would push the first
        # steps.
        optimisers = make_optimisers(work.parts, stage, layers_above(work.towers))
        self.average = None
        if stage.average is not None:
            work.train_mode()  # which batch norms gather statistics depends on it
            self.average = WeightAverage(work.objective, stage.average.decay)
        if resumed:
            # Before `prepare`: it wraps the optimisers, and the state's numbers are those of the bare ones.
            restore(self.out, self.objective, optimisers, self.average)
        # A run that was killed between its last epoch and the next stage needs no features of this one.
        if not (ended := self._ended(stage)):
            work.read_features()
        # Not on resuming: the buffers and queues that this fills are part of the state.
        if not resumed:
            work.start()
        sparse = [
            weight for part in stage.sparse_parts for weight in work.parts[part] if weight.requires_grad
        ]
        self._sparse = keep_apart(work.objective, sparse, sharded_parameters(work.objective))
        self._step_module, *self._optimisers = self.accelerator.prepare(work.objective, *optimisers)
        self._recorded = None
        if self.cuda_graphs and is_recordable(stage, self.objective):
            self._recorded = RecordedStep(self.objective, self.precision, self.device)
        if not ended:
            # Rows behind the state belong to an epoch that is run again. Not earlier: a resume that is refused, also
            # because of the files from which a stage begins, leaves the log as it was.
            self.log.cut(self.progress.log_bytes)
            # Of a run that is resumed it may be gone, damaged, older or newer than the state, or of another spelling.
            self._write_run_file()
        while not ended:
            # monotonic: the wall clock may be set back during hours of training.
            began = time.monotonic()
            epoch = self.progress.epoch
            losses, rate, pairs_per_second = self._epoch(work, epoch)
            self.progress.epoch += 1
            self.progress.seconds += time.monotonic() - began
            row: dict[str, Any] = {
                "stage": stage.name,
                "epoch": epoch + 1,
                **losses,
                **work.notes,
                "rate": rate,
                "pairs_per_second": round(pairs_per_second, 1),
                "seconds": round(self.progress.seconds, 1),
            }
            validated = improved = False
            # The last epoch is always judged, else it could not be chosen.
            last = self.progress.epoch == stage.epochs
            if self.progress.epoch % stage.validate_every == 0 or last:
                validated, improved = True, self._validate(work, row)
            # The row before the state, which counts its bytes.
            self.progress.log_bytes = self.log.add(row)
            self._write_state(optimisers, needed=validated)
            self.listener(EpochEnded(row, improved))
            ended = self._ended(stage)
        best = self.progress.best[index]
        self.listener(StageEnded(stage.name, ended, best.epoch, best.score))
        # Frees what `prepare` holds, or the next stage would be wrapped beside this one.
        self.accelerator.free_memory()

    def _begin_stage(self, index: int) -> None:
        """Start from the best weights of the stage before: the network, and what the losses hand on."""
        if index > 0:
            # Their changes are in the checkpoint.
            remove_adapters(self.model)
            before = self.recipe.stages[index - 1].name
            # The stage's best epoch, not its last: that is what a run of this stage alone hands out.
            modules: dict[str, nn.Module] = {stage_file(before): self.model}
            modules |= {
                handed_file(before, part): handed for part, handed in self.objective.handed_on().items()
            }
            expect_own_files(self.out, self.progress.best[index - 1])
            for file, module in modules.items():
                tensors, _ = read_checkpoint(self.out / file, rows=rows_in(module))
                load_into(module, tensors, self.out / file)
        self.progress.stage, self.progress.epoch = index, 0
        self.progress.best = [*self.progress.best[:index], StageBest()]

    def _epoch(self, work: Stage, epoch: int) -> tuple[dict[str, float], float, float]:
        """One epoch; returns mean losses, the last rate and pairs per second."""
        stage, batches = work.stage, work.inputs(epoch)
        # Behind `inputs`, which may leave out pairs.
        steps = work.steps
        work.train_mode()
        sums: dict[str, float] = {}
        done, began, rate = 0, time.monotonic(), 0.0
        # The losses of a recorded step are read when the next is under way, so that the GPU never waits for Python.
        late = 0 if self._recorded is None else 1
        unread: deque[tuple[int, StepLosses]] = deque()

        def read(step: int, losses: StepLosses) -> dict[str, float]:
            values = losses.read()
            if not math.isfinite(values["loss"]):
                raise CheckpointError(
                    f"{self.out}: the loss became {values['loss']} in stage '{stage.name}', epoch {epoch + 1}, "
                    f"step {step + 1}; lower stages.{stage.name}.optimiser.rate or set optimiser.clip, and start anew"
                )
            return values

        def rate_so_far() -> float:
            # The clock of a short first step can stand still on some systems.
            return done / max(time.monotonic() - began, 1e-9)

        def tell(step: int, losses: StepLosses) -> None:
            for name, value in read(step, losses).items():
                sums[name] = sums.get(name, 0.0) + value
            means = {name: total / (step + 1) for name, total in sums.items()}
            self.listener(Stepped(stage.name, epoch + 1, stage.epochs, step + 1, steps, means, rate_so_far()))

        for step, (pairs, inputs) in enumerate(batches):
            # By the share of the epoch: a cosine that went epoch by epoch would have 4 steps in the shortest recipes.
            rate = rate_at(epoch + step / steps, stage.epochs, stage.optimiser.rate, stage.schedule)
            for optimiser in self._optimisers:
                # `prepare` returns wrappers; the groups are those of the optimiser inside.
                set_rate(optimiser.optimizer, rate)
            # anew for each step: a resumed run draws the dropout that an uninterrupted one would have drawn
            torch.manual_seed(_mix(self.recipe.seed, work.index, epoch, step, self.accelerator.process_index))
            losses = StepLosses(self._learnt_from(inputs))
            if not late:
                # Before the update: behind it NaN stands in every weight and moment. Behind a recorded step it does,
                # but in no state, which is written at the epoch's end.
                read(step, losses)
            # After the backward pass has joined the processes' gradients, so all of them clip by the same norm.
            if stage.optimiser.clip is not None:
                clip_gradients(work.objective, stage.optimiser.clip, self.accelerator)
            for optimiser in self._optimisers:
                optimiser.step()
            # After the update: what is remembered is of the batch, what is held to a form are the new weights.
            work.after_step()
            if self.average is not None and stage.average is not None and epoch >= stage.average.start:
                self.average.update()
            # Shares are equal but for one pair, so the others' are not asked for.
            done += pairs * self.accelerator.num_processes
            unread.append((step, losses))
            if len(unread) > late:
                tell(*unread.popleft())
        for last in unread:
            tell(*last)
        return {name: total / steps for name, total in sums.items()}, rate, rate_so_far()

    def _learnt_from(self, inputs: dict[str, Any]) -> dict[str, Tensor]:
        """The losses of a batch; their gradients stand in the parameters."""
        if self._recorded is not None:
            return self._recorded(**inputs)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            # bf16 alone: fp16 would need a scaled loss. Autocast ends before the backward pass, as PyTorch asks for.
            losses: dict[str, Tensor] = self._step_module(**inputs)
        for optimiser in self._optimisers:
            optimiser.zero_grad()
        self.accelerator.backward(losses["loss"])
        join_rows(self._sparse, self.accelerator)
        return {name: value.detach() for name, value in losses.items()}

    def _validate(self, work: Stage, row: dict[str, Any]) -> bool:
        """Measure the weights, or their average where the stage has one, note the measures, and keep the best."""
        with nullcontext() if self.average is None else self.average.in_place(work.project_weights):
            return self._validate_as_it_stands(work, row)

    def _validate_as_it_stands(self, work: Stage, row: dict[str, Any]) -> bool:
        """Measure, note the measures in the row, and keep the weights if they are the stage's best."""
        report = work.validate()
        value = score(report, self.recipe.select)
        value, to_text, to_image = self._of_main((value, report.image_to_text, report.text_to_image))
        row |= {"image_to_text": to_text, "text_to_image": to_image, "score": value}
        # At each validation: none knows here whether patience ends with it.
        if work.stage.keep_last and self.accelerator.is_main_process:
            write_last_checkpoint(self.out, self.data, work.stage.name, self.progress, row)
        best = self.progress.best[-1]
        # Of equal scores the earlier epoch is kept.
        if value <= best.score:
            return False
        already = any(one.epoch for one in self.progress.best)
        best.epoch, best.score = self.progress.epoch, value
        handed = {
            part: whole_rows(module.state_dict(), shards_in(module), self.out)
            for part, module in self.objective.handed_on().items()
        }
        if self.accelerator.is_main_process:
            if not already:
                # That of a training that was killed before its first state; it would refuse this one's checkpoint.
                (self.out / RUN_FILE).unlink(missing_ok=True)
            # The checkpoint before run.json, which names it.
            best.files = write_stage_checkpoint(
                self.out, self.data, work.stage.name, self.progress, row, handed
            )
            write_run_file(self.out, self.data, self.progress)
        best.files = self._of_main(best.files)
        return True

    def _of_main(self, found: Found) -> Found:
        """The findings of the main process: batch norm statistics differ between processes, but decisions must not."""
        if self.accelerator.num_processes == 1:
            return found
        shared: list[Found] = broadcast_object_list([found])
        return shared[0]

    def _ended(self, stage: StageSettings) -> str:
        """The reason why the stage is over, or an empty text; a function of the progress, so a resumed run knows it
        too."""
        if self.progress.epoch >= stage.epochs:
            return "all epochs"
        waited = self.progress.epoch - self.progress.best[-1].epoch
        # `patience` counts validations, not epochs.
        if stage.patience is not None and waited >= stage.patience * stage.validate_every:
            return f"no better validation in {stage.patience}"
        return ""

    def _pseudo_classes(self, count: int) -> np.ndarray:
        pooled = cached_views(
            self.model.backbone,
            self.recipe.model.backbone,
            self.data.train_pictures,
            # One view, the centre crop: classes should not hang on a random one.
            1,
            seed=self.recipe.seed,
            precision=self.precision,
            report=lambda done, total: self.listener(Preparing("features for classes", done, total)),
        )
        # `np.array` copies the view out of the memory map, which is read-only; distances want float32.
        found = pseudo_classes(torch.from_numpy(np.array(pooled[:, 0])).float(), count, seed=self.recipe.seed)
        return found.numpy()

    def _write_run_file(self) -> None:
        if self.accelerator.is_main_process:
            write_run_file(self.out, self.data, self.progress)

    def _write_state(self, optimisers: Sequence[torch.optim.Optimizer], *, needed: bool = True) -> None:
        # One decides: the clocks of others differ, and all have to bring the rows that they hold.
        if self._of_main(needed or self.states.is_due(time.monotonic())):
            # One process writes; the others wait, or the next stage would read a file that is not there yet.
            began = time.monotonic()
            write_state(
                self.out,
                self.objective,
                optimisers,
                self.progress,
                self.data.identity,
                self.average,
                writes=self.accelerator.is_main_process,
            )
            self.states.wrote(began, time.monotonic())
        self.accelerator.wait_for_everyone()


def _mix(*numbers: int) -> int:
    """One seed of several numbers."""
    # SeedSequence mixes the numbers: with a sum, epoch 1 step 0 would draw what epoch 0 step 1 did.
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


def _must_agree(out: Path, saved: dict[str, Any], current: dict[str, Any]) -> None:
    if (difference := first_difference(saved, current)) is not None:
        name, was, now = difference
        raise CheckpointError(
            f"{out}: cannot resume, {name} is {now!r} now and was {was!r}; resume with the recipe and data it was "
            "started with, or use another folder"
        )
