"""Writes images into a store: bytes into a segment as they come, and all of their rows in one commit."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Float

from limner.errors import DataError, StoreError
from limner.search.entry import FIELDS, PLACE, StoredImage
from limner.search.row_digests import DIGEST, VECTOR_DIGEST, damaged
from limner.search.segments import FULL, SegmentWriter, digest_of
from limner.search.store_path import StorePath
from limner.search.stored_bytes import PRECISION, StoredBytes
from limner.search.table import Table, with_vectors
from limner.types import RegionFeatures

IMAGES = 1024
"""Pending images from which a commit is due: each commit leaves a small file that every later reader opens."""

SECONDS = 30.0
"""Seconds since the last commit from which one is due: so much work is lost to a kill."""

_COPIED = 64  # images whose bytes are read at once when they are copied: 13 MB of maps of 7 × 7 × 2048


class StoreWriter:
    """Changes that become visible together by `commit`. Whoever makes one holds the store's lock.

    Thumbnails and region features are on their way to the disk at once; in memory stay vectors and facts.
    """

    def __init__(self, store: StorePath, dim: int, table: Table, stored: StoredBytes) -> None:
        self._store, self._dim, self._table, self._stored = store, dim, table, stored
        self._begin()

    def _begin(self) -> None:
        self._segment = SegmentWriter(self._store)
        self._pending: list[pa.Table] = []
        self._ids: set[str] = set()
        self._since = time.monotonic()

    @property
    def pending_images(self) -> int:
        """Number of images that the next commit writes."""
        return len(self._ids)

    @property
    def pending_bytes(self) -> int:
        """Bytes of thumbnails and region features that the next commit makes visible."""
        return self._segment.size

    @property
    def due(self) -> bool:
        """True if so much is pending, or for so long, that it should be committed."""
        return self.pending_images > 0 and (
            self.pending_bytes >= FULL
            or self.pending_images >= IMAGES
            or time.monotonic() - self._since >= SECONDS
        )

    def add(
        self,
        entries: Sequence[StoredImage],
        vectors: Float[np.ndarray, "images width"],
        region_features: RegionFeatures | None = None,
        thumbnails: Sequence[bytes | None] | None = None,
    ) -> None:
        """Add images, or replace those of the same path; with `region_features` if the store keeps them.

        Raises `StoreError` for another width or region features and if the disk refuses, `DataError` for NaN, a path
        given twice or metadata that JSON cannot hold.
        """
        rows = [entry.to_row() for entry in entries]
        self._expect_once([row["id"] for row in rows])
        if vectors.shape != (len(rows), self._dim):
            raise StoreError(
                f"{self._store}: expected {len(rows)} vectors of width {self._dim}, got shape {vectors.shape}"
            )
        # one NaN in a row makes each of its scores NaN, which no later search could rank
        if not np.isfinite(vectors).all():
            raise DataError("embeddings hold NaN or infinite values; the model has diverged")
        if thumbnails is not None and len(thumbnails) != len(rows):
            raise StoreError(f"{self._store}: expected {len(rows)} thumbnails, got {len(thumbnails)}")
        features = self._checked(region_features, len(rows))
        places = [
            self._written(
                None if features is None else features[number].ravel().view(np.uint8).data,
                None if thumbnails is None else thumbnails[number],
            )
            for number in range(len(rows))
        ]
        columns = self._table.schema
        # without the vectors, of whose every number from_pylist would make a Python object
        table = pa.Table.from_pylist(
            [{**row, **place} for row, place in zip(rows, places, strict=True)],
            schema=pa.schema([field for field in columns if field.name in ("id", *FIELDS, *PLACE)]),
        )
        self._take(with_vectors(table, columns.field("vector"), np.asarray(vectors, np.float32)))

    def update(self, entries: Sequence[StoredImage]) -> None:
        """Give stored images new facts; their vectors and bytes stay where they are.

        Raises `UnknownPictureError` for one that is not stored, and `DataError` as `add` does.
        """
        rows = [entry.to_row() for entry in entries]
        ids = [row["id"] for row in rows]
        self._expect_once(ids)
        # whole rows: a merge replaces all columns, and those that stay are read and written again
        kept = self._sound(ids)
        columns = self._table.schema
        facts = pa.Table.from_pylist(
            rows, schema=pa.schema([columns.field(name) for name in ("id", *FIELDS)])
        )
        for name in ("vector", *PLACE):
            facts = facts.append_column(columns.field(name), kept[name])
        self._take(facts)

    def copy(self, ids: Sequence[str]) -> None:
        """Copy the bytes of stored images into the new segment; all else of them stays."""
        self._expect_once(ids)
        rows = self._sound(ids)
        places = rows.select(PLACE).to_pylist()
        offsets: list[int] = []
        for start in range(0, len(places), _COPIED):
            for content in self._stored.whole(places[start : start + _COPIED]):
                offsets.append(self._segment.write(memoryview(content)))
        changed: dict[str, list[Any]] = {"segment": [self._segment.name] * len(ids), "offset": offsets}
        for name, values in changed.items():
            field = self._table.schema.field(name)
            rows = rows.set_column(rows.schema.get_field_index(name), field, pa.array(values, field.type))
        self._take(rows)

    def commit(self) -> None:
        """Make all pending changes visible in one commit. Raises `StoreError` if the disk refuses."""
        if self._pending:
            # before the rows: they must never point to bytes that a power cut can take
            self._segment.finish()
            rows = pa.concat_tables(self._pending)
            # before the merge: nobody can say of one that failed whether it left rows, which then need the segment
            self._begin()
            self._table.merge(rows)

    def abandon(self) -> None:
        """Forget pending changes, and remove their bytes."""
        self._segment.abandon()
        self._begin()

    def _written(self, features: memoryview | None, thumbnail: bytes | None) -> dict[str, Any]:
        """Write the bytes of one image, and return the columns of its place."""
        if features is None and not thumbnail:
            return {"segment": None, "offset": 0, "thumbnail_size": 0}
        offset = self._segment.size
        for content in (features, thumbnail):
            if content:
                self._segment.write(content)
        return {
            "segment": self._segment.name,
            "offset": offset,
            "thumbnail_size": len(thumbnail or b""),
            "regions_digest": None if features is None else digest_of(features),
            "thumbnail_digest": digest_of(thumbnail) if thumbnail else None,
        }

    def _take(self, rows: pa.Table) -> None:
        # the table adds the digests
        columns = [field for field in self._table.schema if field.name not in (DIGEST, VECTOR_DIGEST)]
        self._pending.append(rows.select([field.name for field in columns]).cast(pa.schema(columns)))
        self._ids.update(rows["id"].to_pylist())

    def _sound(self, ids: Sequence[str]) -> pa.Table:
        """Stored rows by their keys, in order; a damaged one must not get a digest that says it is sound."""
        rows = self._table.in_order(ids, self._table.schema.names)
        for wrong in damaged(rows, self._table.schema):
            if wrong.any():
                raise StoreError(
                    f"{self._store}: the row of {ids[int(wrong.argmax())]} is damaged; repair the store with `limner "
                    "store repair`"
                )
        return rows

    def _expect_once(self, ids: Sequence[str]) -> None:
        # LanceDB's merge keeps both rows of a new key that is given twice (0.40)
        if len(set(ids)) != len(ids) or not self._ids.isdisjoint(ids):
            raise DataError("a picture was given twice in one commit")

    def _checked(self, region_features: RegionFeatures | None, count: int) -> RegionFeatures | None:
        region_shape = self._stored.region_shape
        shape = None if region_shape is None else (count, *region_shape)
        given = None if region_features is None else region_features.shape
        if given != shape:
            raise StoreError(f"{self._store}: expected region features of shape {shape}, got {given}")
        if region_features is not None and not np.isfinite(region_features).all():
            raise DataError(
                "region features hold NaN or infinite values; the model has diverged, or half precision is too small"
            )
        # half precision is what a segment holds; beyond 65,504 it is infinite, which was refused above
        return None if region_features is None else np.ascontiguousarray(region_features, PRECISION)
