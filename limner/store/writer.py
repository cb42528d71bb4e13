"""Writes images into a store: checks what is given, and says when a commit is due."""

import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from limner.errors import DataError, StoreError
from limner.store.entry import StoredImage
from limner.store.lock import Lease, WriterLock
from limner.store.path import StorePath
from limner.store.rows import Picture, Writing
from limner.types import RegionFeatures

IMAGES = 1024
"""Pending images from which a commit is due."""

BYTES = 64 * 2**20
"""Pending bytes from which one is due."""

SECONDS = 30.0
"""Seconds since the last commit from which one is due: so much work is lost to a kill."""


class StoreWriter:
    """Changes that become visible together by `commit`; `StoreFiles.changing` makes one."""

    def __init__(
        self,
        store: StorePath,
        dim: int,
        region_shape: tuple[int, int, int] | None,
        writing: Writing,
        lock: WriterLock | Lease,
    ) -> None:
        self._store, self._dim, self._region_shape = store, dim, region_shape
        self._writing, self._lock = writing, lock
        self._begin()

    def _begin(self) -> None:
        self._ids: set[str] = set()
        self._since = time.monotonic()

    @property
    def due(self) -> bool:
        """True if so much is pending, or for so long, that it should be committed."""
        return bool(self._ids) and (
            self._writing.pending >= BYTES
            or len(self._ids) >= IMAGES
            or time.monotonic() - self._since >= SECONDS
        )

    def is_free(self, ids: Iterable[str]) -> bool:
        """True if none of these images has been given since the last commit: each may be once."""
        return self._ids.isdisjoint(ids)

    def add(
        self,
        entries: Sequence[StoredImage],
        vectors: Float[np.ndarray, "images width"],
        region_features: RegionFeatures | None = None,
        thumbnails: Sequence[bytes | None] | None = None,
    ) -> None:
        """Add images, or replace those of the same key; with `region_features` if the store keeps them.

        Raises `StoreError` for another width or region features and if the disk refuses, `DataError` for NaN, a path
        given twice or metadata that JSON cannot hold.
        """
        self._expect_once(entries)
        if vectors.shape != (len(entries), self._dim):
            raise StoreError(
                f"{self._store}: expected {len(entries)} vectors of width {self._dim}, got shape {vectors.shape}"
            )
        _expect_finite(vectors)
        if thumbnails is not None and len(thumbnails) != len(entries):
            raise StoreError(f"{self._store}: expected {len(entries)} thumbnails, got {len(thumbnails)}")
        features = self._checked(region_features, len(entries))
        self._writing.add(
            [
                Picture(
                    entry,
                    vectors[row],
                    None if thumbnails is None else thumbnails[row],
                    None if features is None else features[row],
                )
                for row, entry in enumerate(entries)
            ]
        )

    def update(self, entries: Sequence[StoredImage]) -> None:
        """Give stored images new facts; their bytes stay. Raises `StoreError` for one that is damaged or gone."""
        self._expect_once(entries)
        self._writing.update(entries)

    def delete(self, ids: Sequence[Any]) -> int:
        """Remove images with the sentences that describe them, and return how many there were."""
        return self._writing.delete(ids)

    def add_sentences(
        self, sentences: Sequence[tuple[str, str, str | None]], vectors: Float[np.ndarray, "sentences dim"]
    ) -> None:
        """Add sentences by key, text and path. Raises `DataError` for NaN."""
        _expect_finite(vectors)
        self._writing.add_sentences(sentences, np.asarray(vectors, np.float32))

    def delete_sentences(self, ids: Sequence[Any] = (), paths: Sequence[str] = ()) -> int:
        """Remove sentences of some keys and of images of some paths, and return how many there were."""
        return self._writing.delete_sentences(ids, paths)

    def recount(self) -> None:
        """Take the rows that are there for those that should be: the last step of a repair."""
        self._writing.recount()

    def commit(self) -> None:
        """Make all pending changes visible in one commit.

        Raises `StoreError` if the disk refuses, and if another process has taken over the writing.
        """
        # held already: a lease may have been lost since, by a machine that slept or a network that was away
        with self._lock.held():
            self._writing.commit()
        self._begin()

    def abandon(self) -> None:
        """Forget pending changes."""
        self._writing.abandon()
        self._begin()

    def _expect_once(self, entries: Sequence[StoredImage]) -> None:
        # whoever gives an image twice does not know which of its facts count
        ids = [entry.to_values()[0] for entry in entries]
        if len(set(ids)) != len(ids) or not self._ids.isdisjoint(ids):
            raise DataError("a picture was given twice in one commit")
        self._ids.update(ids)

    def _checked(self, region_features: RegionFeatures | None, count: int) -> RegionFeatures | None:
        shape = None if self._region_shape is None else (count, *self._region_shape)
        given = None if region_features is None else region_features.shape
        if given != shape:
            raise StoreError(f"{self._store}: expected region features of shape {shape}, got {given}")
        if region_features is None:
            return None
        # half precision is what the store holds; beyond 65,504 it is infinite
        halves = np.ascontiguousarray(region_features, np.float16)
        if not np.isfinite(halves).all():
            raise DataError(
                "region features hold NaN or infinite values; the model has diverged, or half precision is too small"
            )
        return halves


def _expect_finite(vectors: np.ndarray) -> None:
    # one NaN in a row makes each of its scores NaN, which no later search could rank
    if not np.isfinite(vectors).all():
        raise DataError("embeddings hold NaN or infinite values; the model has diverged")
