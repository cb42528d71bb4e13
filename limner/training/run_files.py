"""The files of a run: a checkpoint a stage, and `run.json`, which names the best of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from limner.errors import CheckpointError
from limner.inference.checkpoint import (
    read_checkpoint,
    read_description,
    read_digest,
    tokenizer_tensors,
    write_checkpoint,
    write_text,
)
from limner.inference.learnt_images import learnt_tensors
from limner.inference.provenance import versions
from limner.inference.source import RUN_FILE
from limner.inference.trained import STATE_FILE, read_listing
from limner.models.adapters import merged_state
from limner.sealed_json import digest_of_values, sealed
from limner.training.origin import origin_of
from limner.training.prepare import Prepared
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
    # Without adapters: who loads a run need not know how it was trained.
    tensors = {**merged_state(model), **tokenizer_tensors(data.tokenizer), **learnt}
    return write_checkpoint(path, tensors, description)


def write_run_file(out: Path, data: Prepared, progress: Progress, *, anew: bool = False) -> None:
    """`run.json`: the stages that have a checkpoint, and the one with the best validation score (the later one at a
    tie).

    With `anew` nothing is taken from the `run.json` that is there.
    """
    stages = _stages(data, progress)
    # As they were written, and never of the files as they lie there: one that was exchanged would be called sound.
    digests = {} if anew else read_run_file(out).get("digests", {})
    digests |= {file: digest for best in progress.best for file, digest in best.files.items()}
    # An older state has no digests.
    digests |= {
        file: read_digest(out / file)
        for file in (str(stage["file"]) for stage in stages)
        if file not in digests
    }
    listing = {
        "recipe": data.recipe.name,
        "best": _best(stages),
        "selected_on": "val",
        "select": data.recipe.select,
        "stages": stages,
        "digests": digests,
        # with these a reader knows a later checkpoint of this training, whose run.json is still to be written
        "recipe_digest": digest_of_values(data.identity["recipe"]),
        "seed": data.recipe.seed,
        "data": data.identity["data"],
        "origin": origin_of(data.identity),
        # after which there is no later checkpoint
        "finished": progress.finished,
        "terms": data.terms,
        "versions": versions(),
    }
    # Written last and atomically: it never names a file that is not there.
    write_text(out / RUN_FILE, sealed(listing))


def _stages(data: Prepared, progress: Progress) -> list[dict[str, Any]]:
    """The stages that have a checkpoint, as `run.json` lists them."""
    return [
        {"name": stage.name, "file": stage_file(stage.name), "epoch": best.epoch, "score": best.score}
        # `progress.best` has the stages begun so far, the recipe all of them.
        for stage, best in zip(data.recipe.stages, progress.best, strict=False)
        # A stage begun without a validation yet has no file.
        if best.epoch
    ]


def _best(stages: list[dict[str, Any]]) -> str:
    # Of equal scores the later stage: it started from the earlier one's weights and is at least as trained.
    best = max(range(len(stages)), key=lambda index: (stages[index]["score"], index))
    return str(stages[best]["file"])


def read_run_file(out: Path) -> dict[str, Any]:
    """`run.json`; {} for a run that has no such file yet, or a damaged one, which resuming writes anew."""
    try:
        return read_listing(out)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def expect_own_state(out: Path, resumed: dict[str, Any] | None) -> None:
    """Raise `CheckpointError` if the state to resume from is of another training than `run.json`.

    `resumed`: identity of the training that resumes, if the state agrees with it; `run.json` may have it already.
    """
    listing = read_run_file(out)
    if "recipe_digest" not in listing:
        return
    # As it was written: with the defaults of this version it would have another digest.
    saved = read_description(out / STATE_FILE).get("state", {}).get("identity", {})
    if not any(_is_of(listing, one) for one in (saved, resumed) if one is not None):
        raise CheckpointError(
            f"{out / STATE_FILE}: is the state of another training than the one of {RUN_FILE}; put back the run's own, "
            "or train into another folder"
        )


def expect_own_files(out: Path, best: StageBest) -> None:
    """Raise `CheckpointError` if a stage's checkpoint, or a file that it hands on, is not that of its best epoch."""
    for file, digest in best.files.items():
        if read_digest(out / file) != digest:
            raise _another(out / file, best)


def expect_own_checkpoints(out: Path, data: Prepared, progress: Progress) -> bool:
    """Raise `CheckpointError` if a checkpoint beside a state to resume from is not that of its stage's best epoch.

    That of the stage that is trained may be of a later epoch, where a run was killed between checkpoint and state: it
    will be run again. Returns True if it is.
    """
    found_later = False
    for index, (stage, best) in enumerate(zip(data.recipe.stages, progress.best, strict=False)):
        if not best.epoch:
            continue
        checkpoint = out / stage_file(stage.name)
        described = read_description(checkpoint)
        chosen = described.get("selected") or {}
        # The scores choose the best stage, so both files must tell the same one. An ablation's rows begin with the
        # stages of another row, whose checkpoints describe that one's recipe.
        is_best = (chosen.get("epoch"), chosen.get("score")) == (best.epoch, best.score) and (
            not best.files or read_digest(checkpoint) == best.files[checkpoint.name]
        )
        # An epoch that will be run again: what was ended has no later one.
        is_later = index == progress.stage and progress.epoch < chosen.get("epoch", 0) <= stage.epochs
        if is_later and not is_best:
            training = {"recipe": in_full(described.get("recipe") or {}), "data": described.get("data")}
            is_later = first_difference(training, {name: data.identity[name] for name in training}) is None
            # A version of before wrote none.
            is_later = is_later and described.get("origin") in (None, origin_of(data.identity))
        if chosen.get("stage") != stage.name or not (is_later or is_best):
            raise _another(checkpoint, best)
        found_later |= not is_best
    return found_later


def _another(file: Path, best: StageBest) -> CheckpointError:
    return CheckpointError(
        f"{file}: is not the file of epoch {best.epoch} of this training, but one of another run, stage or epoch; put "
        "that back, or train into another folder"
    )


def renew_run_file(out: Path, identity: dict[str, Any]) -> None:
    """List a training that is resumed as it is now: its recipe may be spelled otherwise, or have new defaults.

    Else its next checkpoint would be taken for that of another run until `run.json` is written.
    """
    listing = read_run_file(out)
    recipe_digest, data = _listed(identity)
    now = {"recipe_digest": recipe_digest, "data": data, "origin": origin_of(identity)}
    if "recipe_digest" in listing and any(listing.get(name) != value for name, value in now.items()):
        write_text(out / RUN_FILE, sealed({**listing, **now}))


def mend_run_file(out: Path, data: Prepared, progress: Progress) -> None:
    """Write the `run.json` of a run that is resumed anew if it is gone, damaged, or does not say what the state says.

    It is written from the state, and from the checkpoints beside it. Raises `CheckpointError` if one of these is
    damaged.
    """
    stages = _stages(data, progress)
    listing = read_run_file(out)
    if not stages or _agrees(out, listing, stages, progress):
        return
    for stage in stages:
        # With its digest: run.json would name a damaged file as the best.
        read_checkpoint(out / stage["file"], only=())
    # Digests that it has of another epoch are wrong; the state of a version of before has none in their place.
    write_run_file(out, data, progress, anew=listing.get("stages") != stages)


def _agrees(out: Path, listing: dict[str, Any], stages: list[dict[str, Any]], progress: Progress) -> bool:
    """True if a `run.json` says what the state says.

    A run may have been killed between both: then `run.json` has a later epoch of the stage that is trained, or the
    first of the next one, and the checkpoint is the one that it names.
    """
    listed, digests = listing.get("stages"), listing.get("digests", {})
    if not listed or "best" not in listing or listing.get("finished", progress.finished) != progress.finished:
        return False
    known, (*before, last) = progress.best, listed
    if (
        not progress.finished
        and before == stages[: len(before)]
        and progress.stage <= len(before) <= progress.stage + 1
        and last.get("epoch", 0) > max((best.epoch for best in progress.best[len(before) :]), default=0)
        and digests.get(last["file"]) == read_digest(out / last["file"])
    ):
        known, stages = progress.best[: len(before)], listed
    return (
        listed == stages
        and listing["best"] == _best(stages)
        # A state of a version of before has none.
        and all(digests.get(file) == digest for best in known for file, digest in best.files.items())
    )


def remove_other_run_file(out: Path, identity: dict[str, Any]) -> None:
    """Remove the `run.json` of a training that was killed before its first state, and began anew with another recipe.

    It would name the new training's checkpoint, which it would refuse as another one.
    """
    listing = read_run_file(out)
    if "recipe_digest" in listing and not _is_of(listing, identity):
        (out / RUN_FILE).unlink()


def _is_of(listing: dict[str, Any], identity: dict[str, Any]) -> bool:
    recipe_digest, data = _listed(identity)
    return bool(
        listing["recipe_digest"] == recipe_digest
        and listing.get("origin") in (None, origin_of(identity))
        and _without_source(listing.get("data")) == _without_source(data)
    )


def _listed(identity: dict[str, Any]) -> tuple[str, Any]:
    return digest_of_values(identity.get("recipe") or {}), identity.get("data")


def _without_source(data: Any) -> dict[str, Any]:
    # How the dataset is spelled differs between machines.
    return {name: one for name, one in (data or {}).items() if name != "source"}
