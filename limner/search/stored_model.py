"""The model of a store where it may be an export, too: loaded without torch, or kept in a new store's folder."""

import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from limner.durable import read_json, sealed, sync_all, whole_folder, write_whole
from limner.errors import CheckpointError, SettingsError, StoreError
from limner.export.exported import FILE, ExportedModel, is_export, load_export, read_description
from limner.search.manifest import FILE as MANIFEST
from limner.search.manifest import PARTIAL_MODEL
from limner.search.store_files import StoreFiles, store_for
from limner.search.store_path import StorePath, is_remote, reached
from limner.types import Encoder

if TYPE_CHECKING:
    from limner.inference.trained import TrainedModel

_Encoder = TypeVar("_Encoder", bound=Encoder)

_MARK = "kept"
"""Key of `export.json` that tells an export that was kept in a store from one of the user's."""


def load_stored_model(
    path: str | Path, files: StoreFiles, *, device: str | None = None
) -> "TrainedModel | ExportedModel":
    """Load a run in the arithmetic of a store, or an export without torch.

    Raises `CheckpointError` and `SettingsError`.
    """
    if is_export(path):
        return load_export(path)
    # here: torch takes two seconds to load, which an export need not wait for
    from limner.inference.trained import load_model

    return load_model(path, device=device, precision=files.manifest.precision)


def as_stored(encoder: _Encoder, files: StoreFiles) -> _Encoder:
    """A run in the arithmetic of a store's embeddings; an export, and a model of others, have one of their own."""
    stored, change = files.manifest.precision, getattr(encoder, "in_precision", None)
    if stored is None or change is None:
        return encoder
    changed: _Encoder = change(stored)
    return changed


def store_of_export(
    model: ExportedModel, folder: StorePath, *, regions: bool | None = None, keep_model: bool = True
) -> StoreFiles:
    """Open the store in a folder, or make one there that holds the export, as `store_of_run` does for a run.

    Raises `SettingsError` for an export that embeds pictures only nearly as its run, `StoreError` as `store_for`.
    """
    model.expect_to_index(regions=False)
    with reached(folder, "read"):
        is_there = (folder / MANIFEST).exists()
    # a model is read from a disk: of an object storage it would be fetched each time that the store is opened
    kept = not is_there and keep_model and not is_remote(folder)
    return store_for(model, model.path, folder, regions=regions, keep=partial(_keep, model) if kept else None)


def _keep(model: ExportedModel, folder: Path) -> None:
    """Copy an export's files into a new folder, as a whole or not at all."""
    try:
        _remove_kept(folder)
        with whole_folder(folder, folder.with_name(PARTIAL_MODEL)) as partial_folder:
            shutil.copytree(model.path, partial_folder, dirs_exist_ok=True)
            told = read_description(partial_folder)
            write_whole(partial_folder / FILE, sealed({**told, _MARK: True}))
            # its own files against their digests: a copy may be damaged, and the export may have been replaced
            load_export(partial_folder).expect_whole()
            if told["fingerprint"] != model.fingerprint:
                raise StoreError(f"{model.path}: is no longer the export that was loaded; load it again")
            sync_all(partial_folder)
    except (OSError, shutil.Error, CheckpointError, SettingsError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).splitlines()[0]
        raise StoreError(
            f"{folder}: the model cannot be kept in the store ({reason}); mend that, or leave it out with --no-model "
            "(keep_model=False)"
        ) from None


def _remove_kept(folder: Path) -> None:
    """Remove an export that a killed call kept for a store that was never made; leave anything else alone."""
    if not folder.exists():
        return
    try:
        ours = read_json(folder / FILE).get(_MARK) is True
    except (OSError, ValueError, AttributeError):
        ours = False
    if not ours:
        raise StoreError(
            f"{folder.parent}: not empty (holds {folder.name!a}); choose a new folder for the store"
        )
    shutil.rmtree(folder)
