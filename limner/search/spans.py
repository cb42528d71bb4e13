"""Where in the segments the bytes of images lie, and whether they are their own: for an erasure and its proof."""

from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from limner.errors import StoreError
from limner.search.compaction import alive_bytes
from limner.search.entry import PLACE
from limner.search.store_files import StoreFiles

_IMAGES = 64  # images whose bytes are in memory: 13 MB of region features of 7 × 7 × 2048


class Spans:
    """Where in the segments the bytes of images lie."""

    def __init__(self, files: StoreFiles) -> None:
        places = files.table.all(["id", *PLACE])
        self._files, self._places = files, places
        self._sizes = files.stored.segments.sizes()
        self._alive = alive_bytes(places, files.stored.region_size)
        rows = places.filter(pc.is_valid(places["segment"])).sort_by("offset")
        names = np.array(rows["segment"].to_pylist(), object)
        starts, small = rows["offset"].to_numpy(), rows["thumbnail_size"].to_numpy()
        ends = starts + small + files.stored.region_size
        self._spans = {name: (starts[names == name], ends[names == name]) for name in self._alive}

    def cover(self, segment: str, place: int, size: int) -> bool:
        """True if some bytes of a segment belong to one image."""
        if segment not in self._spans:
            return False
        starts, ends = self._spans[segment]
        row = int(np.searchsorted(starts, place, "right")) - 1
        return row >= 0 and place + size <= int(ends[row])

    def not_own(self, segments: Collection[str]) -> list[str]:
        """Those of some segments in which an image's bytes are not its own, but perhaps those of another."""
        places = self._places.filter(
            pc.is_in(self._places["segment"], pa.array(sorted(segments), pa.string()))
        )
        found: list[str] = []
        for name in sorted(segments):
            try:
                expect_own_bytes(self._files, places.filter(pc.equal(places["segment"], name)))
            except StoreError:
                found.append(name)
        return found

    def dead(self) -> list[tuple[str, int]]:
        """Segments with the number of their bytes that belong to no image."""
        counts = [(name, size - self._alive.get(name, 0)) for name, size in sorted(self._sizes.items())]
        return [(name, count) for name, count in counts if count > 0]


def expect_own_bytes(files: StoreFiles, places: pa.Table) -> None:
    """Hold the bytes of images against their digests. Raises `StoreError` for those that are not theirs."""
    rows = places.filter(pc.is_valid(places["segment"]))
    # in the order of the bytes: each segment is read once, from first to last
    rows = rows.sort_by([("segment", "ascending"), ("offset", "ascending")])
    for start in range(0, len(rows), _IMAGES):
        files.stored.own(rows.slice(start, _IMAGES).to_pylist())
