"""Rows of a large array in a file, each compared with its own checksum whenever it is read."""

import json
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt32

from limner.durable import from_json
from limner.errors import DataError

Checksums = UInt32[np.ndarray, "..."]
"""CRC-32 of each row, of the first axes of the array."""


def checksums(values: np.ndarray, axes: int) -> Checksums:
    """The CRC-32 of each of the rows that the first axes number."""
    shape = values.shape[:axes]
    # `zlib` reads memory in one piece only.
    # Not -1 for the width, which NumPy cannot tell where there is no row.
    rows = np.ascontiguousarray(values).reshape(int(np.prod(shape)), int(np.prod(values.shape[axes:])))
    return np.fromiter((zlib.crc32(row.data) for row in rows), np.uint32, len(rows)).reshape(shape)


class KeptRows:
    """An array in a file, of which nothing is read before it is indexed and made a NumPy array.

    Indexing chooses rows by the axes that `sums` has, as NumPy does, without a look at their values. `np.asarray` of it
    copies the chosen rows and compares the copies with their checksums: what was changed since the file was opened is
    never used. Raises `DataError`, when indexed or made an array, for rows that were changed and a file that was cut.
    """

    def __init__(self, values: np.ndarray, sums: Checksums, path: Path, size: int | None = None) -> None:
        self._values = values
        self._sums = sums
        self._path = path
        self._size = path.stat().st_size if size is None else size

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return self._values.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of a number."""
        return self._values.dtype

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: Any) -> "KeptRows":
        self._expect_whole()
        values, sums = self._values[index], np.asarray(self._sums[index])
        # Part of a row has no checksum.
        if values.shape[sums.ndim :] != self._values.shape[self._sums.ndim :]:
            raise IndexError("an index may choose whole rows only")
        return KeptRows(values, sums, self._path, self._size)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self._expect_whole()
        # Copied first: what is compared is then what is used. An index of numbers has made a copy already.
        found = np.array(self._values) if isinstance(self._values, np.memmap) else self._values
        if not np.array_equal(checksums(found, self._sums.ndim), self._sums):
            raise self._damaged()
        return found if dtype is None else found.astype(dtype, copy=False)

    def _expect_whole(self) -> None:
        # Reading a mapping behind the end of its file ends the process with a signal.
        with suppress(FileNotFoundError):  # removed for another entry's room: the mapping still has all of it
            if self._path.stat().st_size < self._size:
                raise self._damaged()

    def _damaged(self) -> DataError:
        return DataError(
            f"{self._path}: was damaged while it was in use; run the same again, a training with --resume: it is "
            "computed anew"
        )


@dataclass(frozen=True, eq=False)
class Note:
    """Statement about a file of rows: whose it is, how far it is complete, and the checksums of these rows."""

    key: str
    shape: tuple[int, ...]
    dtype: str
    upto: int
    sums: Checksums

    def to_bytes(self) -> bytes:
        """A line of JSON, the checksums, and the CRC-32 of both."""
        head = {"key": self.key, "shape": self.shape, "dtype": self.dtype, "upto": self.upto}
        content = json.dumps(head).encode() + b"\n" + self.sums.astype("<u4").tobytes()
        return content + zlib.crc32(content).to_bytes(4, "little")

    @classmethod
    def from_bytes(cls, content: bytes, axes: int) -> "Note":
        """Raises `ValueError` for content that `to_bytes` did not write."""
        if zlib.crc32(content[:-4]).to_bytes(4, "little") != content[-4:]:
            raise ValueError("its checksum is another")
        # The first line ends before the first checksum, whatever bytes these have.
        head, _, sums = content[:-4].partition(b"\n")
        try:
            note = from_json(head)
            shape = tuple(note["shape"])
            rows = np.frombuffer(sums, "<u4").astype(np.uint32).reshape(-1, *shape[1:axes])
            return cls(note["key"], shape, note["dtype"], note["upto"], rows)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a note of rows: {error}") from None
