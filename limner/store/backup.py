"""Copies of a store that others may write to meanwhile."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from limner.durable import copy_folder, sync
from limner.errors import SettingsError, StoreError
from limner.store.files import StoreFiles
from limner.store.lock import LOCK_FILE, lock_of
from limner.store.manifest import MODEL_FOLDER
from limner.store.path import expect_own_files, reached, store_path
from limner.store.verify import verify
from limner.store_reports import Verification


def backup(
    store: str | Path, copy: str | Path, *, progress: Callable[[int, int], None] | None = None
) -> Verification:
    """Copy a store into a new folder, and check all of the copy; others may read and write the store meanwhile.

    The copy is a store: it can be searched, and to restore it is to copy it back. It holds what had been committed at
    one moment of the call. The folder appears when it is whole; `progress` is called with the number of pictures that
    were checked and of all.

    Raises `SettingsError` for a folder that is there, lies in the store or on an object storage; `StoreError` for a
    store that cannot be read or is damaged, and for a disk that is full.
    """
    source, target = store_path(store), Path(os.path.abspath(copy))  # noqa: PTH100 - links in it stay as they are
    if not isinstance(source, Path):
        raise SettingsError(
            f"{store}: is no folder; copy it with the tools of the storage, while nobody writes"
        )
    if target.exists() or target.is_symlink():
        raise SettingsError(f"{copy}: is there already; name a new folder for the copy")
    source = source.resolve()
    if target.resolve().is_relative_to(source):
        raise SettingsError(f"{copy}: lies in the store; name a folder outside of it")
    expect_own_files(source)
    files = StoreFiles.open(source)
    # one name: what a backup that was killed has left, a full copy of the store, goes with the next
    partial = target.with_name(f".{target.name}.partial")
    if partial.is_symlink():
        raise SettingsError(f"{partial}: is a link, and the copy is put together there; remove it")
    with reached(target):
        partial.mkdir(parents=True, exist_ok=True)
    # another backup may be writing there
    with lock_of(partial).held():
        try:
            with reached(target):
                for left in partial.iterdir():
                    if left.is_dir() and not left.is_symlink():
                        shutil.rmtree(left)
                    elif left.name != LOCK_FILE:
                        left.unlink()
                # the model first: it is that of the store as long as the store is that of its description
                if (source / MODEL_FOLDER).is_dir():
                    copy_folder(source / MODEL_FOLDER, partial / MODEL_FOLDER)
                files.rows.copy(partial)
            report = _check(copy, files, partial, progress)
            with reached(target):
                for path in (*partial.rglob("*"), partial):
                    sync(path)
                partial.rename(target)
                sync(target.parent)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return report


def _check(
    copy: str | Path, files: StoreFiles, partial: Path, progress: Callable[[int, int], None] | None
) -> Verification:
    """Check all of a copy before it has its name. Raises `StoreError`."""
    made = StoreFiles.open(partial)
    if made.manifest != files.manifest:
        raise StoreError(f"{files.folder}: was replaced by another store meanwhile; copy it again")
    report = verify(made, progress=progress)
    made.rows.close()
    if not report.sound:
        found = ", ".join(report.found)
        raise StoreError(
            f"{copy}: the copy is damaged ({found}); look at the store with `limner store verify`"
        )
    return report
