"""Pictures of shards (Parquet files, tar archives), unpacked once into files of the cache.

    $LIMNER_CACHE/shards/KEY/0000000-name.jpg   a picture under a name of ours
    $LIMNER_CACHE/shards/KEY/samples            a digest, and in JSON what the shard says of each picture, and its size

All of limner reads pictures from files, so that a shard becomes files before it is used. KEY is a digest of the shard's
bytes: a shard that was moved or copied is not unpacked again, and another one in its place is. A folder called KEY is
complete: it is filled under the name KEY.part and then renamed. What a killed process leaves is removed by the next
one, which begins with this shard; finished shards stay. Later opens compare the digest of the index and the size of
each file, which are wrong after a power cut and after a cleaner of caches; a shard that fails is unpacked again.

Names inside of a shard are never used as paths: a picture is called by its number and a cleaned copy of its name.
"""

import hashlib
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from filelock import FileLock

from limner.data.image_digests import cache_folder, image_digests
from limner.data.images import is_picture_name
from limner.durable import from_json
from limner.errors import DataError

FOLDER = "shards"
"""The folder of unpacked pictures in that of the cache."""

INDEX = "samples"

# In the key: entries of an older form are unpacked again.
_FORM = "1"

_PAUSE = 5.0
"""Seconds between two lines about progress."""

_SPARE = 2**26
"""Bytes that stay free on the disk, so that other programs go on."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")

_BEGINNINGS = ((b"\xff\xd8\xff", ".jpg"), (b"\x89PNG", ".png"), (b"GIF8", ".gif"), (b"BM", ".bmp"))

log = logging.getLogger("limner.data")
"""Lines about progress, at the level INFO; the command line prints them."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One picture of a shard.

    - `place`: where it stands in the shard, for messages, e.g. "row 12".
    - `name`: its name in the shard; any text.
    - `content`: the bytes of the picture's file.
    - `values`: what else the shard says of it, JSON values only.
    """

    place: str
    name: str
    content: bytes
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class UnpackedPicture:
    """One picture of a shard as a file of the cache."""

    image: Path
    place: str
    name: str
    values: Mapping[str, Any]


Reading = Callable[[Path], Iterable[Sample]]
"""Reads the samples of a shard; raises `DataError` naming the shard and the place."""


def unpack(shards: Sequence[Path], reading: Reading, kind: str) -> Iterator[list[UnpackedPicture]]:
    """The pictures of each shard, unpacked where they are not yet.

    `kind` names the way of reading: the same shard read in another way is another entry. Raises `DataError` for a shard
    that cannot be read, a disk without room for it, and a cache that cannot be written.
    """
    root = cache_folder() / FOLDER
    tell = _teller()
    digests = image_digests(shards, progress=lambda done, total: tell("read %d of %d shards", done, total))
    keys = [
        hashlib.sha256(f"{_FORM}\x1f{kind}\x1f{digest.tobytes().hex()}".encode()).hexdigest()[:32]
        for digest in digests
    ]
    missing = [shard for shard, key in zip(shards, keys, strict=True) if not (root / key).is_dir()]
    if missing:
        size = sum(shard.stat().st_size for shard in missing)
        log.info("unpacking %d of %d shards (%.1f GB) into %s", len(missing), len(shards), size / 1e9, root)
    for number, (shard, key) in enumerate(zip(shards, keys, strict=True)):
        tell("unpacked %d of %d shards", number, len(shards))
        pictures = _sound(root / key)
        yield _unpacked(root, key, shard, reading) if pictures is None else pictures


def _teller() -> Callable[[str, int, int], None]:
    last = time.monotonic()

    def tell(message: str, done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > _PAUSE:
            last = time.monotonic()
            log.info(message, done, total)

    return tell


def _unpacked(root: Path, key: str, shard: Path, reading: Reading) -> list[UnpackedPicture]:
    final, part = root / key, root / f"{key}.part"
    try:
        # Only for the user: pictures of a set may be of people, and a home folder may be open to others.
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Another process that wants the same shard waits, and then has it.
        with FileLock(root / f"{key}.lock"):
            if (pictures := _sound(final)) is not None:
                return pictures
            for old in (part, final):
                shutil.rmtree(old, ignore_errors=True)
            part.mkdir()
            try:
                _fill(part, shard, reading)
            except BaseException:
                # Half a shard on a disk that is full would be in the way of every other program.
                shutil.rmtree(part, ignore_errors=True)
                raise
            part.replace(final)
            pictures = _sound(final)
    except OSError as error:
        raise DataError(
            f"{error.filename or root}: the pictures of {shard} cannot be unpacked here "
            f"({error.strerror or error}); set LIMNER_CACHE to a folder that can be written and has room"
        ) from None
    if pictures is None:
        raise DataError(f"{final}: the pictures of {shard} were unpacked here and have changed; try again")
    return pictures


def _fill(part: Path, shard: Path, reading: Reading) -> None:
    samples = []
    room = _room(part)
    if room < shard.stat().st_size:
        raise _full(part, shard, room)
    for number, sample in enumerate(reading(shard)):
        room -= len(sample.content)
        # Asked as we go, since a compressed archive may hold more than its own size.
        if room < 0 and (room := _room(part) - len(sample.content)) < 0:
            raise _full(part, shard, room)
        name = _file_name(number, sample)
        (part / name).write_bytes(sample.content)
        samples.append([name, len(sample.content), sample.place, sample.name, sample.values])
    # Last: a folder without it is not used, whatever it is called.
    listed = json.dumps(samples).encode()
    (part / INDEX).write_bytes(_digest(listed) + b"\n" + listed)


def _sound(folder: Path) -> list[UnpackedPicture] | None:
    """The pictures of an entry; None if it is not there, or if a file of it is missing or of another size."""
    try:
        # Of the bytes as they stand: digests of parsed values, as in `durable`, took longer than all the rest.
        digest, _, listed = (folder / INDEX).read_bytes().partition(b"\n")
        if digest != _digest(listed):
            return None
        samples = from_json(listed)
        with os.scandir(folder) as entries:
            sizes = {entry.name: entry.stat().st_size for entry in entries}
        # One listing, not a call a picture: WebPerson has five million.
        if any(sizes.get(name) != size for name, size, *_ in samples):
            return None
        return [UnpackedPicture(folder / name, place, of, values) for name, _, place, of, values in samples]
    except OSError:
        return None


def _digest(listed: bytes) -> bytes:
    return hashlib.blake2b(listed, digest_size=16).hexdigest().encode()


def _file_name(number: int, sample: Sample) -> str:
    """A name of ours that cannot leave the folder: the number, and letters of the picture's own name."""
    own = PurePosixPath(_UNSAFE.sub("_", PurePosixPath(sample.name.replace("\\", "/")).name))
    stem, ending = own.stem, own.suffix
    if not is_picture_name(f"a{ending}"):
        begins = (ending for magic, ending in _BEGINNINGS if sample.content.startswith(magic))
        stem, ending = f"{stem}{ending}", next(begins, ".jpg")
    return f"{number:07}-{stem.strip('._')[-60:] or 'picture'}{ending.lower()}"


def _room(folder: Path) -> int:
    return shutil.disk_usage(folder).free - _SPARE


def _full(part: Path, shard: Path, room: int) -> DataError:
    return DataError(
        f"{shard}: {max(room, 0) / 1e9:.1f} GB are free in {part.parent}, too few to unpack its pictures; make room, "
        "or set LIMNER_CACHE to a folder on a larger disk"
    )
