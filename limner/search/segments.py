"""Segments of a store: files of plain bytes with the thumbnails and region features of many images.

    STORE/segments/NAME   of one image after the other: region features (half precision, little endian), thumbnail

Rows of the table say where an image's bytes lie. A segment is written as a stream, flushed to disk before the rows that
point into it are committed, and never changed afterwards. So a writer that is killed leaves at most a file that no row
names, and the next writer removes it. Names are random and never used again.

No columns of LanceDB, and no second table: a compaction would write all region features again (at 200 KB an image, 365
to 487 MB for each 40 MB that came), in four times the table's memory. LanceDB alone cannot rewrite some of its files
and leave the others, as compacting a part and erasing from a part need; pylance can, which takes 170 MB and one exact
version.
"""

import os
import secrets
import stat
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from limner.errors import StoreError
from limner.search.store_path import StorePath, reached

FOLDER = "segments"
"""Folder of the segments in that of the store."""

FULL = 64 * 2**20
"""Bytes from which a segment is large enough: it is closed, and never joined with others."""

DIGEST_BYTES = 16
"""Length of the digests of thumbnails and region features."""


def digest_of(content: bytes | memoryview) -> bytes:
    """Digest of bytes in a store, BLAKE2b: it finds damage, at about 1 GB a second."""
    return blake2b(content, digest_size=DIGEST_BYTES).digest()


class MissingSegmentError(StoreError):
    """A segment is not there: since its name was read a writer has compacted the store, or it is lost."""


class Extent(NamedTuple):
    """Some bytes of a segment."""

    segment: str
    offset: int
    size: int


class SegmentWriter:
    """Writes one segment; the file appears with its first bytes."""

    def __init__(self, store: StorePath) -> None:
        self.name = secrets.token_hex(16)
        self.size = 0
        self._store = store
        self._file: Any = None

    def write(self, content: bytes | memoryview) -> int:
        """Append bytes and return their offset. Raises `StoreError` if the disk refuses."""
        with reached(self._store):
            if self._file is None:
                self._file = self._made()
            self._file.write(content)
        offset, self.size = self.size, self.size + len(content)
        return offset

    def finish(self) -> None:
        """Close the file; its bytes are on the disk then."""
        if self._file is None:
            return
        with reached(self._store):
            if isinstance(self._store, Path):
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.close()
                # the names, too: rows that outlive a power cut must not point to a file that does not
                for folder in (self._store / FOLDER, self._store):
                    sync_folder(folder)
            else:
                self._file.close()

    def abandon(self) -> None:
        """Remove what was written."""
        if self._file is None:
            return
        # of a full disk closing fails as well; what stays is removed by the next writer
        with suppress(Exception):
            if not isinstance(self._store, Path):
                self._file.discard()
            else:
                self._file.close()
        with suppress(Exception):
            Segments(self._store).remove([self.name])

    def _made(self) -> Any:
        if isinstance(self._store, Path):
            (self._store / FOLDER).mkdir(exist_ok=True)
            return (self._store / FOLDER / self.name).open("xb", buffering=2**20)
        folder: Any = self._store / FOLDER
        # uploaded in parts while it is written, and visible when it is closed
        return folder.fs.open((folder / self.name).path, "wb")


class Segments:
    """The segments of a store's folder, read by extents."""

    def __init__(self, store: StorePath) -> None:
        self._store = store
        self._folder: Any = store / FOLDER

    def sizes(self) -> dict[str, int]:
        """Names of all segments with their sizes in bytes."""
        with reached(self._store, "read"):
            try:
                if isinstance(self._folder, Path):
                    with os.scandir(self._folder) as entries:
                        # somebody's folder is no segment: it could not be removed as one, and would end each change
                        return {
                            entry.name: entry.stat().st_size
                            for entry in entries
                            if not entry.is_dir(follow_symlinks=False)
                        }
                found = self._folder.fs.ls(self._folder.path, detail=True, refresh=True)
            except FileNotFoundError:
                return {}
        return {one["name"].rsplit("/", 1)[-1]: int(one["size"]) for one in found if one["type"] == "file"}

    def read(self, extents: Sequence[Extent]) -> list[bytearray]:
        """Read some bytes. Raises `MissingSegmentError`, and `StoreError` for a segment that ends too early."""
        found = [bytearray(extent.size) for extent in extents]
        self.fill(extents, [memoryview(one) for one in found])
        return found

    def fill(self, extents: Sequence[Extent], places: Sequence[memoryview]) -> None:
        """Read some bytes into places of the same sizes. Raises what `read` raises."""
        wanted = sorted(zip(extents, places, strict=True), key=lambda pair: pair[0][:2])
        if isinstance(self._folder, Path):
            self._fill_from_files(wanted)
        elif wanted:
            self._fill_from_objects(wanted)

    def _fill_from_files(self, wanted: list[tuple[Extent, memoryview]]) -> None:
        handle, opened = -1, ""
        try:
            for extent, place in wanted:
                if extent.segment != opened:
                    if opened:
                        os.close(handle)
                    opened = ""
                    handle, opened = self._handle(extent.segment), extent.segment
                with reached(self._store, "read"):
                    # read into place: region features of 256 images are 50 MB, which a copy would double
                    count = os.preadv(handle, [place], extent.offset) if extent.size else 0
                if count != extent.size:
                    raise self._cut_off(extent.segment)
        finally:
            if opened:
                os.close(handle)

    def _handle(self, name: str) -> int:
        with reached(self._store, "read"):
            try:
                # a pipe in its place would be waited for
                handle = os.open(self._folder / name, os.O_RDONLY | os.O_NONBLOCK)
            except FileNotFoundError:
                raise self._missing(name) from None
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise self._cut_off(name)
        return handle

    def _fill_from_objects(self, wanted: list[tuple[Extent, memoryview]]) -> None:
        with reached(self._store, "read"):
            found = self._folder.fs.cat_ranges(
                [(self._folder / extent.segment).path for extent, _ in wanted],
                [extent.offset for extent, _ in wanted],
                [extent.offset + extent.size for extent, _ in wanted],
                on_error="return",
            )
            for content, (extent, place) in zip(found, wanted, strict=True):
                if isinstance(content, FileNotFoundError):
                    raise self._missing(extent.segment)
                if isinstance(content, Exception):
                    raise content
                if len(content) != extent.size:
                    raise self._cut_off(extent.segment)
                place[:] = content

    def remove(self, names: Iterable[str]) -> None:
        """Remove segments; one that is gone already is fine."""
        with reached(self._store):
            for name in names:
                with suppress(FileNotFoundError):
                    if isinstance(self._folder, Path):
                        (self._folder / name).unlink()
                    else:
                        self._folder.fs.rm_file((self._folder / name).path)

    def remove_others(self, names: Collection[str]) -> None:
        """Remove all segments but these."""
        self.remove(self.sizes().keys() - set(names))

    def _missing(self, name: str) -> MissingSegmentError:
        return MissingSegmentError(
            f"{self._store}: its segment {name} is gone; look at it with `limner store verify`"
        )

    def _cut_off(self, name: str) -> StoreError:
        return StoreError(
            f"{self._store}: its segment {name} is damaged (cut off); look at it with `limner store verify`",
            "damaged",
        )


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder, or the bytes of a file, are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
