"""Compaction of a store's segments: what is small is joined, and what is mostly dead is written again.

Both only where they pay. A segment of indexing is full (64 MB) and stays; small ones are joined when 32 of about one
size have come together, so that a byte is written again once for each 32-fold growth of its segment: never for indexed
region features, once for thumbnails, two or three times for images that were added one by one. A segment is written
again when less than half of it belongs to an image, which costs less than it frees.
"""

import math
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from limner.search.segments import FULL
from limner.search.store_writer import StoreWriter
from limner.search.stored_bytes import StoredBytes
from limner.search.table import Table

TOGETHER = 32
"""Number of small segments of about one size that are joined, and the factor between two sizes."""

_IMAGES = 1024  # images that are copied at once
_ROWS = 8192  # images of a commit, whose vectors and facts are in memory


def compact_segments(table: Table, stored: StoredBytes, writer: StoreWriter) -> None:
    """Join and rewrite segments where that pays, and remove those that no image needs.

    Whoever calls this holds the store's lock.
    """
    places = table.all(["id", "segment", "offset", "thumbnail_size"])
    sizes = stored.segments.sizes()
    chosen = _chosen(sizes, alive_bytes(places, stored.region_size))
    if chosen:
        moved = places.filter(pc.is_in(places["segment"], pa.array(sorted(chosen), pa.string())))
        # in the order of the bytes: each old segment is read once, from first to last
        moved = moved.sort_by([("segment", "ascending"), ("offset", "ascending")])
        ids = moved["id"].to_pylist()
        for start in range(0, len(ids), _IMAGES):
            writer.copy(ids[start : start + _IMAGES])
            if writer.pending_bytes >= FULL or writer.pending_images >= _ROWS:
                writer.commit()
        writer.commit()
    stored.segments.remove_others(segment_names(table))


def segment_names(table: Table) -> set[str]:
    """Names of the segments in which images of the table have bytes."""
    return set(pc.unique(table.all(["segment"])["segment"]).drop_null().to_pylist())


def alive_bytes(places: pa.Table, region_size: int) -> dict[str, int]:
    """Bytes of each segment that belong to an image."""
    here = places.filter(pc.is_valid(places["segment"]))
    sums = here.group_by("segment").aggregate([("thumbnail_size", "sum"), ("thumbnail_size", "count")])
    names, small, images = sums["segment"], sums["thumbnail_size_sum"], sums["thumbnail_size_count"]
    alive = small.to_numpy() + region_size * images.to_numpy().astype(np.int64)
    return dict(zip(names.to_pylist(), alive.tolist(), strict=True))


def _chosen(sizes: dict[str, int], alive: dict[str, int]) -> set[str]:
    """Names of the segments to write again."""
    chosen = {name for name, size in sizes.items() if name in alive and 2 * alive[name] < size}
    tiers: dict[int, list[str]] = defaultdict(list)
    for name, size in sizes.items():
        if name in alive and size < FULL:
            tiers[int(math.log(max(size, 1), TOGETHER))].append(name)
    for names in tiers.values():
        if len(names) >= TOGETHER:
            chosen.update(names)
    return chosen
