"""The calibration that searches of a store use, read without a network: the store's own, or that of its model's run."""

import os
from pathlib import Path

from limner.errors import CheckpointError
from limner.inference.calibration_file import (
    FILE,
    RunCalibration,
    calibration_text,
    load_calibration,
    parse_calibration,
)
from limner.store.files import StoreFiles
from limner.types import Encoder

TEXT = "calibration"
"""Name of the text in which a store keeps its own calibration."""

SPLIT_NAME = "store"
"""Split that a store's own calibration names; a run's file in its place would give wrong probabilities."""


def calibration_for(store: StoreFiles, run: Encoder, path: Path) -> RunCalibration | None:
    """Find the calibration for searches of a store: the store's own, else that of the run.

    The kept model stands for the run that it was kept from, whose calibration goes before the one that is kept with it.
    """
    # the store's own first: it was fitted to these images and sentences
    found = load_store_calibration(store, run.fingerprint)
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


def load_store_calibration(store: StoreFiles, fingerprint: str) -> RunCalibration | None:
    """The calibration that a store holds; None without one, and for one of another model.

    Raises `CheckpointError` for one that is damaged, or that of a run or of another store.
    """
    text = store.rows.text(TEXT)
    if text is None:
        return None
    found = parse_calibration(text, f"{store.folder}: its calibration")
    if found.split != SPLIT_NAME or found.store != store.manifest.id:
        raise CheckpointError(f"{store.folder}: holds the calibration of another store; {_AGAIN}")
    return found if found.fingerprint == fingerprint else None


def write_store_calibration(store: StoreFiles, calibration: RunCalibration) -> None:
    """Write a calibration into a store. Raises `StoreError` if that fails, and while another process writes."""
    with store.writing():
        store.rows.set_text(TEXT, calibration_text(calibration.replace(store=store.manifest.id)))


_AGAIN = "fit it anew with `limner calibrate --store`"
