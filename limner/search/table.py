"""One LanceDB table of a store's folder: its rows by key, and changes of one commit each.

A reader sees all of a change or nothing of it, also after the writer was killed. One process writes at a time, a second
one is refused; any number may read. What is read must be what the record of commits says (`limner.search.commits`).
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float, Int, UInt64

from limner.errors import StoreError, UnknownPictureError
from limner.search.commits import Commits, Record, State, column_sum, files_of
from limner.search.integrity import Integrity, number_of, reason_of
from limner.search.lancedb_import import lancedb, session
from limner.search.lock import Lease, WriterLock
from limner.search.row_digests import DIGEST, with_digests
from limner.search.store_path import StorePath, cause_of, reached, storage_options

ROW = "_rowid"
"""LanceDB's number of a row. A row that changes, or that compacting moves, gets a new one; none is given twice."""

_BLOCK = 8192  # rows read at once
_KEPT = timedelta(days=1)  # old versions: a search that began at one ends long before
_FOR_EVER = timedelta(days=36_500)  # no version is as old
_TRIES = 20  # of a comparison with the record that a writer may disturb
_PAUSE = 0.05  # seconds between two of them
_FEW = 1024  # keys that are always looked up
_MANY = 4  # if one row in four or more is looked up, the table is read from first to last

_FILES = 64
"""Number of a table's files, beside the square root of its rows, from which compacting pays for the readers."""

_NEWS = 8
"""Number of a table's files below which nothing is joined."""

_LARGEST = 2**20
"""Rows from which LanceDB leaves a file as it is."""


class Table:
    """A table with a column `id`; the first rows that are written make it."""

    def __init__(
        self, folder: StorePath, name: str, schema: pa.Schema, lock: WriterLock | Lease, store: str = ""
    ) -> None:
        self.folder = folder
        self.schema = schema
        self._lock = lock
        self.reopen(name, store)

    def reopen(self, name: str, store: str = "") -> None:
        """Forget the open table, and go on with that of another name, or with another store's in the same folder.

        `store`: id of the store, which the record must name.
        """
        self.name, self.store = name, store
        self.begun = False
        """True if the manifest says that the table has been made; whoever reads that sets it."""
        self.commits = Commits(self.folder, name, store)
        self.integrity = Integrity(self.folder, name, self.schema, self.commits)
        self._compared_at: tuple[tuple[int, ...] | None] | None = None
        self._opened: Any = None
        self._connection: Any = None

    @property
    def _path(self) -> StorePath:
        return self.folder / f"{self.name}.lance"

    @property
    def _database(self) -> Any:
        """LanceDB's handle of the folder, imported and created when a table is first used."""
        if self._connection is None:
            # without the interval of 0 a handle would not see what another process has added
            self._connection = lancedb().connect(
                str(self.folder),
                read_consistency_interval=timedelta(0),
                storage_options=storage_options(self.folder),
                session=session(),
            )
        return self._connection

    def opened(self, *, afresh: bool = False) -> Any:
        """LanceDB's own handle, or None as long as nothing has been added. Raises `StoreError` for a damaged table.

        If there was a commit since the last call, the table is compared with the record: its files before LanceDB reads
        them, then version and number of rows. `afresh`: always, and all files again, for whoever reads many rows.
        """
        stamp = self.commits.stamp(self._path)
        # an object storage compares the files itself
        afresh = afresh and isinstance(self._path, Path)
        if not afresh and self._compared_at == (stamp,) and (stamp is not None or self._opened is not None):
            return self._opened
        looked_at: object = self
        for left in reversed(range(_TRIES)):
            stamp = self.commits.stamp(self._path)
            try:
                # not the attribute is returned: another thread may have forgotten it meanwhile
                self._opened = table = self._compared(stamp, afresh)
                return table
            except StoreError:
                # damage stays as it is; a writer that commits changes the stamp, but not on an object storage
                again = stamp == looked_at and isinstance(self.folder, Path)
                if (again or not left) and stamp == self.commits.stamp(self._path):
                    raise
            looked_at = stamp
            time.sleep(_PAUSE)
        raise self._damaged("it changes faster than it can be read")

    def _compared(self, stamp: tuple[int, ...] | None, afresh: bool) -> Any:
        record = self.commits.read()
        there = self.is_there()
        if record is None:
            if there:
                raise self._damaged(f"{self.commits.path.name} is gone")
            if self.begun:
                raise self._damaged(f"its files and {self.commits.path.name} are gone")
            self._compared_at = (stamp,)
            return None
        if not there:
            if record.done.rows or record.done.version:
                raise self._damaged("its files are gone")
            return None
        self.integrity.expect_files(record, afresh=afresh)
        table = self._opened
        with self.integrity.readings():
            if table is None:
                table = self._database.open_table(self.name)
                # a folder whose manifest was exchanged would otherwise fail far from here, with a message of Arrow's
                if not table.schema.equals(self.schema):
                    raise self._damaged("it has other columns than the store's manifest says")
            version, rows = int(table.version), int(table.count_rows())
        known = [state.rows for state in record.states[: 1 if record.pending is None else 2]]
        if version < record.done.version:
            raise self._damaged(f"version {version} is the newest, {record.done.version} is lost")
        if rows not in known or (version > record.done.version and record.pending is None):
            raise self._damaged(f"it has {rows} rows, its last commit left {record.done.rows}")
        self.integrity.expect_pending(record, table, stamp)
        self._compared_at = (stamp,)
        return table

    def states(self) -> tuple[State, ...]:
        """States that rows which are read now may be in."""
        return (self.commits.read() or Record()).states

    def record(self) -> Record | None:
        """The record of its commits; None without a sound one."""
        try:
            return self.commits.read()
        except StoreError:
            return None

    def is_last(self, rows: int, total: tuple[int, int]) -> bool:
        """True for the rows of the last commit, by number and sum of digests; False also without a sound record."""
        try:
            record = self.commits.read()
        except StoreError:
            return False
        if record is None:
            return not self.begun and not rows
        return any(state.holds(rows, total) for state in record.last)

    def expect_rows(self, rows: pa.Table) -> None:
        """Compare rows with their digests, for whoever copies them. Raises `StoreError` for one that is damaged."""
        self.integrity.expect_rows(rows)

    def expect_sound(self) -> None:
        """Compare all rows with their digests, for whoever copies what they say. Raises `StoreError`."""
        if (table := self.opened(afresh=True)) is not None:
            self.integrity.expect_sound(table)

    def expect(self, rows: int, total: tuple[int, int], known: Sequence[State] = ()) -> None:
        """Compare rows that were read, by number and sum of digests, with the record. Raises `StoreError`.

        `known`: earlier states, if the reading takes as long as many commits.
        """
        if not any(state.holds(rows, total) for state in (*self.states(), *known)):
            raise self._damaged(f"its {rows} rows are not those of a commit")

    @contextmanager
    def _committing(self, before: State, after: State, *, copies: bool = False) -> Iterator[None]:
        """Record a commit as pending, and as done when the block has ended without an error.

        If it `copies` rows, they are compared with their digests first; if one is damaged, it stays pending.
        """
        record = (self.commits.read() or Record()).begun(after)
        with reached(self.folder):
            self.commits.write(record)
            yield
            table = self.opened_unchecked()
            done = replace(after, version=int(table.version), files=files_of(self._path, before.files))
            if copies:
                # behind the checksums: bytes that are damaged between the two have another checksum
                self.integrity.expect_sound(table)
            self.commits.write(record.ended(done))

    def opened_unchecked(self) -> Any:
        """LanceDB's handle without any comparison; for writers in a commit, and for repairs."""
        if self._opened is None and self.is_there():
            with self.integrity.readings():
                self._opened = self._database.open_table(self.name)
        return self._opened

    def settle(self) -> None:
        """End the commit of a writer that was killed. Raises `StoreError` for damaged rows, which stay as they are."""
        record = self.commits.read()
        if record is not None and record.pending is not None:
            with self._lock.held(), self._refusals():
                self.opened()
                self._settled()

    def _settled(self) -> State:
        """The state that the table is in; that of a writer that was killed is looked up. The lock is held."""
        record = self.commits.read() or Record()
        if record.pending is None:
            return record.done
        table = self.opened_unchecked()
        if table is None:
            return record.done
        with self.integrity.readings():
            version = int(table.version)
            digests = table.search().select([DIGEST]).to_arrow()[DIGEST]
        found = (len(digests), column_sum(digests))
        for state in (record.pending, record.done):
            if state.holds(*found):
                # checksums first, then the rows: bytes that are damaged between the two have another checksum
                done = replace(state, version=version, files=files_of(self._path, record.done.files))
                self.integrity.expect_sound(table)
                self.commits.write(Record(done, None, record.before))
                return done
        raise self._damaged(f"its {found[0]} rows are not those of a commit")

    def _damaged(self, reason: str) -> StoreError:
        return self.integrity.damaged(reason)

    @property
    def version(self) -> int:
        """Grows with each commit; 0 = there is no table yet."""
        table = self.opened()
        with self.integrity.readings():
            return 0 if table is None else int(table.version)

    def __len__(self) -> int:
        table = self.opened()
        with self.integrity.readings():
            return 0 if table is None else int(table.count_rows())

    def merge(self, rows: pa.Table) -> None:
        """Add rows, or replace those of the same key, in one commit. Their digests are computed here."""
        rows = with_digests(rows, self.schema)
        with self._lock.held(), self._refusals():
            self.opened()
            before = self._settled()
            # nothing is copied of the rows that stay, so of new keys nobody asks whether a damaged one hides there
            replaced = self._found(rows["id"].to_pylist(), [DIGEST])[DIGEST].to_pylist()
            after = before.after(rows[DIGEST].to_pylist(), replaced)
            with self._committing(before, after):
                table = self.opened_unchecked()
                if table is None:
                    table = self._database.create_table(
                        self.name, schema=self.commits.owned(self.schema), exist_ok=True
                    )
                    self._opened = table
                # new and old rows in one merge: deleting and adding would be two commits, with a reader between them
                merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
                merge.execute(rows)

    def delete(self, values: Sequence[str], column: str = "id") -> int:
        """Remove the rows of some keys, or values of another column, in one commit, and return how many there were."""
        if not values:
            return 0
        with self._lock.held(), self._refusals():
            # afresh: a row whose key is damaged would stay, and nobody would know of it
            if (table := self.opened(afresh=True)) is None:
                return 0
            before = self._settled()
            where = f"{column} IN ({_quoted(values)})"
            removed = table.search().where(where).select([DIGEST]).to_arrow()[DIGEST].to_pylist()
            # a commit that changes nothing would be one more version all the same
            if removed:
                with self._committing(before, before.after([], removed)):
                    table.delete(where)
            return len(removed)

    def create(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Make the table of these rows, with the digests that they have, in one commit and on the disk."""
        digests: list[bytes] = []
        failed: list[BaseException] = []

        def watched() -> Iterator[pa.RecordBatch]:
            try:
                for batch in batches:
                    digests.extend(batch.column(DIGEST).to_pylist())
                    yield batch
            except BaseException as error:
                # LanceDB would make a text of it
                failed.append(error)
                raise

        with self._lock.held(), self._refusals():
            reader = pa.RecordBatchReader.from_batches(self.schema, watched())
            try:
                table = self._database.create_table(self.name, reader, schema=self.commits.owned(self.schema))
            except Exception as error:
                raise (failed or [error])[0] from None
            state = replace(State().after(digests, []), version=int(table.version))
            self.commits.write(Record(replace(state, files=files_of(self._path, {}))))

    def compact(self) -> None:
        """Join the small files that many commits leave.

        Versions that are older than a day are released; a reader that still reads one must ask again.
        """
        with self._lock.held(), self._refusals():
            if (table := self.opened(afresh=True)) is not None:
                # LanceDB joins and releases in one call and does not wait for the disk, so a power cut could take the
                # old files and the new ones. The first call releases nothing. For the second nothing is left to join;
                # it is a commit as well, since the record of the first names files that it removes
                for kept in (_FOR_EVER, _KEPT):
                    before = self._settled()
                    with self._committing(before, before.after([], []), copies=kept is _FOR_EVER):
                        table.optimize(cleanup_older_than=kept)

    def tidy(self) -> None:
        """Compact where that pays: rows are written again about once for each doubling of the table."""
        with self.integrity.readings():
            pays = (table := self.opened()) is not None and _pays(table.stats())
        if pays:
            self.compact()

    def all(self, columns: Sequence[str]) -> pa.Table:
        """Some columns of all rows."""
        table = self.opened(afresh=True)
        if table is None:
            return self.schema.empty_table().select(list(columns))
        with self.integrity.readings():
            return table.search().select(list(columns)).to_arrow()

    def numbered(self, columns: Sequence[str]) -> pa.Table:
        """Some columns of all rows, and `ROW`: a number that no row of other contents ever has."""
        table = self.opened(afresh=True)
        if table is None:
            return (
                self.schema.empty_table().select(list(columns)).append_column(ROW, [np.empty(0, np.uint64)])
            )
        with self.integrity.readings():
            return table.search().select(list(columns)).with_row_id(True).to_arrow()

    def fill(
        self,
        matrix: Float[np.ndarray, "rows dim"],
        places: Int[np.ndarray, " some"],
        numbers: UInt64[np.ndarray, " some"],
        column: str,
    ) -> bool:
        """Write the vectors of rows with these numbers into these places; False if one is no longer there."""
        table = self.opened()
        # sorted, because the answer comes in an order of its own and each row is looked up by its number
        order = np.argsort(numbers)
        places, numbers = places[order], numbers[order]
        for start in range(0, len(numbers), _BLOCK):
            block = numbers[start : start + _BLOCK]
            with self.integrity.readings():
                found = table.take_row_ids(block.tolist()).select([column]).with_row_id().to_arrow()
            # a commit has taken rows away since their numbers were read
            if len(found) != len(block):
                return False
            block_places = places[start : start + _BLOCK][np.searchsorted(block, found[ROW].to_numpy())]
            matrix[block_places] = matrix_of(found[column], matrix.shape[1])
        return True

    def batches(self, columns: Sequence[str], size: int) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows, at most `size` rows at a time, of one version of the table.

        Raises `StoreError` for rows that cannot be read.
        """
        table = self.opened(afresh=True)
        if table is None:
            return
        with self.integrity.readings():
            reader = table.search().select(list(columns)).to_batches(batch_size=size)
        while True:
            # here, too: a damaged file shows when its rows are read, not when the reader is made
            with self.integrity.readings():
                batch = next(reader, None)
            if batch is None:
                return
            yield batch

    def rows(self, ids: Sequence[str], columns: Sequence[str]) -> pa.Table:
        """Keys and some columns of the rows that exist, in no order.

        Raises `StoreError` for a row that is damaged, and if a key is not found in a table that is.
        """
        found = self._found(ids, columns)
        # a damaged key looks like one that is not there
        if len(found) < len(set(ids)):
            self.opened(afresh=True)
        return found

    def _found(self, ids: Sequence[str], columns: Sequence[str]) -> pa.Table:
        """The rows that `rows` returns; of a key that is not found nothing says why."""
        table = self.opened()
        names = ["id", *(name for name in columns if name != "id")]
        if table is None or not ids:
            return self.schema.empty_table().select(names)
        # keys alone need no comparison: they are those that were asked for. With other columns the facts are read as
        # a whole, which costs less for few rows than reading the files again
        read = names if names == ["id"] else self.integrity.columns(names)
        with self.integrity.readings():
            found = table.search().where(f"id IN ({_quoted(ids)})").select(read).to_arrow()
            if names != ["id"]:
                self.integrity.expect_rows(found)
        return found.select(names)

    def in_order(self, ids: Sequence[str], columns: Sequence[str]) -> pa.Table:
        """Keys and some columns of rows by their keys, in order. Raises `UnknownPictureError` for others."""
        # keys in SQL are compared with every row: for a large share of the table that takes longer than reading it
        few = len(ids) <= _FEW or len(ids) * _MANY < len(self)
        found = self.rows(ids, columns) if few else self.all(["id", *columns])
        # LanceDB answers in the order of its files
        places = pc.index_in(pa.array(ids, pa.string()), value_set=found["id"].combine_chunks())
        if places.null_count:
            raise self.unknown(ids[places.is_null().index(True).as_py()])
        return found.take(places)

    def unknown(self, key: str) -> UnknownPictureError:
        """Make the error for a key that is not there."""
        return UnknownPictureError(f"{self.folder}: does not hold {key}; search again")

    def is_foreign(self, schema: pa.Schema) -> bool:
        """True if rows that were read with this schema are those of another store or generation."""
        return self.commits.is_foreign(schema)

    def is_there(self) -> bool:
        """True if the table has been made; nothing is compared."""
        versions = self._path / "_versions"
        with reached(self.folder, "read"):
            # a create that was killed leaves the folder of a table without a version
            return versions.is_dir() and any(one.name.endswith(".manifest") for one in versions.iterdir())

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Turn LanceDB's errors for a full or read-only disk into `StoreError`."""
        try:
            yield
        # only these: a ValueError of a merge would be a bug of ours, and keeps its stack trace
        except (OSError, RuntimeError) as error:
            trouble, _ = cause_of(number_of(error))
            raise StoreError(f"{self.folder}: cannot be written ({reason_of(error)})", trouble) from None


def _pays(stats: Mapping[str, Any]) -> bool:
    """Decide by LanceDB's statistics of a table whether to compact it.

    A compaction writes all rows again that are in files of less than a million. So it waits until as many rows have
    come as the largest file has, or until the files are many: each of them is opened by every reader.
    """
    rows, files = stats["num_rows"], stats["fragment_stats"]
    small, largest = files["num_small_fragments"], files["lengths"]["max"]
    many = small >= _FILES + math.isqrt(min(rows, _LARGEST))
    # of a table of several large files nobody can tell how many rows have come since
    doubled = rows < _LARGEST and small >= _NEWS and rows >= 2 * largest
    return bool(many or doubled)


def matrix_of(column: pa.ChunkedArray, dim: int) -> Float[np.ndarray, "images dim"]:
    """A column of vectors as one matrix, a row each."""
    if not len(column):
        return np.empty((0, dim), column.type.value_type.to_pandas_dtype())
    rows: Float[np.ndarray, "images dim"] = (
        # through the flat buffer: to_pylist would make a Python object of each number
        pa.concat_arrays(column.chunks).flatten().to_numpy().reshape(-1, dim)
    )
    return rows


def with_vectors(table: pa.Table, field: pa.Field, vectors: Float[np.ndarray, "rows ..."]) -> pa.Table:
    """The table with a further column of one vector a row."""
    flat = pa.array(np.ascontiguousarray(vectors).ravel())
    return table.append_column(field, pa.FixedSizeListArray.from_arrays(flat, field.type.list_size))


def _quoted(ids: Sequence[str]) -> str:
    """Keys as a list in SQL."""
    # sentences are deleted by path, and a path may hold quotes
    return ", ".join("'" + one.replace("'", "''") + "'" for one in ids)
