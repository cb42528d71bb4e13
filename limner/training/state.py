"""The state to resume from: everything that the next epoch depends on and that the seed does not give.

Random numbers are drawn anew for each step from (seed, stage, epoch, step), pictures and schedules are functions of
the same, so a state holds just the weights, the optimiser's moments, the average of the weights if the stage has one,
where the run is, and what was best.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from limner.errors import CheckpointError, SettingsError
from limner.inference.checkpoint import load_into, read_checkpoint, write_checkpoint
from limner.inference.source import STATE_FILE
from limner.losses.sharded_classes import Shard
from limner.training.average import WeightAverage
from limner.training.recipe import Recipe
from limner.training.sharded_rows import shards_in, whole_rows

_LITTLE = 0.5
"""Seconds of a state that is written behind each epoch."""

_RATIO = 20
"""Time between two of the others, in times of writing one."""


@dataclass
class StageBest:
    """The best validation of a stage; epoch 0 = none yet.

    - `files`: digests of its checkpoint and of what it hands on; {} in older states.
    """

    epoch: int = 0
    score: float = float("-inf")
    files: dict[str, str] = field(default_factory=dict)


@dataclass
class Progress:
    """Where a run is.

    - `stage`, `epoch`: index of the stage and the epochs of it that are complete.
    - `best`: one entry a stage begun.
    - `log_bytes`: length of metrics.jsonl at that moment; what stands behind it is of epochs that will be run again.
    - `seconds`: time spent on training so far.
    """

    stage: int = 0
    epoch: int = 0
    best: list[StageBest] = field(default_factory=list)
    log_bytes: int = 0
    seconds: float = 0.0
    finished: bool = False


@dataclass
class StateTimes:
    """When states were written and what that took, for which epochs end with one.

    Where a state takes as long as an epoch (430 MB, a second, on a GPU), one each epoch would double the time.
    """

    seconds: float = 0.0
    ended: float = 0.0

    def is_due(self, now: float) -> bool:
        """True for a state that costs little, or at most a twentieth of the time since the last."""
        return self.seconds < _LITTLE or now - self.ended >= _RATIO * self.seconds

    def wrote(self, began: float, ended: float) -> None:
        """Note a state."""
        self.seconds, self.ended = ended - began, ended


def write_state(
    folder: Path,
    objective: nn.Module,
    optimisers: Sequence[torch.optim.Optimizer],
    progress: Progress,
    identity: dict[str, Any],
    average: WeightAverage | None = None,
    *,
    writes: bool = True,
) -> None:
    """Write the state atomically; `identity` is what a resumed run must agree with (recipe, data).

    All processes call it, since each may hold rows of some tensors; one of them `writes`.
    """
    # The prefix keeps the two kinds apart in one flat file of tensors.
    tensors = {f"objective.{name}": tensor for name, tensor in objective.state_dict().items()}
    scalars: dict[str, float] = {}
    for first, optimiser in _numbered(optimisers):
        # `state_dict` numbers parameters by their order in the groups, from 0 in each optimiser.
        for index, values in optimiser.state_dict()["state"].items():
            for name, value in values.items():
                # safetensors holds tensors; SGD without momentum has None, and some optimisers keep their step as a
                # number.
                if isinstance(value, Tensor):
                    tensors[f"optimiser.{first + index}.{name}"] = value
                elif value is not None:
                    scalars[f"{first + index}.{name}"] = float(value)
    if average is not None:
        # Beside the weights and not in their place: training goes on with these.
        tensors |= {f"average.{name}": tensor for name, tensor in average.values.items()}
        scalars["average.steps"] = average.steps
    shards = _shards(objective, optimisers)
    held = {name: shard for name, tensor in tensors.items() if tensor.dim() and (shard := shards(name))}
    tensors = whole_rows(tensors, held, folder)
    if not writes:
        return
    description = {"progress": asdict(progress), "identity": identity, "scalars": scalars}
    # Weights and progress in one file: two could be of two epochs after a kill.
    write_checkpoint(folder / STATE_FILE, tensors, {"state": description})


def read_progress(folder: Path) -> tuple[Progress, dict[str, Any]]:
    """Where a run stopped, and its identity. Raises `CheckpointError`."""
    path = folder / STATE_FILE
    try:
        # The tensors are read for the digest alone, 0.1 s for each 100 MB, and `restore` reads them again. A flipped
        # bit of the header would else end a run before its time, or cut its log.
        state = read_checkpoint(path, only=(), rows=lambda _: slice(0, 0))[1]["state"]
        best = [StageBest(**entry) for entry in state["progress"]["best"]]
        progress = Progress(**{**state["progress"], "best": best})
        return progress, {**state["identity"], "recipe": in_full(state["identity"]["recipe"])}
    # A file of another program, or of a version with other fields.
    except (KeyError, TypeError):
        raise CheckpointError(f"{path}: not the state of a training run; train into another folder") from None


def expect_possible(folder: Path, progress: Progress, recipe: Recipe) -> None:
    """Raise `CheckpointError` if a training of this recipe cannot be where a state says that it is."""
    index, last = progress.stage, len(recipe.stages) - 1
    if (
        0 <= index <= last
        and len(progress.best) == index + 1
        and 0 <= progress.epoch <= recipe.stages[index].epochs
        and (index == last or not progress.finished)
    ):
        return
    # Without this the stages that are left would be none, and a resumed run would be called finished.
    raise CheckpointError(
        f"{folder / STATE_FILE}: is at epoch {progress.epoch} of stage {index + 1}, where a training of this recipe "
        "cannot be; put back the run's own, or train into another folder"
    )


def in_full(recipe: dict[str, Any]) -> dict[str, Any]:
    """A recipe's values as a state holds them, with the defaults of settings that are newer than the state.

    A recipe that this version cannot read comes back as it is, and will not agree with any that it can.
    """
    # Parsing fills in defaults that the state's version did not have, so an old run resumes.
    try:
        whole: dict[str, Any] = json.loads(Recipe.parse(recipe).model_dump_json())
    except SettingsError:
        return recipe
    return whole


def first_difference(there: Any, here: Any, where: str = "") -> tuple[str, Any, Any] | None:
    """The first value in which two identities differ: its dotted path and both values; None if they are equal.

    Stages go by their names, losses by their kinds. How the dataset was spelled and which file the backbone's weights
    came from may differ:
    the fingerprints say whether the data are the same, and a state holds all weights.
    """
    # Both may change without another result: paths differ between machines.
    if where in {"data.source", "recipe.model.backbone.weights"}:
        return None
    # By name: "stages.stage-2.epochs" tells more than "stages.1.epochs", and an added stage shifts no others.
    if isinstance(there, list) and isinstance(here, list):
        there, here = _by_name(there), _by_name(here)
    if isinstance(there, dict) and isinstance(here, dict):
        # Keys of both sides: one that is missing counts as None.
        for name in here | there:
            inner = f"{where}.{name}" if where else str(name)
            if (found := first_difference(there.get(name), here.get(name), inner)) is not None:
                return found
        return None
    return None if there == here else (where, there, here)


def _by_name(values: list[Any]) -> dict[Any, Any]:
    named = [
        value.get("name", value.get("kind", place)) if isinstance(value, dict) else place
        for place, value in enumerate(values)
    ]
    return dict(zip(named, values, strict=True))


def restore(
    folder: Path,
    objective: nn.Module,
    optimisers: Sequence[torch.optim.Optimizer],
    average: WeightAverage | None = None,
) -> None:
    """Load weights, their average and the optimisers' moments. Raises `CheckpointError`."""
    path = folder / STATE_FILE
    shards = _shards(objective, optimisers)
    tensors, description = read_checkpoint(
        path, rows=lambda name: shard.rows if (shard := shards(name)) else None
    )
    load_into(objective, _of("objective.", tensors), path)
    scalars = dict(description["state"]["scalars"])
    steps = scalars.pop("average.steps", 0)
    if average is not None:
        try:
            average.restore(_of("average.", tensors), int(steps))
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from None
    moments: dict[int, dict[str, Any]] = {}
    for name, value in tensors.items():
        if name.startswith("optimiser."):
            _, index, key = name.split(".", 2)
            moments.setdefault(int(index), {})[key] = value
    for name, scalar in scalars.items():
        index, key = name.split(".", 1)
        moments.setdefault(int(index), {})[key] = scalar
    for first, optimiser in _numbered(optimisers):
        # The groups (rates, decays) are those of the recipe; the state gives moments alone.
        whole = optimiser.state_dict()
        held = range(first, first + _count(optimiser))
        # A parameter that never had a gradient has no moments.
        whole["state"] = {index - first: moments[index] for index in held if index in moments}
        try:
            optimiser.load_state_dict(whole)
        except ValueError as error:
            raise CheckpointError(f"{path}: the optimiser's state does not fit ({error})") from None


def _shards(
    objective: nn.Module, optimisers: Sequence[torch.optim.Optimizer]
) -> Callable[[str], Shard | None]:
    """The rows that this process holds of a state's tensor, by its name; None = all of it."""
    shards = shards_in(objective)
    found = {f"{kind}.{name}": shard for name, shard in shards.items() for kind in ("objective", "average")}
    of_parameters = {id(objective.get_parameter(name)): shard for name, shard in shards.items()}
    for first, optimiser in _numbered(optimisers):
        held = [parameter for group in optimiser.param_groups for parameter in group["params"]]
        for index, parameter in enumerate(held):
            if id(parameter) in of_parameters:
                found[f"optimiser.{first + index}"] = of_parameters[id(parameter)]
    # The moments of a parameter have names of their own behind its number.
    return lambda name: found.get(name) or found.get(name.rpartition(".")[0])


def _of(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _numbered(optimisers: Sequence[torch.optim.Optimizer]) -> Iterator[tuple[int, torch.optim.Optimizer]]:
    """The optimisers with the number of each one's first parameter, counted over all of them."""
    first = 0
    for optimiser in optimisers:
        yield first, optimiser
        first += _count(optimiser)


def _count(optimiser: torch.optim.Optimizer) -> int:
    return sum(len(group["params"]) for group in optimiser.param_groups)
