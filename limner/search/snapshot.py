"""A store's rows at one version of the table, searched exactly.

The table is the truth on disk, and these rows answer.
"""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float, Int, UInt64

from limner.conditions import Condition
from limner.errors import SearchTimeoutError
from limner.search.commits import column_sum
from limner.search.entry import FIELDS, TOLD, item_values
from limner.search.metadata_index import MetadataIndex
from limner.search.row_digests import DIGEST
from limner.search.table import ROW, Table
from limner.search.vectors import Vectors
from limner.types import ImageSource
from limner.wire import Hit, Item

_COLUMNS = ("id", *FIELDS)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Vectors and columns of a store, ordered by path: among equal scores the lower row has the earlier path."""

    version: int
    vectors: Vectors
    columns: pa.Table
    # `version` may be that of the commit before: two servers of one store would call different rows by one name
    state: str = ""
    """Name of these rows by their contents, within one store: whoever reads the same rows has the same name."""
    table: tuple[str, str] = ("", "")
    """The store's id and the table's name: in another table the same numbers are of other rows."""

    @classmethod
    def read(cls, table: Table, version: int, dim: int, before: "Snapshot | None" = None) -> "Snapshot":
        """Read the rows as they are now, at this version or a later one; vectors that `before` has are taken from it.

        Peak memory, of 100,000 × 512: 2.2 times the vectors, and 3.5 times with those of `before` and what LanceDB
        keeps. More than memory should hold are in a file (`limner.search.scratch`), to which what is new is added.
        Raises `StoreError` for a table that cannot be read, and where there is no room for the file.
        """
        # again as long as a commit between the reading of columns and vectors has taken rows away
        while True:
            rows = table.numbered((*_COLUMNS, DIGEST))
            # the rows of one commit, no more and no less; their bytes were compared before LanceDB read them
            total = column_sum(rows[DIGEST])
            table.expect(len(rows), total)
            rows = rows.drop_columns([DIGEST])
            columns = rows.take(pc.sort_indices(rows, [("path", "ascending")]))
            numbers = columns[ROW].to_numpy()
            no_rows = np.empty(0, np.int64)
            same, held = (no_rows, no_rows) if before is None else before.places_of(numbers)
            known = None if before is None else before.vectors
            fresh = np.delete(np.arange(len(numbers)), same)
            vectors = Vectors.following(known, dim, same, held, fresh)
            if table.fill(vectors.stored, vectors.places(fresh), numbers[fresh], "vector"):
                if known is not None:
                    vectors.take_codes(known, same, held)
                state = _state(len(rows), total)
                return cls(version, vectors, columns, state, (table.store, table.name))
            # so that the next try has the room of this one
            del vectors

    def places_of(
        self, numbers: UInt64[np.ndarray, " rows"]
    ) -> tuple[Int[np.ndarray, " same"], Int[np.ndarray, " same"]]:
        """Find which of some numbers of rows (`ROW`) are of rows here, and where those rows are."""
        row_numbers = self.columns[ROW].to_numpy()
        if not len(row_numbers):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        order = np.argsort(row_numbers)
        # searchsorted answers len(own) for a number above all of them; the comparison finds such rows out
        places = order[np.minimum(np.searchsorted(row_numbers, numbers, sorter=order), len(row_numbers) - 1)]
        same = np.flatnonzero(row_numbers[places] == numbers)
        return same, places[same]

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
        # half of the columns, in half of the time
        told = self.columns.select(TOLD).take(pa.array(rows, pa.int64()))
        return [item_values(row) for row in told.to_pylist()]

    # each is made when somebody asks for it: a search needs no list of 100,000 strings. cached_property writes past
    # `frozen` into __dict__, so this class cannot have slots
    @cached_property
    def keys(self) -> list[str]:
        """Keys of the images, row by row."""
        keys: list[str] = self.columns["id"].to_pylist()
        return keys

    @cached_property
    def places(self) -> dict[str, int]:
        """The row of each key, for whoever looks for many; `row` finds one."""
        return {key: row for row, key in enumerate(self.keys)}

    def row(self, key: str) -> int | None:
        """The row of a key; None if no row has it."""
        # in Arrow, 20 ms for two million: a dict of so many would take a second and 200 MB
        found: int = pc.index(self.columns["id"], key).as_py()
        return None if found < 0 else found

    def keys_of(self, rows: Int[np.ndarray, " some"]) -> list[str]:
        """Keys of some rows, in the order given."""
        keys: list[str] = self.columns["id"].take(pa.array(rows, pa.int64())).to_pylist()
        return keys

    def rows_of(self, image: ImageSource | None) -> list[int]:
        """Rows of the images whose file this is, by its content; [] for an image that is no file."""
        if isinstance(image, str | Path):
            with Path(image).open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        elif isinstance(image, bytes):
            digest = hashlib.sha256(image).hexdigest()
        else:
            return []
        # in Arrow: a Python list of a million digests would take a second
        same = pc.index_in(self.columns["sha256"], value_set=pa.array([digest]))
        return np.flatnonzero(~np.asarray(pc.is_null(same))).tolist()

    @cached_property
    def _every(self) -> Int[np.ndarray, " rows"]:
        rows = np.arange(len(self.vectors))
        # all queries without conditions share it
        rows.flags.writeable = False
        return rows

    @cached_property
    def identities(self) -> list[str | None]:
        """Identities of the images, row by row."""
        identities: list[str | None] = self.columns["identity"].to_pylist()
        return identities

    @cached_property
    def metadata(self) -> MetadataIndex:
        """The metadata that conditions are tested against."""
        return MetadataIndex(self.columns)

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
            taken = self.columns["taken"].to_numpy()
            if after is not None:
                # NaT is neither before nor after: images without a time are left out. Cameras have no zone
                holds &= taken >= np.datetime64(after.replace(tzinfo=None))
            if before is not None:
                holds &= taken < np.datetime64(before.replace(tzinfo=None))
        return np.flatnonzero(holds)


def without(rows: Int[np.ndarray, " rows"], some: Sequence[int]) -> Int[np.ndarray, " left"]:
    """Leave some rows out of rows in ascending order."""
    # numpy's `isin` would compare each row
    places = np.searchsorted(rows, some)
    there = places[
        [place < len(rows) and rows[place] == row for place, row in zip(places, some, strict=True)]
    ]
    return np.delete(rows, there) if len(there) else rows


def _state(rows: int, total: tuple[int, int]) -> str:
    # a digest of the sum: clients get it, and a sum of one row would be that row's digest
    return hashlib.blake2b(f"{rows} {total}".encode(), digest_size=8).hexdigest()


def check_time(until: float | None) -> None:
    """Raise `SearchTimeoutError` after a time of `time.monotonic()`; None = no limit."""
    if until is not None and time.monotonic() > until:
        raise SearchTimeoutError(
            "the search took longer than it may; re-rank fewer, give fewer conditions, or try again"
        )
