"""The file `run.json` of a run folder: which checkpoint is the run's, and whether it is the one that lies there."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from limner.durable import digest_of_values, opened, read_json
from limner.errors import CheckpointError, SettingsError
from limner.inference.checkpoint import read_description, read_digest
from limner.inference.hub_runs import local_run
from limner.inference.source import RUN_FILE, STATE_FILE, SourceKind, kind_of

_NO_RUN: dict[SourceKind | None, str] = {
    "export": "an export, which indexes and searches only; give the run that it was made of",
    "pretrained": "a pretrained model, or an export for another program, and no run; a pretrained pair is made one by "
    "`limner import`, an export for limner by `limner export --format onnx`",
    "sentence-transformers": "a name of sentence-transformers and no run; it is made one by `limner import`",
    "store": "a store of pictures and no run; give the run that it was built with (`limner store info`)",
    None: f"no trained run here ({RUN_FILE} is missing); train one with `limner train`, or index with "
    "a pretrained model: hf:ORG/NAME, or its folder",
}


def expect_free(folder: Path, what: str, *, resume: bool = False) -> None:
    """Raise `SettingsError` for the folder of a store or model, before `what` is written into it.

    A training that was killed before its first state may have left `run.json`; it is begun again, and by `resume` one
    that has lost its state.
    """
    kind, begun = kind_of(folder), False
    if kind == "run":
        with suppress(OSError, ValueError):
            listing = read_listing(folder)
            # an imported run has no origin
            begun = "origin" in listing and (resume or not listing.get("finished"))
    if kind in _FOLDERS and not begun:
        raise SettingsError(f"{folder}: it is the folder of {_FOLDERS[kind]}; give another one for {what}")


_FOLDERS: dict[SourceKind | None, str] = {
    "export": "an export",
    "pretrained": "a pretrained model",
    "run": "a run",
    "store": "a store",
}


def checkpoint_path(folder: Path, stage: str | None) -> Path:
    """The checkpoint file that a run folder's `run.json` names; a run `hf:ORG/NAME` of the hub is fetched.

    Raises `CheckpointError` if another is in its place.
    """
    folder = local_run(folder)
    if folder.is_file():
        return folder
    try:
        listing = read_listing(folder)
        stages = {str(entry["name"]): str(entry["file"]) for entry in listing["stages"]}
        best = str(listing["best"])
        # older runs have none
        digests = dict(listing.get("digests", {}))
    except FileNotFoundError:
        raise CheckpointError(f"{folder}: {_NO_RUN.get(kind_of(folder), _NO_RUN[None])}") from None
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise CheckpointError(f"{folder / RUN_FILE}: damaged ({error}); resume the run to mend it") from None
    finished = bool(listing.get("finished")) | _compared_with_state(folder, listing)
    if stage is not None and stage not in stages:
        raise CheckpointError(f"{folder}: no checkpoint of stage '{stage}'; there are: {', '.join(stages)}")
    path = folder / (best if stage is None else stages[stage])
    listed = digests.get(path.name)
    if listed is not None and read_digest(path) != listed and (finished or not _is_later(path, listing)):
        raise CheckpointError(
            f"{path}: is not the checkpoint that {RUN_FILE} names, but one of another run, stage or epoch; put that "
            "back, or give this file itself to load it all the same"
        )
    return path


def read_listing(folder: Path) -> dict[str, Any]:
    """The content of a run folder's `run.json`.

    Raises `OSError` where it cannot be read, and `ValueError` where it is damaged.
    """
    path = folder / RUN_FILE
    if path.exists() and not path.is_file():
        # a pipe or a device, which would keep the reader waiting
        raise OSError("it is no file")
    values = read_json(path)
    # the oldest runs have no digest of any kind in it
    return opened(values, required="digests" in values)


def _compared_with_state(folder: Path, listing: Mapping[str, Any]) -> bool:
    """True if a state lies beside `run.json` that says that the training is finished.

    Raises `CheckpointError` if the state has a better epoch than `run.json`, which training writes before it.
    """
    try:
        # its header alone, which takes no time; nothing else of a state is needed to use a run
        state = read_description(folder / STATE_FILE)["state"]
        trained = [str(stage["name"]) for stage in state["identity"]["recipe"]["stages"]]
        chosen = dict(zip(trained, (int(best["epoch"]) for best in state["progress"]["best"]), strict=False))
        finished = state["progress"]["finished"] is True
    # gone, damaged, or written by another program: a run is used without it
    except (CheckpointError, KeyError, TypeError, ValueError):
        return False
    listed = {str(entry["name"]): entry.get("epoch") for entry in listing["stages"]}
    # epoch 0 is a stage without a validation yet; a listing without epochs cannot be compared
    if None not in listed.values() and any(epoch > listed.get(name, 0) for name, epoch in chosen.items()):
        raise CheckpointError(
            f"{folder / RUN_FILE}: is older than {STATE_FILE} beside it, or of another run; resume the run to mend "
            "it, or give a checkpoint file itself"
        )
    return finished


def _is_later(path: Path, listing: Mapping[str, Any]) -> bool:
    """True for a later epoch of the same training, which goes on or was killed before it wrote `run.json`."""
    description = read_description(path)
    chosen = description.get("selected") or {}
    found = (
        digest_of_values(description.get("recipe") or {}),
        description.get("seed"),
        description.get("data"),
        # earlier runs have none
        description.get("origin") if "origin" in listing else None,
    )
    return found == tuple(map(listing.get, ("recipe_digest", "seed", "data", "origin"))) and any(
        entry["name"] == chosen.get("stage") and entry.get("epoch", 0) < chosen.get("epoch", 0)
        for entry in listing["stages"]
        if entry["file"] == path.name
    )
