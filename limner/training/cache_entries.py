"""The folder in which computed features are kept between runs: its size, its locks, and how an entry is filled."""

import errno
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from limner.data.image_digests import cache_folder
from limner.errors import DataError
from limner.inference.checkpoint import write_text

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


Fill = Callable[[np.ndarray, int, Callable[[int], None]], None]
"""Fills an array from a given position, and reports after each step how far it is complete."""


def kept_array(
    key: str,
    shape: Callable[[], tuple[int, ...]],
    fill: Fill,
    *,
    what: str,
    remedy: str,
    folder: Path | None = None,
) -> np.ndarray:
    """The float16 array of a key, memory-mapped; computed where it is not there yet.

    An interrupted computation goes on where it stopped, and an entry that is damaged is computed anew: its checksum is
    compared, which takes a second for a gigabyte or two. Older entries are removed when the cache would exceed
    `cache_limit()`. Raises `DataError` for a single entry above it (`what` says of what, `remedy` what to do), a disk
    without room for it, and a folder that cannot be written.
    """
    folder = folder or cache_folder()
    with _refusals(folder):
        folder.mkdir(parents=True, exist_ok=True)
        final, part = folder / f"{key}.npy", folder / f"{key}.part"
        with _lock(folder, key):  # another run that wants the same waits and then reads it
            # Asked under the lock: whoever waited finds the entry that the other run made.
            if not _is_sound(final):
                sizes = shape()
                _reserve(folder, sizes, key, what, remedy)
                _filled(part, sizes, fill)
                write_text(_noted(final), str(_checksum(part)))
                # A rename within one folder is atomic: a file with this name is always complete.
                part.replace(final)
            # The time of last use: what was not read for longest is removed first.
            os.utime(final)
            # Mapped under the lock. On Linux a mapping outlives the file, should another run need its room.
            return np.load(final, mmap_mode="r")  # type: ignore[no-any-return]


def _noted(final: Path) -> Path:
    return final.with_suffix(".crc32")


def _is_sound(final: Path) -> bool:
    """True for an entry whose content is what was written; False also for an old one without a checksum."""
    try:
        return _noted(final).read_text(encoding="utf-8") == str(_checksum(final))
    except (FileNotFoundError, ValueError):
        return False


def _checksum(path: Path) -> int:
    found = 0
    with path.open("rb") as file:
        while block := file.read(1 << 24):
            found = zlib.crc32(block, found)
    return found


def _filled(part: Path, shape: tuple[int, ...], fill: Fill) -> None:
    """Fill the file; `.done` beside it counts what is complete."""
    progress = part.with_suffix(".done")
    done = _complete(progress) if part.exists() else 0
    # Counted in a file of its own: zeros at the end of the array could be features or room not yet filled.
    if not done:
        progress.unlink(missing_ok=True)  # of a part that is gone: this one begins anew
        np.lib.format.open_memmap(part, mode="w+", dtype=np.float16, shape=shape)
        _claim_disk(part)
    store = np.lib.format.open_memmap(part, mode="r+")

    def complete(upto: int) -> None:
        # Data before the count: if the process dies between the two, some rows are computed twice and none is
        # missing.
        store.flush()
        write_text(progress, _count(upto))

    fill(store, done, complete)
    store.flush()
    progress.unlink(missing_ok=True)


def _reserve(folder: Path, shape: tuple[int, ...], key: str, what: str, remedy: str) -> None:
    """Make room for an entry; `DataError` if the cache may not hold it."""
    # Two bytes a value: float16.
    size = 2 * int(np.prod(shape))
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


def _complete(progress: Path) -> int:
    # A count that cannot be read means that nothing is known to be complete.
    try:
        text = progress.read_text(encoding="utf-8")
        upto = int(text.split()[0])
        return upto if text == _count(upto) else 0
    except (OSError, ValueError, IndexError):
        return 0


def _count(upto: int) -> str:
    # With a checksum: a number too high would pass rows of zeros for features.
    return f"{upto} {zlib.crc32(str(upto).encode())}"


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
                entries.append((status.st_mtime, status.st_size, path))
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
            path.unlink(missing_ok=True)
            _noted(path).unlink(missing_ok=True)
            total -= size


def _lock(folder: Path, key: str, *, wait: bool = True) -> FileLock:
    # Lock files stay: removing one while another process opens it would give two processes "the" lock.
    return FileLock(folder / f"{key}.lock", blocking=wait)
