"""Thumbnails and region features of a store's images, compared with their digests."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
from jaxtyping import Int

from limner.errors import StoreError, UnknownPictureError
from limner.store.digests import digest_of
from limner.store.entry import PictureRow
from limner.store.files import StoreFiles
from limner.store.path import StorePath
from limner.store.rows import Reading
from limner.store.sound import damaged, sound
from limner.types import RegionFeatures

T = TypeVar("T")

_TOGETHER = 64  # images whose region features are read at once: 13 MB of 7 × 7 × 2048


def thumbnails(files: StoreFiles, ids: Sequence[str]) -> list[bytes | None]:
    """Thumbnails of images by their keys, in order: JPEG files, None for one that has none. Raises `StoreError`.

    An image whose files are gone has none.
    """

    def read(reading: Reading) -> tuple[dict[str, PictureRow], dict[int, bytes]]:
        rows = {row.id: row for row in sound(files.folder, reading.pictures(ids)) if row.gone is None}
        return rows, reading.thumbnails([row.number for row in rows.values()])

    rows, held = files.read(read)
    found = {key: own(files.folder, held, row.number, row.thumbnail_digest) for key, row in rows.items()}
    return [found.get(key) for key in ids]


def region_features(files: StoreFiles, ids: Sequence[str]) -> RegionFeatures:
    """Region features of images by their keys, in order. Raises `UnknownPictureError` for others."""
    found = np.empty((len(ids), *_shape(files)), np.float16)
    for places, features in region_blocks(files, ids, _TOGETHER):
        found[places] = features
    return found


def region_blocks(
    files: StoreFiles, ids: Sequence[str], size: int
) -> Iterator[tuple[Int[np.ndarray, " block"], RegionFeatures]]:
    """Region features of images, at most `size` at a time, in the order of the disk; places in `ids`.

    Raises `UnknownPictureError` for a key that is not there, or no longer, and `StoreError`.
    """
    shape = _shape(files)
    rows = files.read(lambda reading: {row.id: row for row in sound(files.folder, reading.pictures(ids))})
    for key in ids:
        if key not in rows:
            raise UnknownPictureError(f"{files.folder}: does not hold {key}; search again")
    order = np.argsort([rows[key].number for key in ids], kind="stable")
    for start in range(0, len(order), size):
        block = order[start : start + size]
        some = [rows[ids[place]] for place in block.tolist()]
        # a moment of its own for each block: whoever scores them for seconds holds up no erasure
        held = files.read(partial(_regions, files.folder, some))
        contents = [own(files.folder, held, row.number, row.regions_digest) or b"" for row in some]
        yield block, np.frombuffer(b"".join(contents), "<f2").reshape(-1, *shape)


def own(folder: StorePath, held: Mapping[int, bytes], number: int, digest: bytes | None) -> bytes | None:
    """The bytes of an image among those that were read; None for an image that has none. Raises `StoreError`."""
    if digest is None:
        return None
    content = held.get(number)
    if content is None or digest_of(content) != digest:
        raise damaged(folder, "a thumbnail or region features have changed since they were written")
    return content


def _regions(folder: StorePath, some: Sequence[PictureRow], reading: Reading) -> dict[int, bytes]:
    """Region features by number. Raises `UnknownPictureError` for an image that was deleted or replaced since."""
    held = reading.regions([row.number for row in some])
    if len(held) < len(some):
        # one whose bytes are lost is still there
        numbers = {row.number for row in reading.pictures([row.id for row in some])}
        for row in some:
            if row.number not in numbers:
                raise UnknownPictureError(f"{folder}: does not hold {row.id} as it was; search again")
    return held


def _shape(files: StoreFiles) -> tuple[int, int, int]:
    if files.region_shape is None:
        raise StoreError(f"{files.folder}: keeps no region features, its model does not re-rank")
    return files.region_shape


def chunks(values: Sequence[T], size: int = _TOGETHER) -> Iterator[Sequence[T]]:
    """Values, some at a time: images whose bytes are in memory together."""
    for start in range(0, len(values), size):
        yield values[start : start + size]
