"""The calibration that searches of a store use, read without a network: the store's own, or that of its model's run."""

import json
import os
from pathlib import Path

from limner.durable import KEY
from limner.errors import CheckpointError
from limner.inference.calibration_file import FILE, RunCalibration, load_calibration, parse_calibration
from limner.search.manifest import FILE as MANIFEST
from limner.search.manifest import StoreManifest, read_manifest
from limner.search.store_files import StoreFiles
from limner.search.store_path import StorePath, reached
from limner.types import Encoder

SPLIT_NAME = "store"
"""Split that a store's own calibration names; a run's file in its place would give wrong probabilities."""


def calibration_for(store: StoreFiles, run: Encoder, path: Path) -> RunCalibration | None:
    """Find the calibration for searches of a store: the store's own, else that of the run.

    The kept model stands for the run that it was kept from, whose calibration goes before the one that is kept with it.
    """
    # the store's own first: it was fitted to these images and sentences
    found = load_store_calibration(store.folder, run.fingerprint, store.manifest)
    # it may have been calibrated since
    if found is None and (source := source_of(store, path, FILE)) is not None:
        found = load_calibration(source, run.fingerprint)
    return found or load_calibration(path, run.fingerprint)


def source_of(store: StoreFiles, path: Path, file: str) -> Path | None:
    """The run that a store's kept model was kept from, if it has this file; a run that is gone is not needed."""
    source = store.manifest.kept_from
    if source is None or path.parent.resolve() != Path(store.run).resolve():
        return None
    folder = Path(source)
    beside = (folder.parent if os.path.isfile(folder) else folder) / file  # noqa: PTH113 - raises nothing without rights
    return folder if os.access(beside, os.R_OK) else None


def load_store_calibration(
    folder: StorePath, fingerprint: str, manifest: StoreManifest
) -> RunCalibration | None:
    """The calibration in the folder of a store; None without a file, and for one of another model.

    Raises `CheckpointError` for a damaged file, for that of a run or of another store, and for one that is not the one
    that `store.json` names, or is gone.
    """
    while True:
        try:
            return _loaded(folder, fingerprint, manifest)
        except CheckpointError:
            # a calibration that has been written meanwhile
            if (now := read_manifest(folder)) == manifest:
                raise
            manifest = now


def _loaded(folder: StorePath, fingerprint: str, manifest: StoreManifest) -> RunCalibration | None:
    file = folder / FILE
    with reached(folder, "read"):
        try:
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            if manifest.calibration:
                raise CheckpointError(f"{file}: is gone; put it back, or {_AGAIN}") from None
            return None
        except UnicodeDecodeError:
            text = ""  # which is called damaged
    found = parse_calibration(text, file)
    if found.split != SPLIT_NAME:
        raise CheckpointError(f"{file}: that of a run, not of a store; {_AGAIN}")
    if found.store != manifest.id:
        raise CheckpointError(f"{file}: that of another store; {_AGAIN}")
    if manifest.calibration and json.loads(text).get(KEY) not in manifest.calibration:
        raise CheckpointError(f"{file}: not the one that {MANIFEST} names; put that back, or {_AGAIN}")
    return found if found.fingerprint == fingerprint else None


_AGAIN = "fit it anew with `limner calibrate --store`"
