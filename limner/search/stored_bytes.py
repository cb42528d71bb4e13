"""Thumbnails and region features of images, read from the segments by the places in their rows."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from limner.errors import StoreError
from limner.search.segments import Extent, Segments, digest_of
from limner.search.store_path import StorePath
from limner.types import RegionFeatures

PRECISION = np.dtype("<f2")
"""Numbers of region features in a segment: half precision, little endian."""

Row = Mapping[str, Any]
"""A row of the table with at least the columns of `limner.search.entry.PLACE`."""


class StoredBytes:
    """The bytes of a store's images, checked against the digests in their rows.

    - `region_size`: bytes of an image's region features; 0 if the store keeps none.
    """

    def __init__(self, store: StorePath, region_shape: tuple[int, int, int] | None) -> None:
        self.segments = Segments(store)
        self.region_shape = region_shape
        self.region_size = 0 if region_shape is None else math.prod(region_shape) * PRECISION.itemsize
        self._store = store

    def expect_regions(self) -> tuple[int, int, int]:
        """Return the shape of region features. Raises `StoreError` for a store that keeps none."""
        if self.region_shape is None:
            raise StoreError(f"{self._store}: keeps no region features, its model does not re-rank")
        return self.region_shape

    def regions(self, rows: Sequence[Row]) -> RegionFeatures:
        """Region features of some images, in order.

        Raises `MissingSegmentError` if a row is older than a compaction, and `StoreError` for damaged bytes and a store
        that keeps none.
        """
        features = np.empty((len(rows), *self.expect_regions()), PRECISION)
        places = [one.ravel().view(np.uint8).data for one in features]
        self.segments.fill([self._extent(row, 0, self.region_size) for row in rows], places)
        for row, place in zip(rows, places, strict=True):
            self._check(row, "regions_digest", place)
        return features

    def thumbnails(self, rows: Sequence[Row]) -> list[bytes | None]:
        """Thumbnails of some images, in order; None for an image without. Raises what `regions` raises."""
        having = [place for place, row in enumerate(rows) if row["thumbnail_size"]]
        extents = [
            self._extent(rows[place], self.region_size, rows[place]["thumbnail_size"]) for place in having
        ]
        found: list[bytes | None] = [None] * len(rows)
        for place, content in zip(having, self.segments.read(extents), strict=True):
            self._check(rows[place], "thumbnail_digest", memoryview(content))
            found[place] = bytes(content)
        return found

    def whole(self, rows: Sequence[Row]) -> list[bytearray]:
        """All bytes of some images, as they are copied from segment to segment; unchecked."""
        return self.segments.read([self._extent(row, 0, self.size_of(row)) for row in rows])

    def own(self, rows: Sequence[Row]) -> list[bytearray]:
        """All bytes of some images, held against their digests. Raises what `regions` raises."""
        found = self.whole(rows)
        for row, content in zip(rows, found, strict=True):
            parts = memoryview(content)
            if self.region_size:
                self._check(row, "regions_digest", parts[: self.region_size])
            if row["thumbnail_size"]:
                self._check(row, "thumbnail_digest", parts[self.region_size :])
        return found

    def size_of(self, row: Row) -> int:
        """Number of bytes that an image has in its segment."""
        return self.region_size + int(row["thumbnail_size"])

    def _extent(self, row: Row, start: int, size: int) -> Extent:
        if row["segment"] is None:
            raise StoreError(
                f"{self._store}: a row of it is damaged; look at it with `limner store verify`", "damaged"
            )
        return Extent(row["segment"], row["offset"] + start, size)

    def _check(self, row: Row, column: str, content: memoryview) -> None:
        if digest_of(content) != row[column]:
            kind = "region features" if column == "regions_digest" else "thumbnail"
            raise StoreError(
                f"{self._store}: {kind} in its segment {row['segment']} are damaged; look at it with `limner store "
                "verify`"
            )
