"""One image of a store without its vector, and the table columns that hold it."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from limner.errors import DataError
from limner.search.row_digests import COLUMNS
from limner.search.segments import DIGEST_BYTES
from limner.wire import Item

FIELDS = ("path", "sha256", "size", "mtime", "taken", "identity", "metadata")
"""Columns of a stored image, beside `id`, `vector` and those of `PLACE`."""

PLACE = ("segment", "offset", "thumbnail_size", "regions_digest", "thumbnail_digest")
"""Columns that say where the region features and the thumbnail of an image lie, and what their bytes are."""

LARGEST = 2**63 - 1
"""Largest whole number that metadata may hold: other programs read JSON's numbers into 64 bits."""


@dataclass(frozen=True)
class StoredImage:
    """One image file as it was when it was indexed.

    - `path`: absolute; it decides the key, so that a store holds one row a file.
    - `sha256`: hex digest of the file's bytes; `size`: bytes; `mtime`: time of its last change, nanoseconds.
    - `taken`: when, by the camera's own clock (no time zone), or None.
    - `identity`: whom or what it shows, or None; `metadata`: other facts, JSON values only.
    """

    path: str
    sha256: str
    size: int
    mtime: int
    taken: datetime | None = None
    identity: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Stable key of the row, see `key_of`."""
        return key_of(self.path)

    def to_row(self) -> dict[str, Any]:
        """Convert to column values. Raises `DataError` for broken Unicode and for metadata that JSON cannot hold."""
        try:
            metadata = to_json(self.metadata)
            # the name of a file may hold bytes that are not UTF-8 (lone surrogates in Python), which Arrow cannot store
            for text in (self.path, self.identity or ""):
                text.encode()
        except (TypeError, ValueError):
            raise DataError(
                f"{self.path!a}: path, identity and metadata must be plain text and JSON, whole numbers within ±2^63"
            ) from None
        row = {name: getattr(self, name) for name in FIELDS}
        return {"id": self.id, **row, "metadata": metadata}

    def to_item(self) -> Item:
        """Convert to the type that the library, the server and `--json` answer with."""
        return Item(**item_values(self.to_row()))

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "StoredImage":
        """Make the stored image of a table row."""
        values = {name: row[name] for name in FIELDS}
        return cls(**{**values, "metadata": json.loads(row["metadata"])})


TOLD = ["id", "path", "identity", "metadata", "taken"]
"""Columns that hits and items tell."""


def item_values(row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a hit or an item that come from a table row."""
    path = Path(row["path"])
    return {
        "id": row["id"],
        "name": path.name,
        "path": path,
        "identity": row["identity"],
        "metadata": json.loads(row["metadata"]),
        "taken": row["taken"],
    }


def key_of(path: str) -> str:
    """Key of an image by its absolute path: a digest, 32 hex digits."""
    # a digest and not the path: keys stand in URLs and in SQL, and must tell nothing of this machine. 128 bits: of a
    # billion images two have the same key with a probability of 1e-21
    return hashlib.sha256(path.encode()).hexdigest()[:32]


def keys_of(paths: Iterable[str]) -> list[str]:
    """Keys of images; without those whose names are not UTF-8, which no store holds."""
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


def sentence_schema(dim: int) -> pa.Schema:
    """Columns of the table of sentences: see `limner.search.sentences`."""
    return pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            pa.field("text", pa.string(), nullable=False),
            pa.field("path", pa.string()),
            pa.field("vector", pa.list_(pa.float32(), dim), nullable=False),
            *COLUMNS,
        ]
    )


def schema(dim: int) -> pa.Schema:
    """Columns of the table of images."""
    digest = pa.binary(DIGEST_BYTES)
    return pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            pa.field("path", pa.string(), nullable=False),
            pa.field("sha256", pa.string(), nullable=False),
            pa.field("size", pa.int64(), nullable=False),
            pa.field("mtime", pa.int64(), nullable=False),
            # no zone: EXIF times are those of the camera's clock
            pa.field("taken", pa.timestamp("us")),
            pa.field("identity", pa.string()),
            # JSON text: images have metadata of different names, and each new one would change a struct's schema
            pa.field("metadata", pa.string(), nullable=False),
            # fixed size: LanceDB's type of a vector, and one flat buffer that NumPy reads as a matrix (`matrix_of`)
            pa.field("vector", pa.list_(pa.float32(), dim), nullable=False),
            # region features and thumbnail lie one after the other in a segment; null = the image has neither
            pa.field("segment", pa.string()),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("thumbnail_size", pa.int64(), nullable=False),
            pa.field("regions_digest", digest),
            pa.field("thumbnail_digest", digest),
            *COLUMNS,
        ]
    )
