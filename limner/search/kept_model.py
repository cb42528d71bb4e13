"""The model in a store's folder: the exact checkpoint that the store was built with, linked or copied from its run.

    STORE/model/NAME.safetensors   the checkpoint, by a hard link where the file system allows it
    STORE/model/run.json           names it, so that the folder is a run folder
    STORE/model/calibration.json   the run's calibration of this checkpoint, if it had one
    STORE/model/inversion.safetensors   the run's mapping of pictures to words, if it had one

A run that trains on, moves or is deleted leaves the store as it is: limner writes every checkpoint beside its place and
renames it, so the linked file keeps the old bytes.
"""

import os
import shutil
from pathlib import Path
from typing import Any

from limner.durable import read_json, sealed, sync, whole_folder, write_text
from limner.errors import CheckpointError, StoreError
from limner.inference.calibration import write_calibration
from limner.inference.calibration_file import FILE as CALIBRATION
from limner.inference.calibration_file import load_calibration
from limner.inference.checkpoint import read_checkpoint, read_digest
from limner.inference.composing import FILE as INVERSION
from limner.inference.composing import Inversion, load_inversion, write_inversion
from limner.inference.trained import RUN_FILE, TrainedModel
from limner.search.manifest import PARTIAL_MODEL
from limner.search.store_calibration import source_of
from limner.search.store_files import StoreFiles

_MARK = "kept"
"""Key of `run.json` that tells a model that was kept from a run folder of the user's."""


def keep_model(encoder: TrainedModel, folder: Path) -> None:
    """Link or copy a loaded model's checkpoint into a new folder, as a whole or not at all.

    What an earlier call left there is replaced. Raises `StoreError` if the folder holds anything else, if the run's
    checkpoint has been replaced since it was loaded, and if the disk refuses.
    """
    try:
        # the run itself may lie there, and is no remains of ours
        _remove_kept(folder, besides=encoder.path)
        with whole_folder(folder, folder.with_name(PARTIAL_MODEL)) as partial:
            checkpoint = partial / encoder.path.name
            _link_or_copy(encoder.path, checkpoint)
            # the run may be training: its checkpoint may be another one than a moment ago
            if not _is_same(encoder, checkpoint):
                raise StoreError(
                    f"{encoder.path}: is no longer the checkpoint that was loaded, a training may have replaced it; "
                    "load it again"
                )
            calibration = load_calibration(encoder.path, encoder.fingerprint)
            if calibration is not None:
                write_calibration(partial, calibration)
            inversion = load_inversion(encoder.path, encoder.fingerprint)
            if inversion is not None:
                write_inversion(partial, inversion)
            write_text(partial / RUN_FILE, sealed(_listing(encoder, checkpoint)))
    except (OSError, CheckpointError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).splitlines()[0]
        raise StoreError(
            f"{folder}: the model cannot be kept in the store ({reason}); mend that, or leave it out with --no-model "
            "(keep_model=False)"
        ) from None


def inversion_for(store: StoreFiles, run: TrainedModel) -> Inversion | None:
    """Find the inversion for composed queries: that of the run that the model was kept from, else the kept one."""
    # it may have been trained since, or anew
    source = source_of(store, run.path, INVERSION)
    found = None if source is None else load_inversion(source, run.fingerprint)
    return found or load_inversion(run.path, run.fingerprint)


def _link_or_copy(source: Path, target: Path) -> None:
    # resolved: else the link would be to a symbolic link, which may point elsewhere later
    source = source.resolve()
    try:
        # no second gigabyte on the disk
        os.link(source, target)
    except OSError:
        # another file system, one without hard links, or a file of another user
        shutil.copyfile(source, target)
        sync(target)


def _is_same(encoder: TrainedModel, checkpoint: Path) -> bool:
    """True if a checkpoint file holds what was loaded; a copy that was damaged does not."""
    tensors, description = read_checkpoint(checkpoint)
    return bool(description == encoder.description) and encoder.holds(tensors)


def _listing(encoder: TrainedModel, checkpoint: Path) -> dict[str, Any]:
    """The content of `run.json`, as `limner.inference.trained.checkpoint_path` reads it."""
    description = encoder.description
    selected = description.get("selected") or {}
    stage = {"name": selected.get("stage", encoder.path.stem), "file": encoder.path.name}
    stage |= {name: selected[name] for name in ("epoch", "score") if name in selected}
    return {
        "recipe": description["recipe"].get("name"),
        "best": encoder.path.name,
        "selected_on": selected.get("split"),
        "stages": [stage],
        "digests": {checkpoint.name: read_digest(checkpoint)},
        "seed": description.get("seed"),
        "data": description.get("data"),
        "versions": description.get("versions"),
        _MARK: True,
    }


def _remove_kept(folder: Path, besides: Path) -> None:
    """Remove a model that a killed call kept for a store that was never made; leave anything else alone."""
    if not folder.exists():
        return
    try:
        listing = read_json(folder / RUN_FILE)
        ours = {RUN_FILE, CALIBRATION, INVERSION, listing["best"]} if listing[_MARK] is True else set()
    except (OSError, ValueError, KeyError, TypeError):
        ours = set()
    if (
        not ours
        or besides.resolve().parent == folder.resolve()
        or any(path.name not in ours for path in folder.iterdir())
    ):
        raise StoreError(
            f"{folder.parent}: not empty (holds {folder.name!a}); choose a new folder for the store"
        )
    shutil.rmtree(folder)
