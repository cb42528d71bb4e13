"""WebDataset: tar archives in which files of one key make a sample.

    train-000000.tar    0001.jpg  0001.txt  0001.json     0002.jpg  0002.json  …

The key is the path up to the first dot of the file's name; the files of a sample follow each other. A sample has one
picture; `.txt` holds a caption, `.json` an object that is read as columns are, see `shards`, and `.cls` becomes
metadata. Other files of a sample are left out. A picture is unpacked into a file of the cache once, see `unpacking`;
names of the archive are never used as paths, and links and devices in it are passed over.
"""

import io
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from typing import Any

from limner.data.images import is_picture_name
from limner.data.readers.parsing import AnnotationEntry, parse_json, shown
from limner.data.readers.shards import plain_values, read_shards, shard_files
from limner.data.readers.unpacking import Sample
from limner.data.records import Dataset
from limner.errors import DataError

ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")

_TEXTS = ("txt", "json", "cls")

_LARGEST = {"picture": 2**29, "text": 2**24}
"""Bytes of a file in an archive; a header may claim any number."""

_BLOCK = 512


@dataclass
class _Files:
    """The files of one key: endings and contents."""

    key: str
    pictures: dict[str, bytes] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)


def read_webdataset(path: Path, source: str) -> Dataset:
    """Read the archives of a folder, those of a pattern such as `train-{000..120}.tar`, or one archive.

    Raises `DataError` for archives that are missing, damaged or cut off, for a sample without a picture or with two,
    a key that stands twice, and JSON that cannot be read, naming the archive and the key.
    """
    files = shard_files(path, ENDINGS, "a tar archive")
    return read_shards(path, files, source, _samples, "webdataset")


def _samples(archive: Path) -> Iterator[Sample]:
    with _named(archive):
        yield from _checked(archive)


def _checked(archive: Path) -> Iterator[Sample]:
    seen: set[str] = set()
    for files in _grouped(archive):
        place = f"sample {shown(files.key)}"
        if files.key in seen:
            raise DataError(f"{archive}: {place}: this key stands twice in the archive")
        seen.add(files.key)
        if len(files.pictures) != 1:
            names = ", ".join((*files.pictures, *files.texts))
            raise DataError(f"{archive}: {place}: one picture was expected, got {shown(names or 'none')}")
        (ending, content), *_ = files.pictures.items()
        yield Sample(place, f"{files.key}.{ending}", content, _values(archive, place, files.texts))


def _values(archive: Path, place: str, texts: dict[str, bytes]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for ending, content in texts.items():
        try:
            # The mark of byte order that Windows writes is no part of a caption.
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{archive}: {place}: UTF-8 text was expected in .{ending}, got byte 0x{content[error.start]:02x}"
            ) from None
        if ending == "json":
            entry = AnnotationEntry.of(archive, place, parse_json(text, archive, place))
            values = {**plain_values(entry.values.items()), **values}
        else:
            values[ending] = text.strip()
    return values


def _grouped(archive: Path) -> Iterator[_Files]:
    current: _Files | None = None
    for name, member, tar in _members(archive):
        path = PurePosixPath(name)
        first, _, ending = path.name.partition(".")
        key, ending = str(path.with_name(first)) if first else "", ending.lower()
        # macOS leaves "._0001.jpg" beside each file, and some writers "__info__.json".
        if not key or not ending or first.startswith("__"):
            continue
        if current is None or current.key != key:
            if current is not None:
                yield current
            current = _Files(key)
        # "0001.seg.png" is a further picture of a sample, and none of its own.
        is_picture = "." not in ending and is_picture_name(f"a.{ending}")
        if not is_picture and ending not in _TEXTS:
            continue
        held = current.pictures if is_picture else current.texts
        if ending in held:
            raise DataError(f"{archive}: {shown(name)} stands twice in the archive")
        held[ending] = _content(archive, tar, member, "picture" if is_picture else "text")
    if current is not None:
        yield current


def _content(archive: Path, tar: tarfile.TarFile, member: tarfile.TarInfo, what: str) -> bytes:
    if member.size > _LARGEST[what]:
        raise DataError(
            f"{archive}: {shown(member.name)}: a {what} of at most {_LARGEST[what] >> 20} MiB was expected, "
            f"got {member.size >> 20}"
        )
    file = tar.extractfile(member)
    assert file is not None, "only regular files are asked for"
    return file.read()


def _members(archive: Path) -> Iterator[tuple[str, tarfile.TarInfo, tarfile.TarFile]]:
    """The regular files of an archive with their names, and the archive to read them from."""
    with tarfile.open(archive) as tar:
        while (member := tar.next()) is not None:
            # Not links: one may point anywhere, and a sample's file is a file.
            if member.isreg():
                yield member.name, member, tar
            # Else the list of all members so far stays in memory.
            tar.members.clear()  # type: ignore[attr-defined]
        _ended(tar)


@contextmanager
def _named(archive: Path) -> Iterator[None]:
    """Turn what reading an archive raises into one line."""
    try:
        yield
    except (tarfile.TarError, OSError, EOFError, ValueError, zlib.error, LZMAError) as error:
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise DataError(f"{archive}: a tar archive was expected, it cannot be read ({reason})") from None


def _ended(tar: tarfile.TarFile) -> None:
    """Refuse an archive that is cut off or damaged between two files, which tarfile takes for its end."""
    file: Any = tar.fileobj
    if isinstance(file, io.BufferedReader):
        # Every writer ends an archive with blocks of zeros.
        file.seek(tar.offset)
        if file.read(_BLOCK) != bytes(_BLOCK):
            raise tarfile.ReadError("it is cut off or damaged")
    else:
        # The check sum of what is compressed is compared when its end is read.
        while file.read(2**20):
            pass
