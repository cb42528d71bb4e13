"""Rows, sentences and vectors of a store, each compared with its digest before it is used."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from jaxtyping import Float

from limner.errors import StoreError
from limner.store.digests import row_digest, total_of, vector_sums
from limner.store.entry import PictureRow
from limner.store.path import StorePath
from limner.store.rows import Reading, SentenceRow


def sound(folder: StorePath, rows: Iterable[PictureRow]) -> Iterator[PictureRow]:
    """Rows, each compared with its digest. Raises `StoreError` for a damaged row."""
    for row in rows:
        if row_digest(row[:-1]) != row.digest:
            raise damaged(folder, "a row has changed since it was written")
        yield row


def sound_sentences(
    folder: StorePath, sentences: Iterable[tuple[SentenceRow, bytes]]
) -> Iterator[tuple[SentenceRow, bytes]]:
    """Sentences, each compared with its digest; of its vector only the type. Raises `StoreError`."""
    for row, vector in sentences:
        if row_digest(row[:-1]) != row.digest or not isinstance(vector, bytes):
            raise damaged(folder, "a sentence has changed since it was written")
        yield row, vector


def expect_rows(folder: StorePath, digests: Sequence[bytes], count: int, total: int) -> None:
    """Compare the digests of all rows with the number and the sum that their last commit left. Raises `StoreError`."""
    if len(digests) != count or total_of(digests) != total:
        raise damaged(folder, f"its {len(digests)} rows are not those of its last commit")


def read_vectors(
    folder: StorePath, reading: Reading, rows: Sequence[PictureRow], dim: int
) -> Float[np.ndarray, "rows dim"]:
    """Vectors of some rows, in order, compared with their digests. Raises `StoreError`."""
    found = np.empty((len(rows), dim), np.float32)
    for places, contents in reading.vectors(np.array([row.number for row in rows], np.int64)):
        found[places] = matrix_of(folder, contents, dim)
    if vector_sums(found) != [row.vector_sum for row in rows]:
        raise damaged(folder, "a vector has changed since it was written")
    return found


def matrix_of(folder: StorePath, contents: Sequence[bytes], dim: int) -> Float[np.ndarray, "rows dim"]:
    """Vectors of their bytes, whose digests tell the rest. Raises `StoreError` for another number of bytes."""
    content = b"".join(contents)
    if len(content) != 4 * dim * len(contents):
        raise damaged(folder, "a vector has another width")
    rows: Float[np.ndarray, "rows dim"] = np.frombuffer(content, "<f4").reshape(-1, dim)
    return rows


def damaged(folder: StorePath, reason: str) -> StoreError:
    """The error for what has changed since it was written."""
    return StoreError(f"{folder}: is damaged ({reason}); look at it with `limner store verify`", "damaged")
