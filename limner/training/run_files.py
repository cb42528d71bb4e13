"""The files of a run: a checkpoint a stage, and `run.json`, which names the best of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from limner.durable import digest_of_values, sealed, write_text
from limner.errors import CheckpointError
from limner.inference.checkpoint import (
    read_checkpoint,
    read_digest,
    tokenizer_tensors,
    write_checkpoint,
)
from limner.inference.learnt_images import learnt_tensors
from limner.inference.provenance import versions
from limner.inference.run_file import read_listing
from limner.inference.source import RUN_FILE, STATE_FILE
from limner.models.adapters import merged_state
from limner.plugins import package_of
from limner.training.origin import origin_of
from limner.training.prepare import Prepared
from limner.training.recipe import Recipe
from limner.training.state import Progress, StageBest, first_difference, in_full


def stage_file(stage: str) -> str:
    """Name of the checkpoint of a stage's best epoch."""
    return f"{stage}.safetensors"


def last_file(stage: str) -> str:
    """Name of the checkpoint of a stage's last epoch, where the stage keeps it; a stage's name has no dot."""
    return f"{stage}.last.safetensors"


def handed_file(stage: str, part: str) -> str:
    """Name of the file with a loss's state from the same epoch, e.g. the shared classifier; only the next stage needs
    it."""
    return f"{stage}-{part}.safetensors"


def write_stage_checkpoint(
    out: Path,
    data: Prepared,
    stage: str,
    progress: Progress,
    row: dict[str, Any],
    handed: Mapping[str, Mapping[str, Tensor]],
) -> dict[str, str]:
    """The current network as a stage's best, with everything needed to use it and to know where it comes from.

    `handed`: the tensors that the stage hands on, by the names of their parts. Returns the digests of what is written:
    the checkpoint, and what the stage hands on.
    """
    # Before the network's file: whoever finds the stage's checkpoint finds what it hands on, too.
    digests = {}
    for part, tensors in handed.items():
        file = handed_file(stage, part)
        digests[file] = write_checkpoint(out / file, tensors, {})
    file = stage_file(stage)
    selected = _selected(stage, progress, row, "val", data.recipe.select)
    return {**digests, file: _write_network(out / file, data, selected)}


def write_last_checkpoint(
    out: Path, data: Prepared, stage: str, progress: Progress, row: dict[str, Any]
) -> None:
    """The current network as that of a stage's last epoch, which no split has selected."""
    selected = _selected(stage, progress, row, None, "last epoch")
    _write_network(out / last_file(stage), data, selected)


def _selected(
    stage: str, progress: Progress, row: dict[str, Any], split: str | None, by: str
) -> dict[str, Any]:
    """The epoch of a checkpoint, its validation scores, and the split and the measure that chose it."""
    scores = {name: row[name] for name in ("score", "image_to_text", "text_to_image")}
    return {"stage": stage, "epoch": progress.epoch, "split": split, "by": by, **scores}


def _write_network(path: Path, data: Prepared, selected: dict[str, Any]) -> str:
    """A checkpoint of the current network. Returns its digest."""
    recipe = data.recipe
    # The identity holds the recipe as plain JSON values, so a checkpoint is read without this version's classes.
    identity = data.identity
    model = data.objective.model
    description: dict[str, Any] = {
        "system": recipe.model.system,
        "model": identity["recipe"]["model"],
        "images": identity["recipe"]["images"],
        # None in a stage before the cross-encoder's, though the recipe has one.
        "cross_encoder": None
        if model.cross_encoder is None
        else model.cross_encoder.settings.model_dump(mode="json"),
        "files": model.files(),
        "tokenizer": data.tokenizer.to_description(),
        "recipe": identity["recipe"],
        "selected": selected,
        "data": identity["data"],
        "origin": origin_of(identity),
        "terms": data.terms,
        "learnt_images": "all" if data.learnt_whole else "part",
        "seed": recipe.seed,
        "versions": versions(),
    }
    learnt = learnt_tensors(data.train_pictures.digests(), data.val_pictures.digests(), data.learnt_before)
    if packages := _packages(recipe):
        description["packages"] = packages
    # Without adapters: who loads a run need not know how it was trained.
    tensors = {**merged_state(model), **tokenizer_tensors(data.tokenizer), **learnt}
    return write_checkpoint(path, tensors, description)


def _packages(recipe: Recipe) -> dict[str, str]:
    """By what a recipe has of other packages, the package with its version."""
    losses = [loss for stage in recipe.stages for loss in stage.losses]
    found = {
        f"encoder {recipe.model.system}": package_of(
            "limner.encoders", recipe.model.system, type(recipe.model)
        ),
        **{f"loss {loss.kind}": package_of("limner.losses", loss.kind, type(loss)) for loss in losses},
    }
    return {name: package for name, package in found.items() if package is not None}


def write_run_file(out: Path, data: Prepared, progress: Progress) -> None:
    """Write `run.json` as the state has it, unless it says so: the stages that have a checkpoint, and the best of them.

    That is the one with the best validation score, the later one at a tie.
    """
    stages = [
        {"name": stage.name, "file": stage_file(stage.name), "epoch": best.epoch, "score": best.score}
        # `progress.best` has the stages begun so far, the recipe all of them.
        for stage, best in zip(data.recipe.stages, progress.best, strict=False)
        # A stage begun without a validation yet has no file; that of an epoch that is run again is gone.
        if best.score > float("-inf")
    ]
    if not stages:
        return
    # Of equal scores the later stage: it started from the earlier one's weights and is at least as trained.
    best = max(range(len(stages)), key=lambda index: (stages[index]["score"], index))
    listing = {
        "recipe": data.recipe.name,
        "best": stages[best]["file"],
        "selected_on": "val",
        "select": data.recipe.select,
        "stages": stages,
        # As they were written, and never of the files as they lie there: one that was exchanged would be called sound.
        "digests": {file: digest for best in progress.best for file, digest in best.files.items()},
        # with these a reader knows a later checkpoint of this training, whose run.json is still to be written
        "recipe_digest": digest_of_values(data.identity["recipe"]),
        "seed": data.recipe.seed,
        "data": data.identity["data"],
        "origin": origin_of(data.identity),
        # after which there is no later checkpoint
        "finished": progress.finished,
        "terms": data.terms,
    }
    # A finished run that is resumed by another version stays as it is.
    if {name: one for name, one in _read_run_file(out).items() if name != "versions"} != listing:
        # Atomically, and behind the checkpoints: it never names a file that is not there.
        write_text(out / RUN_FILE, sealed({**listing, "versions": versions()}))


def _read_run_file(out: Path) -> dict[str, Any]:
    """`run.json`; {} for a run that has no such file yet, or a damaged one."""
    try:
        return read_listing(out)
    except (OSError, ValueError):
        return {}


def expect_own_files(out: Path, best: StageBest) -> None:
    """Raise `CheckpointError` if a stage's checkpoint, or a file that it hands on, is not that of its best epoch."""
    for file, digest in best.files.items():
        if read_digest(out / file) != digest:
            raise _another(out / file, best)


def expect_own_checkpoints(out: Path, progress: Progress, identity: dict[str, Any]) -> bool:
    """Raise `CheckpointError` if a checkpoint is not that of its stage's best epoch in a state, or `identity` its own.

    That of the stage that is trained may be of a later epoch, where a run was killed between checkpoint and state: it
    will be run again. Returns True if it is.
    """
    for index, (stage, best) in enumerate(zip(identity["recipe"]["stages"], progress.best, strict=False)):
        if not best.epoch:
            continue
        checkpoint = out / stage_file(stage["name"])
        # With its digest: run.json would name a damaged file as the best.
        _, described = read_checkpoint(checkpoint, only=())
        chosen = described.get("selected") or {}
        is_best = read_digest(checkpoint) == best.files.get(checkpoint.name)
        # The scores choose the best stage, so both files must tell the same one.
        if is_best and (chosen.get("epoch"), chosen.get("score")) == (best.epoch, best.score):
            continue
        training = {"recipe": in_full(described.get("recipe") or {}), "data": described.get("data")}
        if not (
            index == progress.stage
            and chosen.get("stage") == stage["name"]
            # An epoch that will be run again: what was ended has no later one.
            and progress.epoch < chosen.get("epoch", 0) <= stage["epochs"]
            and described.get("origin") == origin_of(identity)
            and first_difference(training, {name: identity[name] for name in training}) is None
        ):
            raise _another(checkpoint, best)
        return True
    return False


def _another(file: Path, best: StageBest) -> CheckpointError:
    return CheckpointError(
        f"{file}: is not the file of epoch {best.epoch} that {STATE_FILE} names, and one of both is of another run, "
        "stage or epoch; put that back, or train into another folder"
    )
