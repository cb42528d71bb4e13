"""A store's rows at one moment, in memory, searched exactly."""

import hashlib
import json
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from limner.conditions import Condition
from limner.errors import SearchTimeoutError, UnknownPictureError
from limner.store.columns import Columns
from limner.store.digests import vector_sums
from limner.store.metadata_index import MetadataIndex
from limner.store.path import StorePath
from limner.store.rows import Reading
from limner.store.sound import damaged, expect_rows, matrix_of, sound
from limner.store.vectors import Vectors
from limner.types import ImageSource
from limner.wire import Hit, Item, item_values


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Vectors and facts of a store, ordered by path: among equal scores the lower row has the earlier path."""

    vectors: Vectors
    columns: Columns
    state: str = ""
    """Name of these rows by their contents, within one store: equal rows have the same name."""
    version: int = 0
    """Number of the commits that had changed the images."""
    store: str = ""
    """Id of the store: in another one the same numbers are of other rows."""
    gone: frozenset[str] = frozenset()
    """Paths of images whose files are gone: they have no row here."""

    @classmethod
    def read(
        cls, folder: StorePath, reading: Reading, store: str, dim: int, before: "Snapshot | None" = None
    ) -> "Snapshot":
        """Read all rows of one moment, compared with their digests; vectors that `before` has are taken from it.

        Those of more than memory should hold are in a file (`limner.store.scratch`), to which what is new is added.
        Raises `StoreError` for rows that are damaged, and where there is no room for the file.
        """
        state = reading.state("pictures")
        own, known_vectors = (Columns.of(()), None) if before is None else (before.columns, before.vectors)
        columns = (
            Columns.of(sound(folder, reading.pictures())) if before is None else own.followed(folder, reading)
        )
        expect_rows(folder, columns.digests.tolist(), state.rows, state.total)
        gone, columns = columns.paths_gone(), columns.present()
        same, held = own.places_of(columns)
        fresh = np.delete(np.arange(len(columns.numbers)), same)
        vectors = Vectors.following(known_vectors, dim, same, held, fresh)
        places = vectors.places(fresh)
        for block, content in reading.vectors(columns.numbers[fresh]):
            matrix = matrix_of(folder, content, dim)
            if vector_sums(matrix) != columns.sums[fresh[block]].tolist():
                raise damaged(folder, "a vector has changed since it was written")
            vectors.stored[places[block]] = matrix
        if known_vectors is not None:
            vectors.take_codes(known_vectors, same, held)
        return cls(vectors, columns, _state(state.rows, state.total), state.version, store, gone)

    @property
    def matrix(self) -> Float[np.ndarray, "images dim"]:
        """Embeddings of all images, a row each: for a few take `vectors[rows]`, which copies no others on disk."""
        return self.vectors.matrix

    def search(self, query: Float[np.ndarray, " dim"], k: int) -> list[Hit]:
        """Find the k best rows by dot product, best first; equal scores by path."""
        return self.hits(*self.vectors.first(query, k))

    def hits(
        self,
        rows: Int[np.ndarray, " best"],
        scores: Float[np.ndarray, " best"],
        *,
        groups: Sequence[int | None] | None = None,
        confidences: Sequence[float | None] | None = None,
        probabilities: Sequence[float | None] | None = None,
        first_rank: int = 1,
        before: Sequence[int | None] | None = None,
    ) -> list[Hit]:
        """Make hits of rows, ranked in the order given, with groups, confidences, probabilities and ranks before."""
        unknown = [None] * len(rows)
        known = zip(
            scores,
            groups or unknown,
            confidences or unknown,
            probabilities or unknown,
            before or unknown,
            strict=True,
        )
        return [
            Hit(
                **item,
                rank=rank,
                score=float(score),
                group=group,
                confidence=confidence,
                probability=probability,
                rank_before=was,
            )
            for rank, (item, (score, group, confidence, probability, was)) in enumerate(
                zip(self._told(rows), known, strict=True), start=first_rank
            )
        ]

    def items(self, rows: Int[np.ndarray, " some"]) -> list[Item]:
        """Make items of rows, in the order given."""
        return [Item(**item) for item in self._told(rows)]

    def _told(self, rows: Int[np.ndarray, " some"]) -> list[dict[str, Any]]:
        """The fields that a hit and an item share."""
        own = self.columns
        return [
            item_values(
                own.ids[row].decode(),
                (own.paths[row], *own.others[row]),
                own.identities[row],
                json.loads(own.metadata[row]),
                own.taken[row].item(),
                told=bool(own.told[row]),
            )
            for row in np.asarray(rows).tolist()
        ]

    # each is made when somebody asks for it: a search needs no list of 100,000 strings. cached_property writes past
    # `frozen` into __dict__, so this class cannot have slots
    @cached_property
    def keys(self) -> list[str]:
        """Keys of the images, row by row."""
        return self.keys_of(self._every)

    @cached_property
    def places(self) -> dict[str, int]:
        """The row of each key, to look for many; `row` finds one."""
        return {key: row for row, key in enumerate(self.keys)}

    def row(self, key: str) -> int | None:
        """The row of a key; None if no row has it."""
        # a dict of two million would take a second and 200 MB; a comparison of all takes 20 ms
        found = np.flatnonzero(self.columns.ids == key.encode("utf-8", "replace"))
        return int(found[0]) if len(key) == 32 and len(found) else None

    def expect_row(self, key: str) -> int:
        """The row of a key. Raises `UnknownPictureError`."""
        row = self.row(key)
        if row is None:
            raise UnknownPictureError(f"the store holds no picture {key[:64]!a}")
        return row

    def row_at(self, path: str | None) -> int | None:
        """The row of the image that has a file at this path; None if none has."""
        if path is None:
            return None
        row = bisect_left(self.columns.paths, path)
        found = row < len(self.columns.paths) and self.columns.paths[row] == path
        return row if found else self._further.get(path)

    def key_at(self, path: str | None) -> str | None:
        """The key of the image that has a file at this path; None if none has."""
        row = self.row_at(path)
        return None if row is None else str(self.columns.ids[row].decode())

    def keys_of(self, rows: Int[np.ndarray, " some"]) -> list[str]:
        """Keys of some rows, in the order given."""
        return [key.decode() for key in self.columns.ids[rows].tolist()]

    def rows_of(self, image: ImageSource | None) -> list[int]:
        """Rows of the images whose file this is, by its content; [] for an image that is no file."""
        if isinstance(image, str | Path):
            with Path(image).open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        elif isinstance(image, bytes):
            digest = hashlib.sha256(image).hexdigest()
        else:
            return []
        return np.flatnonzero(self.columns.sha256 == digest.encode()).tolist()

    @cached_property
    def _further(self) -> dict[str, int]:
        return {path: row for row, others in enumerate(self.columns.others) for path in others}

    @cached_property
    def _every(self) -> Int[np.ndarray, " rows"]:
        rows = np.arange(len(self.vectors))
        # all queries without conditions share it
        rows.flags.writeable = False
        return rows

    @cached_property
    def metadata(self) -> MetadataIndex:
        """The metadata that conditions are tested against."""
        own = self.columns
        # of several paths each counts, as of any list
        paths = [
            [path, *others] if others else path for path, others in zip(own.paths, own.others, strict=True)
        ]
        values = {"path": paths, "identity": own.identities, "taken": own.taken}
        return MetadataIndex(own.metadata, values)

    def meeting(
        self,
        conditions: Sequence[Condition],
        after: datetime | None = None,
        before: datetime | None = None,
        until: float | None = None,
    ) -> Int[np.ndarray, " matching"]:
        """Find the rows that meet every condition and were taken at or after `after` and before `before`.

        Raises `SearchTimeoutError` after `until`.
        """
        if not conditions and after is None and before is None:
            return self._every
        holds = np.ones(len(self.vectors), bool)
        for condition in conditions:
            # the first time a condition is tested on 200,000 rows takes up to 0.7 s
            check_time(until)
            holds &= self.metadata.meeting(condition)
        if after is not None or before is not None:
            taken = self.columns.taken
            if after is not None:
                # NaT is neither before nor after: images without a time are left out. Cameras have no zone
                holds &= taken >= np.datetime64(after.replace(tzinfo=None))
            if before is not None:
                holds &= taken < np.datetime64(before.replace(tzinfo=None))
        return np.flatnonzero(holds)

    def newest_first(self, rows: Int[np.ndarray, " some"]) -> Int[np.ndarray, " some"]:
        """Rows by their capture times, the latest first; those without one last, and equal ones in their order."""
        # as numbers NaT is the least of all
        times = self.columns.taken[rows].astype(np.int64)
        return rows[np.argsort(-np.maximum(times, -(2**63 - 1)), kind="stable")]


def without(rows: Int[np.ndarray, " rows"], some: Sequence[int]) -> Int[np.ndarray, " left"]:
    """Leave some rows out of rows in ascending order."""
    # numpy's `isin` would compare each row
    places = np.searchsorted(rows, some)
    there = places[
        [place < len(rows) and rows[place] == row for place, row in zip(places, some, strict=True)]
    ]
    return np.delete(rows, there) if len(there) else rows


def _state(rows: int, total: int) -> str:
    # a digest of the sum: clients get it, and a sum of one row would be that row's digest
    return hashlib.blake2b(f"{rows} {total}".encode(), digest_size=8).hexdigest()


def check_time(until: float | None) -> None:
    """Raise `SearchTimeoutError` after a time of `time.monotonic()`; None = no limit."""
    if until is not None and time.monotonic() > until:
        raise SearchTimeoutError(
            "the search took longer than it may; re-rank fewer, give fewer conditions, or try again"
        )
