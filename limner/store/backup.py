"""Copies of a store that others may write to meanwhile.

A store outlives a kill at any moment, so each moment of it is a whole store. What must not happen is a copy of several
moments: rows of now beside a record of then. So the folder is looked at before and after the copying; files that have
come or changed are copied as well, until between two looks nothing has changed. Files of rows and segments are never
changed, so each further time takes what is new alone. If writers leave no such pause, as a server whose clients add
without end, the copy takes the writers' lock for the last time.
"""

import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from pathlib import Path

from limner.errors import SettingsError, StoreError
from limner.store.lock import LOCK_FILE
from limner.search.segments import FOLDER as SEGMENTS
from limner.search.segments import sync_folder
from limner.store.files import StoreFiles
from limner.store.path import expect_own_files, reached, store_path
from limner.store.verify import verify
from limner.store_reports import Verification

_PAUSE_FOR = 10.0
"""Seconds after which a copy asks for the lock."""
_LOCK_FOR = 60.0
"""Seconds after which it gives up, because a writer that changes files all the time holds the lock."""

Seen = dict[str, tuple[int, ...]]
"""The files of a store by their paths in it, each with what changes if it is written or replaced."""


def backup(
    store: str | Path, copy: str | Path, *, progress: Callable[[int, int], None] | None = None
) -> Verification:
    """Copy a store into a new folder, and check all of the copy; others may read and write the store meanwhile.

    The copy is a store: it can be searched, and to restore it is to copy it back. It holds what had been committed at
    one moment of the call. The folder appears when it is whole; `progress` is called with the number of pictures that
    were checked and of all.

    Raises `SettingsError` for a folder that is there, lies in the store or on an object storage; `StoreError` for a
    store that cannot be read or is damaged, for a disk that is full, and if the store never stands still.
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
    files = StoreFiles.open(source)
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        with reached(target):
            partial.mkdir(parents=True)
            _copy_whole(files, source, partial)
        report = verify(StoreFiles.open(partial, check=False), progress=progress)
        if not report.sound:
            found = ", ".join(report.found)
            raise StoreError(
                f"{copy}: the copy is damaged ({found}); look at the store with `limner store verify`"
            )
        with reached(target):
            partial.rename(target)
            sync_folder(target.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return report


def _copy_whole(files: StoreFiles, source: Path, target: Path) -> None:
    copied: Seen = {}
    until = time.monotonic() + _PAUSE_FOR
    while time.monotonic() < until:
        if _copy_once(source, target, copied):
            return
    until = time.monotonic() + _LOCK_FOR
    while time.monotonic() < until:
        # between two changes of a server the lock is free for a moment
        with suppress(StoreError), files.lock.held():
            if _copy_once(source, target, copied):
                return
        if _copy_once(source, target, copied):
            return
    raise StoreError(
        f"{source}: was changed all the time for {_PAUSE_FOR + _LOCK_FOR:g} s; try again when it is quiet"
    )


def _copy_once(source: Path, target: Path, copied: Seen) -> bool:
    """Copy what has come or changed, and remove what has gone; True if the store was not changed in the meantime."""
    before = _seen(source)
    for name in copied.keys() - before.keys():
        (target / name).unlink()
        del copied[name]
    for name in before:
        if copied.get(name) == before[name]:
            continue
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        try:
            _copy_file(source / name, target / name)
        except FileNotFoundError:
            # removed meanwhile, by a compaction
            return False
        copied[name] = before[name]
    return _rows_of(_seen(source)) == _rows_of(before)


def _seen(folder: Path) -> Seen:
    expect_own_files(folder)
    found: Seen = {}
    # segments last: each of which rows were seen is there by then
    others = (one for top in folder.iterdir() if top.name != SEGMENTS for one in (top, *top.rglob("*")))
    for path in chain(others, (folder / SEGMENTS).glob("*")):
        # gone between two lines
        with suppress(FileNotFoundError):
            state = path.stat()
            if stat.S_ISREG(state.st_mode) and path.name != LOCK_FILE:
                found[str(path.relative_to(folder))] = (state.st_size, state.st_mtime_ns, state.st_ino)
    return found


def _rows_of(seen: Seen) -> Seen:
    # a segment is written before its rows: one that grows belongs to none yet, and would make the copy wait for the
    # whole of an indexing. One with rows is never changed
    return {name: state for name, state in seen.items() if not name.startswith(f"{SEGMENTS}/")}


def _copy_file(source: Path, target: Path) -> None:
    with source.open("rb") as reading, target.open("wb") as writing:
        shutil.copyfileobj(reading, writing, 2**20)
        writing.flush()
        os.fsync(writing.fileno())
    # the times of the tables' files are those of their commits
    shutil.copystat(source, target)
