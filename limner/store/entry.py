"""One image of a store, without its bytes: `PictureRow` as an engine keeps it, `StoredImage` for all others."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from limner.errors import DataError
from limner.wire import Item, item_values, taken_from

NOWHERE = "[]"
"""The `others` of an image that has one place."""

LARGEST = 2**63 - 1
"""Largest whole number that metadata may hold: other programs read JSON's numbers into 64 bits."""


class PictureRow(NamedTuple):
    """The facts of an image as an engine keeps them, and the digests of its bytes.

    - `number`: that of its vector, thumbnail and region features. Other bytes of the same image have another one, and
      numbers are never used again, so that a reader can keep the vectors that it has.
    - `digest`: of all values before it.
    """

    id: str
    path: str
    others: str
    """JSON: path and time of last change of each further place of the same bytes."""
    sha256: str
    size: int
    mtime: int
    taken_read: int | None
    """When, by what the file says: microseconds since 1970 by the camera's own clock."""
    taken_told: int | None
    """When, by what somebody told limner."""
    identity: str | None
    metadata: str
    gone: int | None
    """Since when all of its files are gone: seconds since 1970. No search finds it, and it waits for its erasure."""
    number: int
    vector_sum: int
    thumbnail_digest: bytes | None
    regions_digest: bytes | None
    digest: bytes

    @property
    def paths(self) -> list[str]:
        """All places where its bytes lie."""
        return [self.path, *further_paths(self.others)]

    @property
    def taken(self) -> int | None:
        """When; what was told stands before what was read."""
        return self.taken_read if self.taken_told is None else self.taken_told

    @property
    def taken_from(self) -> str | None:
        """Where that time is from."""
        return taken_from(self.taken is not None, self.taken_told is not None)


class Place(NamedTuple):
    """A file of an image: its absolute path, and the time of its last change in nanoseconds."""

    path: str
    mtime: int


@dataclass(frozen=True)
class StoredImage:
    """One image as it was when it was indexed.

    - `path`: absolute, of its file; `others`: further files of the same bytes.
    - `key`: None = that of its path; it stays when files are moved, and a new image may find it taken.
    - `sha256`: hex digest of the file's bytes; `size`: bytes; `mtime`: time of its last change, nanoseconds.
    - `taken_read`, `taken_told`: when, by the camera's own clock (no time zone), or None; from the file, and by what
      somebody told limner, which stays when the file changes.
    - `identity`: whom or what it shows, or None; `metadata`: other facts, JSON values only.
    - `gone`: since when all of its files are gone, seconds since 1970, or None; no search finds it then.
    """

    path: str
    sha256: str
    size: int
    mtime: int
    taken_read: datetime | None = None
    taken_told: datetime | None = None
    identity: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    others: tuple[Place, ...] = ()
    key: str | None = None
    gone: int | None = None

    @property
    def id(self) -> str:
        """Its key."""
        return self.key or key_of(self.path)

    @property
    def places(self) -> tuple[Place, ...]:
        """All files of its bytes."""
        return Place(self.path, self.mtime), *self.others

    @property
    def paths(self) -> list[str]:
        """All paths of its bytes."""
        return [place.path for place in self.places]

    @property
    def copies(self) -> tuple[str, ...]:
        """Its paths but the first."""
        return tuple(place.path for place in self.others)

    def at(self, places: Sequence[Place]) -> "StoredImage":
        """The same image, whose bytes lie there now."""
        first, *others = places
        key = self.key if first.path == self.path else self.id
        return replace(self, key=key, path=first.path, mtime=first.mtime, others=tuple(others))

    @property
    def taken(self) -> datetime | None:
        """When; what was told stands before what was read."""
        return self.taken_told or self.taken_read

    def to_values(
        self,
    ) -> tuple[str, str, str, str, int, int, int | None, int | None, str | None, str, int | None]:
        """The first values of a `PictureRow`.

        Raises `DataError` for broken Unicode and for metadata that JSON cannot hold.
        """
        try:
            metadata = to_json(self.metadata)
            # the name of a file may hold bytes that are not UTF-8 (lone surrogates in Python), which no store holds
            for text in (*self.paths, self.identity or ""):
                text.encode()
        except (TypeError, ValueError):
            raise DataError(
                f"{self.path!a}: path, identity and metadata must be plain text and JSON, whole numbers within ±2^63"
            ) from None
        read, told = map(_microseconds, (self.taken_read, self.taken_told))
        others = json.dumps(self.others, ensure_ascii=False)
        return (
            self.id,
            self.path,
            others,
            self.sha256,
            self.size,
            self.mtime,
            read,
            told,
            self.identity,
            metadata,
            self.gone,
        )

    def to_item(self) -> Item:
        """Convert to the type that the library, the server and `--json` answer with."""
        told = self.taken_told is not None
        return Item(**item_values(self.id, self.paths, self.identity, self.metadata, self.taken, told=told))

    @classmethod
    def of(cls, row: PictureRow) -> "StoredImage":
        """Make the stored image of an engine's row."""
        return cls(
            row.path,
            row.sha256,
            row.size,
            row.mtime,
            time_of(row.taken_read),
            time_of(row.taken_told),
            row.identity,
            json.loads(row.metadata),
            tuple(map(Place._make, json.loads(row.others))),
            None if row.id == key_of(row.path) else row.id,
            row.gone,
        )


def time_of(taken: int | None) -> datetime | None:
    """The time of a `PictureRow`."""
    return None if taken is None else _EPOCH + timedelta(microseconds=taken)


def _microseconds(time: datetime | None) -> int | None:
    return None if time is None else (time - _EPOCH) // timedelta(microseconds=1)


_EPOCH = datetime(1970, 1, 1)


def further_paths(others: str) -> list[str]:
    """The paths in the `others` of a `PictureRow`."""
    return [] if others == NOWHERE else [path for path, _ in json.loads(others)]


def key_of(path: str) -> str:
    """The key that a new image of this absolute path has: a digest, 32 hex digits."""
    # a digest and not the path: keys stand in URLs and in SQL, and must tell nothing of this machine. 128 bits: of a
    # billion images two have the same key with a probability of 1e-21
    return hashlib.sha256(path.encode()).hexdigest()[:32]


def keys_of(paths: Iterable[str]) -> list[str]:
    """Keys of new images; without those whose names are not UTF-8, which no store holds."""
    return [key_of(path) for path in paths if path == path.encode(errors="ignore").decode()]


def to_json(metadata: Mapping[str, Any]) -> str:
    """Write metadata as the store keeps them: one spelling for equal values.

    Raises `ValueError` for text that is not Unicode, NaN, infinity and whole numbers beyond ±2^63, `TypeError` for
    values that JSON does not have.
    """
    try:
        _check_size(metadata)
        # sorted: indexing again tells by this text whether the facts have changed
        # allow_nan: Python writes NaN, which no JSON parser of a browser reads
        text = json.dumps(dict(metadata), sort_keys=True, ensure_ascii=False, allow_nan=False)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    # json.dumps lets half of a surrogate pair through, UTF-8 does not
    text.encode()
    return text


def _check_size(value: Any) -> None:
    if isinstance(value, int) and abs(value) > LARGEST:
        raise ValueError("a whole number beyond 64 bits")
    for element in (
        value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    ):
        _check_size(element)
