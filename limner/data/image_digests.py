"""Digests of image files' bytes, each computed once and remembered.

    $LIMNER_CACHE/image-digests.bin   a row of 36 bytes a file: key, digest, and the day on which it was last asked for

A digest says whether two files hold the same image, wherever they lie and whatever they are called. It is of the bytes:
an image that was saved again, resized or stripped of its metadata has another one, and is not found. 8,000 photos of
117 MB took 3.7 s to read and 0.1 s when they were remembered (two cores of a Xeon), so that a file is read again only
after it was changed: the key of a row covers path, size, times of modification and of status change, and inode.
"""

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout
from jaxtyping import Int64, Shaped, UInt8

from limner.errors import DataError, ImageError

FILE = "image-digests.bin"
"""The table of remembered digests in the folder of the cache."""

LENGTH = 16
"""Bytes of a digest: the first of SHA-256, as good as never the same for two files."""

# Two words in place of 16 bytes: NumPy sorts and searches numbers.
_ROW = np.dtype([("key", "<u8"), ("check", "<u8"), ("digest", "u1", (LENGTH,)), ("day", "<u4")])

_HEADER = b"limner image digests 1\n"

# 36 MB. Rows of files that were changed or removed are never asked for again and go first.
_MOST = 1_000_000
"""Rows that the table holds."""

# The clock of a file system may tick as rarely as every 2 s (FAT). A file that is changed again within a tick keeps its
# times, so the digest of a younger file is not remembered. git does the same in its index.
_SETTLED = 2_000_000_000
"""Nanoseconds for which a file must have been left alone."""

# A killed process repeats no more than this; each writing takes half a second for a full table.
_PAUSE = 60.0
"""Seconds between two writings of the table while files are read."""

_BLOCK = 256
"""Number of files read between two reports of progress."""

Progress = Callable[[int, int], None]
"""Called with the number done and the total."""


def cache_folder() -> Path:
    """The folder of the cache: `$LIMNER_CACHE`, else `limner` in `$XDG_CACHE_HOME` or `~/.cache`."""
    chosen = os.environ.get("LIMNER_CACHE")
    if chosen:
        return Path(chosen)
    # the XDG specification says that a relative path is to be ignored
    caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        # `Path.home` raises RuntimeError for a user id that has no entry and no HOME, as in many containers.
        return (caches if caches.is_absolute() else Path.home() / ".cache") / "limner"
    except RuntimeError:
        raise DataError(
            "this user has no home folder to keep features in; name one with LIMNER_CACHE"
        ) from None


def image_digests(
    paths: Sequence[Path], *, progress: Progress | None = None
) -> UInt8[np.ndarray, "images 16"]:
    """The digest of each file's bytes; files that are remembered are looked at and not read.

    `progress` is called while files are read, with how many are known and their total. Raises `ImageError` for the
    first file that is missing, cannot be read, or changes while it is read.
    """
    found = np.zeros((len(paths), LENGTH), np.uint8)
    keys = np.zeros((len(paths), 2), np.uint64)
    for place, path in enumerate(paths):
        with _readable(path):
            keys[place] = _key(path, path.stat())
    table = _read(_table())
    known = _lookup(table, keys, found)
    today = _today()
    # Not at every use: a table of 36 MB would be written by each evaluation.
    new = [
        (int(keys[place, 0]), int(keys[place, 1]), found[place], today)
        for place in np.flatnonzero(known >= 0)
        if int(table["day"][known[place]]) + 7 < today
    ]
    missing = np.flatnonzero(known < 0)
    wrote, done = time.monotonic(), len(paths) - len(missing)
    # Hashing leaves the interpreter free. More threads than 8 only wait for the disk.
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
        for start in range(0, len(missing), _BLOCK):
            places = missing[start : start + _BLOCK]
            for place, (digest, key) in zip(
                places, threads.map(lambda place: _hashed(paths[place]), places), strict=True
            ):
                found[place] = np.frombuffer(digest, np.uint8)
                if key is not None:
                    new.append((*key, found[place], today))
            done += len(places)
            if progress is not None:
                progress(done, len(paths))
            if time.monotonic() - wrote > _PAUSE:
                _remember(new)
                wrote, new = time.monotonic(), []
    _remember(new)
    return found


def content_fingerprint(digests: UInt8[np.ndarray, "images 16"]) -> str:
    """Hex digest of images in their order, by content: equal = the same images, wherever they lie."""
    return hashlib.sha256(np.ascontiguousarray(digests).tobytes()).hexdigest()[:16]


def _hashed(path: Path) -> tuple[bytes, tuple[int, int] | None]:
    """Digest of a file, and its key if it was left alone for long enough to be remembered."""
    with _readable(path):
        # Opening a named pipe would block for ever.
        if not stat.S_ISREG(path.stat().st_mode):
            raise ImageError(f"{path}: not a file")
        with path.open("rb") as file:
            now = time.time_ns()
            before = os.fstat(file.fileno())
            digest = hashlib.file_digest(file, "sha256").digest()[:LENGTH]
            key = _key(path, before)
            if key != _key(path, os.fstat(file.fileno())):
                raise ImageError(
                    f"{path}: was changed while it was read; try again when nothing writes to it"
                )
    settled = max(before.st_mtime_ns, before.st_ctime_ns) < now - _SETTLED
    return digest, key if settled else None


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    # A path with a NUL is a ValueError.
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ImageError(f"{path}: missing picture ({reason}); run `limner data check`") from None


def _key(path: Path, status: os.stat_result) -> tuple[int, int]:
    # abspath, since a relative path is another file in another folder; not `resolve()`, which asks the file system for
    # each part: a link that points elsewhere now has another inode. The time of status change is there because every
    # program can set that of modification, and rsync and cp do.
    parts = (
        os.path.abspath(path),  # noqa: PTH100
        *(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_dev, status.st_ino),
    )
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode("utf-8", "surrogateescape"), digest_size=16)
    words = np.frombuffer(digest.digest(), "<u8")
    return int(words[0]), int(words[1])


def _lookup(
    table: Shaped[np.ndarray, " rows"],
    keys: Shaped[np.ndarray, "images 2"],
    found: UInt8[np.ndarray, "images 16"],
) -> Int64[np.ndarray, " images"]:
    """Row of each key, −1 for a key that the table has not; the digests of the others are written to `found`."""
    rows = np.full(len(keys), -1, np.int64)
    if not len(table) or not len(keys):
        return rows
    places = np.minimum(np.searchsorted(table["key"], keys[:, 0]), len(table) - 1)
    same = (table["key"][places] == keys[:, 0]) & (table["check"][places] == keys[:, 1])
    rows[same] = places[same]
    found[same] = table["digest"][places[same]]
    return rows


def _table() -> Path | None:
    # A user without a home folder has nothing remembered; only what needs the cache refuses that.
    try:
        return cache_folder() / FILE
    except DataError:
        return None


def _read(path: Path | None) -> Shaped[np.ndarray, " rows"]:
    """The rows of the table, by key; none if it is not there, damaged, or of another version."""
    empty = np.zeros(0, _ROW)
    if path is None:
        return empty
    try:
        content = path.read_bytes()
    except OSError:
        return empty
    start = len(_HEADER) + 16
    body = content[start:]
    # A wrong digest would make a leak pass, or serve features of another image.
    if (
        not content.startswith(_HEADER)
        or hashlib.blake2b(body, digest_size=16).digest() != content[len(_HEADER) : start]
        or len(body) % _ROW.itemsize
    ):
        return empty
    return np.frombuffer(body, _ROW)


def _remember(new: Sequence[tuple[int, int, np.ndarray, int]]) -> None:
    """Add rows to the table; what cannot be written is hashed again another time."""
    path = _table()
    if not new or path is None:
        return
    # A disk that is full or must not be written costs time, not the result.
    with suppress(OSError, Timeout):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Read under the lock: two processes that add at once would each write without the other's rows.
        with FileLock(path.with_suffix(".lock"), timeout=60):
            rows = np.concatenate([np.array(list(new), _ROW), _read(path)])
            # `unique` keeps the first of equal keys, which is the new one, and sorts.
            rows = rows[np.unique(rows["key"], return_index=True)[1]]
            if len(rows) > _MOST:
                kept = np.argsort(rows["day"], kind="stable")[-_MOST:]
                rows = rows[np.sort(kept)]
            body = rows.tobytes()
            # Not `.part`, which the cache of features removes when it needs room.
            beside = path.with_suffix(".new")
            beside.write_bytes(_HEADER + hashlib.blake2b(body, digest_size=16).digest() + body)
            # Atomic: a reader sees the old table or the new one. Not flushed: a damaged one is begun anew.
            beside.replace(path)


def _today() -> int:
    return int(time.time() // 86_400)
