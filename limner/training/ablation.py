"""Train and evaluate the rows of an ablation table, each with several seeds.

Every (row, seed) is a run folder of its own below one folder. Calling it again keeps finished runs and continues the
others. Rows of a second stage branch off the row whose first stage they share, which is trained once.
"""

import itertools
import json
import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limner.data.records import Dataset
from limner.durable import read_json
from limner.errors import CheckpointError
from limner.evaluation.measures import STANDARD
from limner.evaluation.per_query import write_queries
from limner.evaluation.protocols import Protocol
from limner.inference.checkpoint import read_checkpoint, write_checkpoint
from limner.inference.evaluate_run import evaluate_run
from limner.inference.load import load_model
from limner.inference.source import RUN_FILE, STATE_FILE
from limner.training.log import LOG_FILE, Listener, silent
from limner.training.loop import train
from limner.training.recipe import Recipe
from limner.training.run_files import handed_file, last_file, stage_file
from limner.training.state import first_difference, in_full, read_progress

DIRECTIONS = ("image_to_text", "text_to_image")


@dataclass(frozen=True)
class Variant:
    """One row of a table.

    - `stage`: the stage as the paper counts, "I" or "II"; the last of `recipe` is the one that is measured.
    - `published`: the paper's figures by "direction measure", e.g. "image_to_text R@1", in percent.
    - `after`: key of the row whose first stage this one starts from; its recipe is this one's without the second stage.
    - `settings`: what was changed in the recipe, as `limner train --set` takes it.
    """

    key: str
    label: str
    stage: str
    recipe: Recipe
    published: Mapping[str, float]
    after: str | None = None
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trial:
    """One row with one seed: its folder, the epoch that validation chose, the epochs run, and the evaluation report.

    `draw` is the number of the random splits, where there are several of them.
    """

    seed: int
    folder: Path
    epoch: int
    epochs_run: int
    seconds: float
    report: Mapping[str, Any]
    draw: int | None = None

    def measured(self, name: str) -> float:
        """A measure by "direction measure"."""
        direction, measure = name.split(" ", 1)
        return float(self.report[direction][measure])


@dataclass(frozen=True)
class Outcome:
    """A row with all its seeds, and with all draws of the splits where there are several."""

    variant: Variant
    trials: tuple[Trial, ...]

    def mean(self, name: str) -> float:
        """Mean of a measure over the trials."""
        return statistics.fmean(trial.measured(name) for trial in self.trials)

    def deviation(self, name: str) -> float | None:
        """Sample standard deviation over the trials; None for a single one."""
        values = [trial.measured(name) for trial in self.trials]
        # `stdev` raises an error for a single value.
        return statistics.stdev(values) if len(values) > 1 else None


def train_variant(
    variants: Mapping[str, Variant],
    key: str,
    seed: int,
    dataset: Dataset,
    out: Path,
    *,
    listener: Listener = silent,
    cpu: bool = False,
) -> Path:
    """Train one row with one seed, or resume it; returns its run folder `out/KEY/seed-SEED`."""
    variant = variants[key]
    recipe = variant.recipe.replace(seed=seed)
    folder = run_folder(out, key, seed)
    # A folder with a state is past its branching: branching again would throw its second stage away.
    if variant.after is not None and not (folder / STATE_FILE).exists():
        start = train_variant(variants, variant.after, seed, dataset, out, listener=listener, cpu=cpu)
        branch(start, recipe, folder)
    return train(
        recipe,
        dataset.split("train"),
        dataset.split("val"),
        folder,
        # Always resumed: an ablation that was stopped goes on by the same command, and a finished run is returned as
        # it is.
        resume=True,
        listener=listener,
        cpu=cpu,
    )


def branch(source: Path, recipe: Recipe, out: Path) -> None:
    """Make `out` a run of `recipe` whose first stage is done, copied from the finished run in `source`.

    A first stage that several runs share is then trained once. `source` is a run of the same recipe without its later
    stages; resume `out` to train these. All that is random in a step depends on (seed, stage, epoch, step), so `out`
    ends in exactly the weights of a run that trained the first stage itself. The state is written last, so that an
    interrupted branch counts as none. Raises `CheckpointError` when `source` is not finished or of another recipe.
    """
    # The state and not the stage's checkpoint: beside the weights it holds what the losses remember. A finished run
    # keeps no moments, and the next stage starts its optimisers anew.
    tensors, description = read_checkpoint(source / STATE_FILE)
    state = description["state"]
    if not state["progress"]["finished"]:
        raise CheckpointError(f"{source}: this run is not finished; resume it before branching off")
    wanted = json.loads(recipe.model_dump_json())
    # The state may be from a version with fewer settings; their defaults are filled in.
    source_recipe = in_full(state["identity"]["recipe"])
    first_alone = {**wanted, "stages": wanted["stages"][:1]}
    if recipe.stages[0].reranker_pairs is None:  # the cross-encoder comes later, whatever it is
        first_alone |= {
            "cross_encoder": source_recipe.get("cross_encoder"),
            "rerank": source_recipe.get("rerank"),
        }
    if (difference := first_difference({"recipe": source_recipe}, {"recipe": first_alone})) is not None:
        name, was, now = difference
        raise CheckpointError(
            f"{source}: cannot branch off, {name} is {was!r} there and {now!r} here; branch off a run of the same "
            "recipe with its first stage alone"
        )
    out.mkdir(parents=True, exist_ok=True)
    # What the first stage hands on beside the network, e.g. the shared classifier: stage II begins with it.
    first = recipe.stages[0].name
    handed = (handed_file(first, loss.part) for loss in recipe.stages[0].losses if loss.part is not None)
    kept = (last_file(first),) if (source / last_file(first)).exists() else ()
    # The log comes along, since the progress counts its bytes and a resumed run cuts it there.
    for file in (stage_file(first), *kept, *handed, LOG_FILE):
        shutil.copyfile(source / file, out / file)
    # Not finished, and behind the last epoch of the first stage: `train` then ends that stage and begins the next.
    progress = {**state["progress"], "finished": False}
    identity = {**state["identity"], "recipe": wanted}
    write_checkpoint(
        out / STATE_FILE,
        tensors,
        {**description, "state": {**state, "progress": progress, "identity": identity}},
    )


def measure_variant(
    variant: Variant,
    seed: int,
    ranked: Dataset,
    split: str,
    folder: Path,
    *,
    protocol: Protocol | None = None,
    cpu: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> Trial:
    """Evaluate the checkpoint of a trained row's last stage on a split (`ranked` holds its records alone).

    With a `protocol`, by its measures; otherwise by the dataset's protocol and the measures of every report. The values
    of each query are written to `queries_file(folder)`.
    """
    # By the stage's name: the run's best checkpoint may be of stage I, which is another row of the table.
    name = variant.recipe.stages[-1].name
    run = load_model(folder, stage=name, device="cpu" if cpu else None)
    # A protocol brings its own measures.
    measures = STANDARD if protocol is None else None
    report = evaluate_run(run, ranked, split, measures, protocol=protocol, progress=progress)
    # For intervals over queries: a row of one seed has no other, and to train it again for them would take hours.
    write_queries(queries_file(folder), report.queries, run.precision)
    # The chosen epoch is run.json's; the state knows how many were run.
    listing = read_json(folder / RUN_FILE)
    chosen = next(stage for stage in listing["stages"] if stage["name"] == name)
    stood, _ = read_progress(folder)
    return Trial(seed, folder, chosen["epoch"], stood.epoch, stood.seconds, report.model_dump(mode="json"))


def run_folder(out: Path, key: str, seed: int) -> Path:
    """The run folder of a row and a seed."""
    return out / key / f"seed-{seed}"


def queries_file(folder: Path) -> Path:
    """The file of the values of each query, beside the run folder of a row and a seed."""
    # Beside it and not in it: a run folder has the files of `limner train` alone.
    return folder.with_name(f"{folder.name}.csv")


def order(outcomes: Sequence[Outcome], value: Callable[[Outcome], float]) -> str:
    """The rows' keys, best first, e.g. "both-1 > ranking-1 = instance-1"."""
    # `sorted` is stable, so rows with equal figures stay in the table's order.
    ranked = sorted(outcomes, key=value, reverse=True)
    text = ranked[0].variant.key
    for better, worse in itertools.pairwise(ranked):
        # Exact equality: published figures tie, e.g. in Table 4 of HGAN.
        text += f" {'=' if value(better) == value(worse) else '>'} {worse.variant.key}"
    return text
