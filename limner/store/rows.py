"""The interface of an engine that keeps a store's rows: `Rows`, of which `limner.store.sqlite_rows` is the usual one.

Two tables and a few texts. A commit changes all of them together, survives a kill and a power cut, and shows to a
reader as a whole or not at all. One process writes at a time (`limner.store.lock`); any number may read meanwhile.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from limner.errors import StoreError
from limner.store.digests import digest_of, row_digest
from limner.store.entry import PictureRow, StoredImage
from limner.types import RegionFeatures


class SentenceRow(NamedTuple):
    """A sentence with the digests of its vector and of itself."""

    id: str
    text: str
    path: str | None
    vector_sum: int
    digest: bytes


class State(NamedTuple):
    """A table after the last commit: how many commits changed it, its number of rows, and the sum of their digests."""

    version: int
    rows: int
    total: int


class Picture(NamedTuple):
    """An image to be written."""

    image: StoredImage
    vector: Float[np.ndarray, " dim"]
    thumbnail: bytes | None = None
    regions: RegionFeatures | None = None
    """Of one image, without the first axis."""


def contents_of(picture: Picture) -> tuple[bytes, bytes | None, bytes | None]:
    """Bytes of an image's vector, thumbnail and region features as every engine keeps them."""
    regions = None if picture.regions is None else np.ascontiguousarray(picture.regions, "<f2").tobytes()
    return np.ascontiguousarray(picture.vector, "<f4").tobytes(), picture.thumbnail or None, regions


def picture_row(
    image: StoredImage, number: int, vector_sum: int, contents: Sequence[bytes | None]
) -> PictureRow:
    """The row of an image with the digests of its thumbnail and region features."""
    digests = (None if content is None else digest_of(content) for content in contents)
    values = (*image.to_values(), number, vector_sum, *digests)
    return PictureRow._make((*values, row_digest(values)))


def same_contents(image: StoredImage, before: PictureRow) -> PictureRow:
    """The row of an image that has other facts now."""
    own = image.to_values()
    values = (*own, *before[len(own) : -1])
    return PictureRow._make((*values, row_digest(values)))


class MomentGoneError(StoreError):
    """The rows of a moment are no longer there, since another process has scrubbed; those of a later one are."""


@runtime_checkable
class Reading(Protocol):
    """All rows at one moment. Whatever cannot be read raises `StoreError`; digests are for the caller to compare."""

    def state(self, table: str) -> State:
        """The state of `pictures` or `sentences`."""

    def pictures(self, ids: Sequence[str] | None = None) -> Iterator[PictureRow]:
        """Facts of all images, in no order, or of those of some keys that there are."""

    def pictures_like(self, paths: Sequence[str], sizes: Sequence[int]) -> Iterator[PictureRow]:
        """Facts of some images, in no order: at least those at one of the paths or of one of the sizes."""

    def digests(self) -> dict[Any, Any]:
        """The digest of each image's row by its key; damaged ones may be of any type."""

    def sentences(self) -> Iterator[tuple[SentenceRow, bytes]]:
        """All sentences with the bytes of their vectors, in no order."""

    def vectors(
        self, numbers: Int[np.ndarray, " some"]
    ) -> Iterator[tuple[Int[np.ndarray, " block"], list[bytes]]]:
        """Vectors of images, block by block in no order: their places among the numbers, and the bytes of each."""

    def thumbnails(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """Thumbnails by number, of images that have one."""

    def regions(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """Region features by number: half precision, little endian."""


@runtime_checkable
class Writing(Protocol):
    """Changes that become visible together by `commit`."""

    pending: int
    """Bytes that it holds back, about."""

    def add(self, pictures: Sequence[Picture]) -> None:
        """Add images, or put them in the place of those of the same key."""

    def update(self, images: Sequence[StoredImage]) -> None:
        """Give stored images other facts; their bytes stay. Raises `StoreError` for a row that is damaged or gone."""

    def delete(self, ids: Sequence[Any]) -> int:
        """Remove images and the sentences that describe them, and return how many images there were.

        A key that is damaged may be a value of any type.
        """

    def add_sentences(
        self, sentences: Sequence[tuple[str, str, str | None]], vectors: Float[np.ndarray, "sentences dim"]
    ) -> None:
        """Add sentences by key, text and path."""

    def delete_sentences(self, ids: Sequence[Any] = (), paths: Sequence[str] = ()) -> int:
        """Remove sentences of some keys and of images of some paths, and return how many there were."""

    def recount(self) -> None:
        """Count the rows that are there, and the sum of their digests, anew; bytes of images that no row names go."""

    def commit(self) -> None:
        """Make all changes visible and durable."""

    def abandon(self) -> None:
        """Forget them."""

    def close(self) -> None:
        """End the change; what was not committed is abandoned."""


@runtime_checkable
class Rows(Protocol):
    """The rows of one store."""

    def identity(self) -> tuple[object, ...]:
        """The store's id, and what changes with every commit, and if another store has taken the folder; cheap."""

    def text(self, name: str) -> str | None:
        """A small text that the store keeps: `description`, `id`, `calibration`."""

    def set_text(self, name: str, text: str | None) -> None:
        """Write one, as a whole or not at all. Whoever calls this holds the store's lock."""

    def reading(self) -> AbstractContextManager[Reading]:
        """Read all of one moment. Raises `MomentGoneError`, of an engine whose `scrub` does not wait for readers."""

    def begin(self) -> Writing:
        """Begin a change. The caller holds the store's lock."""

    def scrub(self) -> None:
        """Remove from the disk what has been deleted. The caller holds the store's lock."""

    def faults(self) -> list[str]:
        """Faults that the engine itself finds in its files, a line each. Raises `StoreError` if it cannot read them."""

    def copy(self, folder: Path) -> None:
        """Copy all rows of one moment into an empty folder."""

    def changed_at(self) -> float | None:
        """Time of the last commit in seconds since 1970; None before the first."""

    def close(self) -> None:
        """Let go of files and memory; a later call opens them again."""
