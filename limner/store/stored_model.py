"""The model of a store where it may be an export, too: loaded without torch, or kept in a new store's folder."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from limner.errors import CheckpointError, SettingsError, StoreError
from limner.export.exported import FILE, ExportedModel, is_export, load_export, read_description
from limner.sealed_json import sealed
from limner.store.files import StoreFiles, has_store, store_for
from limner.store.manifest import PARTIAL_MODEL
from limner.store.path import StorePath, is_remote
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
    is_there = has_store(folder)
    # a model is read from a disk: of an object storage it would be fetched each time that the store is opened
    kept = not is_there and keep_model and not is_remote(folder)
    return store_for(model, model.path, folder, regions=regions, keep=partial(_keep, model) if kept else None)


def _keep(model: ExportedModel, folder: Path) -> None:
    """Copy an export's files into a new folder, as a whole or not at all."""
    partial_folder = folder.with_name(PARTIAL_MODEL)
    try:
        _remove_kept(folder)
        shutil.rmtree(partial_folder, ignore_errors=True)
        try:
            shutil.copytree(model.path, partial_folder)
            told = read_description(partial_folder)
            (partial_folder / FILE).write_text(sealed({**told, _MARK: True}), encoding="utf-8")
            # its own files against their digests: a copy may be damaged, and the export may have been replaced
            load_export(partial_folder).expect_whole()
            if told["fingerprint"] != model.fingerprint:
                raise StoreError(f"{model.path}: is no longer the export that was loaded; load it again")
            # last: a folder of this name holds all of it
            partial_folder.rename(folder)
        except BaseException:
            shutil.rmtree(partial_folder, ignore_errors=True)
            raise
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
        ours = json.loads((folder / FILE).read_text(encoding="utf-8")).get(_MARK) is True
    except (OSError, ValueError, AttributeError, RecursionError):
        ours = False
    if not ours:
        raise StoreError(
            f"{folder.parent}: not empty (holds {folder.name!a}); choose a new folder for the store"
        )
    shutil.rmtree(folder)
