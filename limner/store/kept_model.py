"""The model of a store: loaded in the store's arithmetic, and kept in a new store's folder.

    STORE/model/NAME.safetensors   the run's checkpoint, by a hard link where the file system allows it
    STORE/model/run.json           names it, so that the folder is a run folder
    STORE/model/calibration.json   the run's calibration of this checkpoint, if it had one
    STORE/model/inversion.safetensors   the run's mapping of pictures to words, if it had one

An export is kept with all its files. A run that trains on, moves or is deleted leaves the store as it is: limner writes
every checkpoint beside its place and renames it, so the linked file keeps the old bytes.
"""

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from limner.durable import copy_folder, read_json, sealed, sync_all, whole_folder, write_text
from limner.errors import CheckpointError, SettingsError, StoreError
from limner.export.exported import ExportedModel, load_export, read_description
from limner.inference.source import EXPORT_FILE, RUN_FILE, kind_of
from limner.store.calibration import source_of
from limner.store.files import StoreFiles
from limner.store.manifest import MODEL_FOLDER, PARTIAL_MODEL
from limner.types import Encoder

if TYPE_CHECKING:
    # here and within functions: torch takes two seconds to load, which an export need not wait for
    from limner.inference.composing import Inversion
    from limner.inference.precision import InferenceEngine, Precision
    from limner.inference.trained import TrainedModel

_Encoder = TypeVar("_Encoder", bound=Encoder)

_MARK = "kept"
"""Key of `run.json` or `export.json` that lists the files of a model that was kept; the user's own has none."""


def load_source(
    source: str | Path,
    *,
    stage: str | None = None,
    device: str | None = None,
    engine: "InferenceEngine" = "torch",
    precision: "Precision | None" = None,
) -> "TrainedModel | ExportedModel":
    """Load an export without torch, or a run as `load_model` does. Raises `CheckpointError` and `SettingsError`."""
    if kind_of(source) == "export":
        return load_export(source)
    from limner.inference.load import load_model

    return load_model(source, stage=stage, device=device, engine=engine, precision=precision)


def load_stored_model(
    path: str | Path, files: StoreFiles, *, device: str | None = None
) -> "TrainedModel | ExportedModel":
    """Load a store's model in the arithmetic of its embeddings. Raises as `load_source`."""
    return load_source(path, device=device, precision=files.manifest.precision)


def as_stored(encoder: _Encoder, files: StoreFiles) -> _Encoder:
    """A run in the arithmetic of a store's embeddings; an export, and a model of others, have one of their own."""
    stored, change = files.manifest.precision, getattr(encoder, "in_precision", None)
    if stored is None or change is None:
        return encoder
    changed: _Encoder = change(stored)
    return changed


def inversion_for(store: StoreFiles, run: "TrainedModel") -> "Inversion | None":
    """Find the inversion for composed queries: that of the run that the model was kept from, else the kept one."""
    from limner.inference.composing import FILE, load_inversion

    # it may have been trained since, or anew
    source = source_of(store, run.path, FILE)
    found = None if source is None else load_inversion(source, run.fingerprint)
    return found or load_inversion(run.path, run.fingerprint)


def keep(model: "TrainedModel | ExportedModel", folder: Path) -> None:
    """Put a loaded model's files into a new folder, as a whole or not at all.

    What an earlier call left there is replaced. Raises `StoreError` if the folder holds anything else, if the model's
    files have been replaced since it was loaded, and if the disk refuses.
    """
    try:
        # the model itself may lie there, and is no remains of ours
        _remove_kept(folder, besides=model.path)
        with whole_folder(folder, folder.with_name(PARTIAL_MODEL)) as partial:
            if isinstance(model, ExportedModel):
                name, listing = EXPORT_FILE, _put_export(model, partial)
            else:
                name, listing = RUN_FILE, _put_run(model, partial)
            ours = sorted({name, *(path.name for path in partial.iterdir())})
            write_text(partial / name, sealed({**listing, _MARK: ours}))
            # before the folder has its name: a power cut must not leave it with empty files
            sync_all(partial)
    except (OSError, CheckpointError, SettingsError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).splitlines()[0]
        raise StoreError(
            f"{folder}: the model cannot be kept in the store ({reason}); mend that, or leave it out with --no-model "
            "(keep_model=False)"
        ) from None


def take_back(files: StoreFiles) -> None:
    """Put the model of a store anew into its folder, from the run that it was kept from.

    Raises `LimnerError` if the store keeps none, and if that run is gone or has another model by now.
    """
    source, folder = files.manifest.kept_from, Path(files.run)
    if source is None or folder != Path(f"{files.folder}/{MODEL_FOLDER}"):
        raise StoreError(f"{files.folder}: keeps no model of its own")
    model = load_stored_model(source, files, device="cpu")
    files.check_model(model.fingerprint, model.dim)
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)
    keep(model, folder)


def _put_export(model: ExportedModel, folder: Path) -> dict[str, Any]:
    """Copy an export, and return the content of its `export.json`."""
    copy_folder(model.path, folder)
    # its own files against their digests: a copy may be damaged, and the export may have been replaced
    load_export(folder).expect_whole()
    found = read_description(folder)
    if found["fingerprint"] != model.fingerprint:
        raise StoreError(f"{model.path}: is no longer the export that was loaded; load it again")
    return found


def _put_run(model: "TrainedModel", folder: Path) -> dict[str, Any]:
    """Link or copy a run's checkpoint, and return the content of a `run.json` that names it."""
    from limner.inference.calibration import write_calibration
    from limner.inference.calibration_file import load_calibration
    from limner.inference.checkpoint import read_checkpoint, read_digest
    from limner.inference.composing import load_inversion, write_inversion

    checkpoint = folder / model.path.name
    _link_or_copy(model.path, checkpoint)
    # the run may be training, and its checkpoint another one than a moment ago; a copy may be damaged
    tensors, description = read_checkpoint(checkpoint)
    if description != model.description or not model.holds(tensors):
        raise StoreError(
            f"{model.path}: is no longer the checkpoint that was loaded, a training may have replaced it; load it again"
        )
    if (calibration := load_calibration(model.path, model.fingerprint)) is not None:
        write_calibration(folder, calibration)
    if (inversion := load_inversion(model.path, model.fingerprint)) is not None:
        write_inversion(folder, inversion)
    selected = description.get("selected") or {}
    stage = {"name": selected.get("stage", model.path.stem), "file": checkpoint.name}
    return {
        "recipe": description["recipe"].get("name"),
        "best": checkpoint.name,
        "selected_on": selected.get("split"),
        "stages": [stage | {name: selected[name] for name in ("epoch", "score") if name in selected}],
        "digests": {checkpoint.name: read_digest(checkpoint)},
        **{name: description.get(name) for name in ("seed", "data", "versions")},
    }


def _link_or_copy(source: Path, target: Path) -> None:
    # resolved: else the link would be to a symbolic link, which may point elsewhere later
    source = source.resolve()
    try:
        # no second gigabyte on the disk
        os.link(source, target)
    except OSError:
        # another file system, one without hard links, or a file of another user
        shutil.copyfile(source, target)


def _remove_kept(folder: Path, besides: Path) -> None:
    """Remove a model that a killed call kept for a store that was never made; leave anything else alone."""
    if not folder.exists():
        return
    ours: set[str] = set()
    for name in (RUN_FILE, EXPORT_FILE):
        try:
            ours |= set(read_json(folder / name)[_MARK])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    own = folder.resolve() in (besides.resolve(), besides.resolve().parent)
    if own or any(path.name not in ours for path in folder.iterdir()):
        raise StoreError(
            f"{folder.parent}: not empty (holds {folder.name!a}); choose a new folder for the store"
        )
    shutil.rmtree(folder)
