"""The folder in which computed features are kept between runs: its size, its locks, and how an entry is filled."""

import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
from filelock import FileLock, Timeout

from limner.data.image_digests import cache_folder
from limner.data.kept_rows import KeptRows, Note, checksums
from limner.durable import write_whole
from limner.errors import DataError

Report = Callable[[int, int], None]
"""Called with the number done and the total."""


def cache_limit() -> int:
    """Largest size of the cache in bytes: `$LIMNER_CACHE_GB` (default 20)."""
    text = os.environ.get("LIMNER_CACHE_GB", "20")
    try:
        # Through float: "0.5" is a sensible limit. Decimal gigabytes, as disks are sold.
        return int(float(text) * 1e9)
    except ValueError:
        raise DataError(f"LIMNER_CACHE_GB must be a number of gigabytes, got {text!r}") from None


Fill = Callable[[np.ndarray, int, Callable[[int, int], None]], None]
"""Fills an array from a given position, in steps of its own, and reports after some of them how many steps and how many
rows are complete."""

_DTYPE = np.dtype("<f2")
"""float16 in the byte order that every machine of ours has."""


def kept_array(
    key: str,
    shape: Callable[[], tuple[int, ...]],
    fill: Fill,
    *,
    axes: int = 1,
    what: str,
    remedy: str,
    folder: Path | None = None,
) -> KeptRows:
    """The float16 array of a key, memory-mapped; computed where it is not there yet.

    The first `axes` axes number the rows that are read at once, each with a checksum. An interrupted computation goes
    on where it stopped, and an entry that is damaged or of another key is computed anew: all checksums are compared
    here, which takes a second for a gigabyte or two, and those of the rows that are read whenever they are read. Older
    entries are removed when the cache would exceed `cache_limit()`. Raises `DataError` for a single entry above it
    (`what` says of what, `remedy` what to do), a disk without room for it, and a folder that cannot be written.
    """
    folder = folder or cache_folder()
    with _refusals(folder):
        folder.mkdir(parents=True, exist_ok=True)
        final, part = folder / f"{key}.npy", folder / f"{key}.part"
        with _lock(folder, key):  # another run that wants the same waits and then reads it
            # Asked under the lock: whoever waited finds the entry that the other run made.
            note = _sound(final, _noted(final), key, axes)
            if note is None or len(note.sums) < note.shape[0]:
                sizes = shape()
                _reserve(folder, sizes, axes, key, what, remedy)
                note = _filled(part, key, sizes, axes, fill)
                _write_note(_noted(final), note)
                # A rename within one folder is atomic: a file with this name is always complete.
                part.replace(final)
                # Last: a process that dies before has the whole part to go on from.
                _progress(part).unlink(missing_ok=True)
            # The time of last use: what was not read for longest is removed first.
            os.utime(final)
            # Mapped under the lock. On Linux a mapping outlives the file, should another run need its room.
            return KeptRows(_mapped(final, note.shape, "r"), note.sums, final)


def _noted(final: Path) -> Path:
    return final.with_suffix(".crc32")


def _progress(part: Path) -> Path:
    return part.with_suffix(".done")


def _sound(path: Path, noted: Path, key: str, axes: int, shape: tuple[int, ...] | None = None) -> Note | None:
    """The note of a file if it is of this key, type and shape, and the file has the rows that it says; else None."""
    try:
        note = Note.from_bytes(noted.read_bytes(), axes)
        fits = (note.key, note.dtype, note.shape) == (key, _DTYPE.str, shape or note.shape)
        # The header is compared and never parsed: NumPy answers a damaged one with errors of many kinds.
        head = _header(note.shape)
        with path.open("rb") as file:
            fits = fits and file.read(len(head)) == head
        if not fits or path.stat().st_size != len(head) + _bytes(note.shape):
            return None
        values = _mapped(path, note.shape, "r")[: len(note.sums)]
        return note if np.array_equal(checksums(values, axes), note.sums) else None
    except (FileNotFoundError, ValueError):
        return None


def _header(shape: tuple[int, ...]) -> bytes:
    """The bytes before the values of a `.npy` file of this shape."""
    file = io.BytesIO()
    header = {"descr": _DTYPE.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue()


def _bytes(shape: tuple[int, ...]) -> int:
    return _DTYPE.itemsize * int(np.prod(shape))


def _mapped(path: Path, shape: tuple[int, ...], mode: Literal["r", "r+"]) -> np.memmap[Any, Any]:
    return np.memmap(path, _DTYPE, mode, offset=len(_header(shape)), shape=shape)


def _write_note(path: Path, note: Note) -> None:
    # Not ".part", which another run could take for an entry that was given up.
    write_whole(path, note.to_bytes(), part=path.with_name(path.name + ".new"))


def _filled(part: Path, key: str, shape: tuple[int, ...], axes: int, fill: Fill) -> Note:
    """Fill the file; `.done` beside it has the checksums of what is complete."""
    progress = _progress(part)
    note = _sound(part, progress, key, axes, shape)
    # Counted in a file of its own: zeros at the end of the array could be features or room not yet filled.
    if note is None:
        progress.unlink(missing_ok=True)  # of a part that is gone or another: this one begins anew
        with part.open("wb") as file:
            file.write(_header(shape))
            file.truncate(len(_header(shape)) + _bytes(shape))
        _claim_disk(part)
        note = Note(key, shape, _DTYPE.str, 0, np.empty((0, *shape[1:axes]), np.uint32))
    store = _mapped(part, shape, "r+")

    def noted(before: Note, upto: int, rows: int) -> Note:
        known = before.sums[:rows]
        added = checksums(store[len(known) : rows], axes)
        return Note(key, shape, _DTYPE.str, upto, np.concatenate([known, added]))

    latest = note

    def complete(upto: int, rows: int) -> None:
        nonlocal latest
        # Data before the note: if the process dies between the two, some rows are computed twice and none is
        # missing.
        store.flush()
        latest = noted(latest, upto, rows)
        _write_note(progress, latest)

    fill(store, latest.upto, complete)
    store.flush()
    return noted(latest, latest.upto, len(store))


def _reserve(folder: Path, shape: tuple[int, ...], axes: int, key: str, what: str, remedy: str) -> None:
    """Make room for an entry; `DataError` if the cache may not hold it."""
    # Four bytes a row are its checksum.
    size = _bytes(shape) + 4 * int(np.prod(shape[:axes]))
    if size > cache_limit():
        raise DataError(
            f"{what} take {size / 1e9:.1f} GB, the cache may hold {cache_limit() / 1e9:.1f}; set LIMNER_CACHE_GB "
            f"higher or {remedy}"
        )
    # The part itself is kept when this is a computation that goes on.
    _make_room(folder, size, keep=key)


@contextmanager
def _refusals(folder: Path) -> Iterator[None]:
    """Turn what the system refuses in the cache into a `DataError`."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{error.filename or folder}: no features can be kept here ({error.strerror or error}); set LIMNER_CACHE "
            "to a folder that can be written, or the stage's views to 0 (no cache)"
        ) from None


def _claim_disk(path: Path) -> None:
    """Allocate the file's blocks now, if the system can: a memory map that finds the disk full kills the process."""
    try:
        # The file is sparse until now: `open_memmap` only sets its length.
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    # AttributeError: macOS has no posix_fallocate. Other errors: some file systems refuse it, and then nothing is
    # lost.
    except (AttributeError, OSError) as error:
        if getattr(error, "errno", None) == errno.ENOSPC:
            # The half-claimed file would keep the very room that is missing.
            path.unlink()
            raise


def _make_room(folder: Path, needed: int, *, keep: str) -> None:
    entries = []
    for path in folder.iterdir():
        if path.suffix in {".npy", ".part"}:  # parts that were given up count as well
            with suppress(FileNotFoundError):  # another run may remove or rename it meanwhile
                status = path.stat()
                beside = sum(note.stat().st_size for note in (_noted(path), _progress(path)) if note.exists())
                entries.append((status.st_mtime, status.st_size + beside, path))
    # Without what this entry has on the disk already: `needed` is its whole size.
    total = sum(size for _, size, path in entries if path.stem != keep)
    # Oldest first by time of last use.
    for _, size, path in sorted(entries):
        if total + needed <= cache_limit():
            return
        if path.stem == keep:
            continue
        # Without waiting: who holds the lock is using the entry, and waiting for each other would be a deadlock.
        with (
            suppress(Timeout),
            _lock(folder, path.stem, wait=False),
        ):  # a part that is being written is locked
            for suffix in (path.suffix, ".crc32", ".crc32.new", ".done", ".done.new"):
                path.with_suffix(suffix).unlink(missing_ok=True)
            total -= size


def _lock(folder: Path, key: str, *, wait: bool = True) -> FileLock:
    # Lock files stay: removing one while another process opens it would give two processes "the" lock.
    return FileLock(folder / f"{key}.lock", blocking=wait)
