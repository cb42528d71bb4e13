"""The rows of a store in one SQLite file, the usual engine.

    STORE/store.sqlite        texts, images, vectors, thumbnails, region features, sentences
    STORE/store.sqlite-wal    what has been committed and is not yet in it; SQLite makes, reads and removes it
    STORE/store.sqlite-shm    the index of that, for all processes that have the store open
    STORE/store.commits       the number of commits: a file or a log that is older is one that was put back or damaged

SQLite keeps what a store promises: a commit is whole or not there after a kill or a power cut (a write-ahead log,
`synchronous=FULL`), readers have their moment beside a writer, values may be of any size, and a damaged file is an
error. What it does not see, a bit that changes within a value, the digests of the rows show.

A change is one transaction, which begins with its first row: vectors, thumbnails and region features are on their way
to the disk at once. Each thread reads by a connection of its own.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from limner.durable import sync
from limner.errors import DataError, StoreError, StoreTrouble
from limner.store.digests import SIZE, row_digest, total_of, total_without, vector_sums
from limner.store.entry import StoredImage
from limner.store.path import cause_of
from limner.store.rows import (
    Picture,
    PictureRow,
    SentenceRow,
    State,
    contents_of,
    picture_row,
    same_contents,
)

FILE = "store.sqlite"
"""Name of the file in the store's folder."""

COMMITS = "store.commits"
"""Name of the file with the number of commits."""

PARTIAL = f".{FILE}.partial"
"""Its name while it is made."""

ENDINGS = ("", "-wal", "-shm")
"""Endings of the names of SQLite's files."""

_PAGE = 16384
"""Bytes of a page: of vectors of 512 numbers it holds seven, where one of SQLite's own 4,096 holds one."""

_WAIT = 30.0
"""Seconds that SQLite waits for another process which holds a file for a moment."""

_AT_ONCE = 500  # keys in one statement
_BLOCK = 8192  # vectors that are read at once
_MANY = 4  # if one vector in four or more is wanted, all are read from first to last

_PICTURE = ", ".join(PictureRow._fields)
_SENTENCE = ", ".join(SentenceRow._fields)

_SCHEMA = """
CREATE TABLE texts (name TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE states (name TEXT PRIMARY KEY, version INTEGER NOT NULL, rows INTEGER NOT NULL, total BLOB NOT NULL)
  WITHOUT ROWID;
CREATE TABLE pictures (id TEXT PRIMARY KEY, path TEXT NOT NULL, sha256 TEXT NOT NULL, size INTEGER NOT NULL,
  mtime INTEGER NOT NULL, taken INTEGER, identity TEXT, metadata TEXT NOT NULL, number INTEGER NOT NULL,
  vector_sum INTEGER NOT NULL, thumbnail_digest BLOB, regions_digest BLOB, digest BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE vectors (number INTEGER PRIMARY KEY AUTOINCREMENT, vector BLOB NOT NULL);
CREATE TABLE thumbnails (number INTEGER PRIMARY KEY, jpeg BLOB NOT NULL);
CREATE TABLE regions (number INTEGER PRIMARY KEY, features BLOB NOT NULL);
CREATE TABLE sentences (id TEXT PRIMARY KEY, text TEXT NOT NULL, path TEXT, vector_sum INTEGER NOT NULL,
  digest BLOB NOT NULL, vector BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX sentences_by_path ON sentences (path);
INSERT INTO states VALUES ('pictures', 0, 0, zeroblob(16)), ('sentences', 0, 0, zeroblob(16)),
  ('texts', 0, 0, zeroblob(16));
"""


class SqliteRows:
    """Rows in `FILE` of a folder; see `limner.store.rows.Rows`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / FILE
        # of each thread that reads, with what it is of: SQLite has one moment for a connection
        self._held: dict[int, tuple[tuple[int, ...], sqlite3.Connection]] = {}

    @classmethod
    def create(cls, folder: Path, texts: dict[str, str]) -> "SqliteRows":
        """Make a store without rows, as a whole or not at all. Raises `StoreError`."""
        partial = folder / PARTIAL
        with _told(folder):
            partial.unlink(missing_ok=True)
            with closing(sqlite3.connect(partial, isolation_level=None)) as made:
                made.execute(f"PRAGMA page_size={_PAGE}")
                made.execute("PRAGMA journal_mode=MEMORY")
                made.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
                made.executemany("INSERT INTO texts VALUES (?, ?)", texts.items())
                # the name stays in the file: whoever opens it has a write-ahead log
                made.execute("PRAGMA journal_mode=WAL")
            partial.replace(folder / FILE)
            sync(folder)
        return cls(folder)

    def identity(self) -> tuple[object, ...]:
        """See `Rows.identity`."""
        with self._reading_connection() as connection:
            # the file, too: another store may have taken the folder, with as many commits
            (store,) = connection.execute("SELECT text FROM texts WHERE name='id'").fetchone()
            found = connection.execute("SELECT version FROM states ORDER BY name")
            return store, *self._place()[1:], *(version for (version,) in found)

    def text(self, name: str) -> str | None:
        """See `Rows.text`."""
        with self.reading() as reading:
            return reading.text(name)

    def set_text(self, name: str, text: str | None) -> None:
        """See `Rows.set_text`."""
        with self._writing_connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM texts WHERE name=?", (name,))
            if text is not None:
                connection.execute("INSERT INTO texts VALUES (?, ?)", (name, text))
            connection.execute("UPDATE states SET version = version + 1 WHERE name='texts'")
            _commit(connection, self.folder)

    @contextmanager
    def reading(self) -> Iterator["SqliteReading"]:
        """See `Rows.reading`."""
        with self._reading_connection() as connection:
            # one within another reads the same moment
            nested = connection.in_transaction
            if not nested:
                # before the moment is chosen: a commit in between makes what is read newer than this, never older
                done = _commits(self.folder)
                connection.execute("BEGIN")
            try:
                if not nested and _versions(connection) < done:
                    raise _damaged(self.folder, f"it is older than its last commit, number {done}")
                yield SqliteReading(self.folder, connection)
            finally:
                if not nested:
                    with suppress(sqlite3.Error):
                        connection.rollback()

    def begin(self) -> "SqliteWriting":
        """See `Rows.begin`."""
        return SqliteWriting(self.folder, self._connect(write=True))

    def scrub(self) -> None:
        """Write the file anew without what was deleted, and take it out of the write-ahead log.

        Deleted values are overwritten with zeros at once (`secure_delete`). But where SQLite moves a row from one page
        to another, a copy may stay behind in the unused part of the first, which VACUUM alone is sure to leave out.
        """
        with self._writing_connection() as connection:
            connection.execute("VACUUM")
            (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                raise StoreError(
                    f"{self.folder}: another process has been reading for {_WAIT:g} s what is to be erased; call it "
                    "again when that is done"
                )
        # SQLite waits for the disk before the log is cut off, not after it: a power cut could bring it back
        with _told(self.folder):
            for place in (Path(f"{self.path}-wal"), self.folder):
                if place.exists():
                    sync(place)

    def faults(self) -> list[str]:
        """See `Rows.faults`."""
        try:
            with self._reading_connection() as connection:
                found = [str(line) for (line,) in connection.execute("PRAGMA integrity_check(10)")]
        except StoreError as error:
            return [str(error)]
        return [] if found == ["ok"] else found

    def copy(self, folder: Path) -> None:
        """See `Rows.copy`."""
        with self._reading_connection() as connection, _told(folder):
            with closing(sqlite3.connect(folder / FILE)) as target:
                # in one step, so that a writer cannot make it begin again
                connection.backup(target)
            sync(folder)

    def changed_at(self) -> float | None:
        """See `Rows.changed_at`."""
        with self.reading() as reading:
            if not any(reading.state(table).version for table in ("pictures", "sentences")):
                return None
        # the log is as new as its last commit, and gone when the last process has closed the store
        times = [Path(f"{self.path}{ending}") for ending in ("", "-wal")]
        with _told(self.folder):
            return max(path.stat().st_mtime for path in times if path.exists())

    def close(self) -> None:
        """See `Rows.close`."""
        held, self._held = self._held, {}
        for _, connection in held.values():
            # one that another thread reads by just now ends its reading with an error, which is tried again
            with suppress(sqlite3.Error):
                connection.close()

    def _forget(self) -> None:
        held = self._held.pop(threading.get_ident(), None)
        if held is not None:
            with suppress(sqlite3.Error):
                held[1].close()

    @contextmanager
    def _reading_connection(self) -> Iterator[sqlite3.Connection]:
        """The connection by which this thread reads."""
        with _told(self.folder):
            thread = threading.get_ident()
            try:
                now = self._place()
            except OSError:
                # or the disk could not be unmounted, nor mounted again
                self.close()
                raise
            held = self._held.get(thread)
            # after a fork a connection is another process's, and another file of this name is another store
            if held is None or held[0] != now:
                self._forget()
                held = now, self._connect(write=False)
                self._held[thread] = held
            connection = held[1]
            try:
                yield connection
            except sqlite3.Error:
                # what an error has left of its state is not known
                self._forget()
                raise

    def _place(self) -> tuple[int, ...]:
        status = self.path.stat()
        return os.getpid(), status.st_dev, status.st_ino

    @contextmanager
    def _writing_connection(self) -> Iterator[sqlite3.Connection]:
        with _told(self.folder), closing(self._connect(write=True)) as connection:
            yield connection

    def _connect(self, *, write: bool) -> sqlite3.Connection:
        with _told(self.folder):
            # `sqlite3.connect` of a file that is gone would make an empty one
            self.path.stat()
            uri = f"{self.path.absolute().as_uri()}?mode={'rw' if write else 'ro'}"
            connection = sqlite3.connect(uri, _WAIT, uri=True, isolation_level=None, check_same_thread=False)
            try:
                self._prepare(connection, write=write)
            except sqlite3.OperationalError as error:
                connection.close()
                wal = Path(f"{self.path}-wal")
                # a folder that may not be written has no place for the log's index; without a log it needs none
                if write or error.sqlite_errorcode not in _NO_INDEX or (wal.exists() and wal.stat().st_size):
                    raise
                connection = sqlite3.connect(f"{uri}&immutable=1", uri=True, isolation_level=None)
                self._prepare(connection, write=False)
            return connection

    def _prepare(self, connection: sqlite3.Connection, *, write: bool) -> None:
        # a text that is damaged is read as well: its digest tells
        connection.text_factory = _text
        # a row that does not fit its page is an error, not a reading of what lies behind it
        connection.execute("PRAGMA cell_size_check=ON")
        # the first look at the file: one that is no database is told here
        connection.execute("SELECT count(*) FROM texts").fetchone()
        if write:
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA secure_delete=ON")
            # pages of a change in memory, 64 MB
            connection.execute("PRAGMA cache_size=-65536")


class SqliteReading:
    """All rows at one moment, see `limner.store.rows.Reading`."""

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        self._folder, self._connection = folder, connection

    def text(self, name: str) -> str | None:
        """One of the texts of that moment."""
        found = self._connection.execute("SELECT text FROM texts WHERE name=?", (name,)).fetchone()
        return None if found is None else str(found[0])

    def state(self, table: str) -> State:
        """See `Reading.state`."""
        return _state(self._connection, self._folder, table)

    def pictures(self, ids: Sequence[str] | None = None) -> Iterator[PictureRow]:
        """See `Reading.pictures`."""
        if ids is None:
            return map(PictureRow._make, self._connection.execute(f"SELECT {_PICTURE} FROM pictures"))
        found = _of_some(self._connection, f"SELECT {_PICTURE} FROM pictures WHERE id IN", ids)
        return map(PictureRow._make, found)

    def sentences(self) -> Iterator[tuple[SentenceRow, bytes]]:
        """See `Reading.sentences`."""
        for *values, vector in self._connection.execute(f"SELECT {_SENTENCE}, vector FROM sentences"):
            yield SentenceRow._make(values), vector

    def vectors(
        self, numbers: Int[np.ndarray, " some"]
    ) -> Iterator[tuple[Int[np.ndarray, " block"], list[bytes]]]:
        """See `Reading.vectors`."""
        if not len(numbers):
            return
        order = np.argsort(numbers)
        ascending = numbers[order]
        if _MANY * len(numbers) >= self.state("pictures").rows:
            found: Iterator[tuple[int, bytes]] = self._connection.execute(
                "SELECT number, vector FROM vectors"
            )
        else:
            select = "SELECT number, vector FROM vectors WHERE number IN"
            found = _of_some(self._connection, select, ascending.tolist())
        left = len(numbers)
        while block := [row for _, row in zip(range(_BLOCK), found, strict=False)]:
            read = np.fromiter((number for number, _ in block), np.int64, len(block))
            places = np.minimum(np.searchsorted(ascending, read), len(ascending) - 1)
            wanted = ascending[places] == read
            left -= int(wanted.sum())
            yield order[places[wanted]], [block[row][1] for row in np.flatnonzero(wanted).tolist()]
        if left:
            raise _damaged(self._folder, f"{left} of its vectors are gone")

    def thumbnails(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """See `Reading.thumbnails`."""
        return dict(
            _of_some(self._connection, "SELECT number, jpeg FROM thumbnails WHERE number IN", numbers)
        )

    def regions(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """See `Reading.regions`."""
        return dict(
            _of_some(self._connection, "SELECT number, features FROM regions WHERE number IN", numbers)
        )


class SqliteWriting:
    """One change, see `limner.store.rows.Writing`."""

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        self._folder, self._connection = folder, connection
        self.pending = 0
        self._states: dict[str, State] = {}

    def add(self, pictures: Sequence[Picture]) -> None:
        """See `Writing.add`."""
        with self._changing("pictures") as connection:
            self._remove([picture.image.id for picture in pictures])
            (number,) = connection.execute(
                "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name='vectors'"
            ).fetchone()
            numbers = range(number + 1, number + 1 + len(pictures))
            sums = vector_sums(np.stack([one.vector for one in pictures])) if pictures else []
            contents = [contents_of(one) for one in pictures]
            connection.executemany(
                "INSERT INTO vectors VALUES (?, ?)",
                zip(numbers, (content[0] for content in contents), strict=True),
            )
            for place, table in ((1, "thumbnails"), (2, "regions")):
                held = [(n, one[place]) for n, one in zip(numbers, contents, strict=True) if one[place]]
                connection.executemany(f"INSERT INTO {table} VALUES (?, ?)", held)
            rows = [
                picture_row(picture.image, number, vector_sum, content[1:])
                for picture, number, vector_sum, content in zip(
                    pictures, numbers, sums, contents, strict=True
                )
            ]
            self._insert(rows)
            self.pending += sum(len(part or b"") for content in contents for part in content)

    def update(self, images: Sequence[StoredImage]) -> None:
        """See `Writing.update`."""
        with self._changing("pictures"):
            ids = [image.id for image in images]
            before = {row.id: row for row in SqliteReading(self._folder, self._connection).pictures(ids)}
            if gone := set(ids) - before.keys():
                raise _damaged(self._folder, f"the row of {min(gone)} is gone")
            for row in before.values():
                # it must not get a digest that says that it is sound
                if row.digest != row_digest(row[:-1]):
                    raise _damaged(self._folder, f"the row of {row.id} is damaged")
            held = [before[one] for one in ids]
            self._forget([row.id for row in held])
            self._insert([same_contents(image, row) for image, row in zip(images, held, strict=True)])

    def delete(self, ids: Sequence[str]) -> int:
        """See `Writing.delete`."""
        with self._changing("pictures"):
            paths = [row.path for row in SqliteReading(self._folder, self._connection).pictures(ids)]
            # also the sentences of a picture whose row is no longer there cannot be told whose they are
            self.delete_sentences(paths=paths)
            return self._remove(ids)

    def add_sentences(
        self, sentences: Sequence[tuple[str, str, str | None]], vectors: Float[np.ndarray, "sentences dim"]
    ) -> None:
        """See `Writing.add_sentences`."""
        with self._changing("sentences") as connection:
            rows = [
                (*sentence, vector_sum)
                for sentence, vector_sum in zip(sentences, vector_sums(vectors), strict=True)
            ]
            digests = [row_digest(row) for row in rows]
            connection.executemany(
                f"INSERT INTO sentences ({_SENTENCE}, vector) VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (*row, digest, vector.tobytes())
                    for row, digest, vector in zip(
                        rows, digests, np.ascontiguousarray(vectors, "<f4"), strict=True
                    )
                ],
            )
            self._count("sentences", digests, [])

    def delete_sentences(self, ids: Sequence[str] = (), paths: Sequence[str] = ()) -> int:
        """See `Writing.delete_sentences`."""
        with self._changing("sentences") as connection:
            by_id = list(_of_some(connection, "SELECT id, digest FROM sentences WHERE id IN", ids))
            by_path = _of_some(connection, "SELECT id, digest FROM sentences WHERE path IN", paths)
            found = dict(chain(by_id, by_path))
            connection.executemany("DELETE FROM sentences WHERE id=?", [(one,) for one in found])
            self._count("sentences", [], list(found.values()))
            return len(found)

    def recount(self) -> None:
        """See `Writing.recount`."""
        for table in ("pictures", "sentences"):
            with self._changing(table) as connection:
                digests = [digest for (digest,) in connection.execute(f"SELECT digest FROM {table}")]
                self._states[table] = State(self._states[table].version, len(digests), total_of(digests))

    def commit(self) -> None:
        """See `Writing.commit`."""
        with _told(self._folder):
            if self._connection.in_transaction:
                self._connection.executemany(
                    "UPDATE states SET version=?, rows=?, total=? WHERE name=?",
                    [
                        (state.version + 1, state.rows, state.total.to_bytes(SIZE, "little"), name)
                        for name, state in self._states.items()
                    ],
                )
                _commit(self._connection, self._folder)
            self._states, self.pending = {}, 0

    def abandon(self) -> None:
        """See `Writing.abandon`."""
        self._states, self.pending = {}, 0
        with suppress(sqlite3.Error):
            self._connection.rollback()

    def close(self) -> None:
        """Give the connection back; what was not committed is abandoned."""
        with suppress(sqlite3.Error):
            self._connection.close()

    @contextmanager
    def _changing(self, table: str) -> Iterator[sqlite3.Connection]:
        """One step of the change, which after an error has not been made; the steps before it stay."""
        with _told(self._folder):
            connection, before = self._connection, dict(self._states)
            if not connection.in_transaction:
                connection.execute("BEGIN IMMEDIATE")
            connection.execute("SAVEPOINT step")
            try:
                if table not in self._states:
                    self._states[table] = _state(connection, self._folder, table)
                yield connection
            except BaseException:
                # a full disk may have ended the whole transaction
                self._states = before if connection.in_transaction else {}
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK TO step")
                raise
            finally:
                with suppress(sqlite3.Error):
                    connection.execute("RELEASE step")

    def _remove(self, ids: Sequence[str]) -> int:
        """Remove images with their bytes."""
        numbers = [(number,) for number in self._forget(ids)]
        for table in ("vectors", "thumbnails", "regions"):
            self._connection.executemany(f"DELETE FROM {table} WHERE number=?", numbers)
        return len(numbers)

    def _forget(self, ids: Sequence[str]) -> list[int]:
        """Remove rows of images, and return the numbers of their bytes."""
        select = "SELECT id, number, digest FROM pictures WHERE id IN"
        found = list(_of_some(self._connection, select, ids))
        self._connection.executemany("DELETE FROM pictures WHERE id=?", [(key,) for key, _, _ in found])
        self._count("pictures", [], [digest for *_, digest in found])
        return [number for _, number, _ in found]

    def _insert(self, rows: list[PictureRow]) -> None:
        marks = ", ".join("?" * len(PictureRow._fields))
        self._connection.executemany(f"INSERT INTO pictures ({_PICTURE}) VALUES ({marks})", rows)
        self._count("pictures", [row.digest for row in rows], [])

    def _count(self, table: str, more: list[bytes], less: list[bytes]) -> None:
        state = self._states[table]
        total = total_without(less, total_of(more, state.total))
        self._states[table] = State(state.version, state.rows + len(more) - len(less), total)


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def _state(connection: sqlite3.Connection, folder: Path, table: str) -> State:
    found = connection.execute("SELECT version, rows, total FROM states WHERE name=?", (table,)).fetchone()
    if found is None:
        raise _damaged(folder, f"the number of its {table} is gone")
    return State(found[0], found[1], int.from_bytes(found[2], "little"))


def _commit(connection: sqlite3.Connection, folder: Path) -> None:
    done = _versions(connection)
    connection.commit()
    # not before: a power cut may take this, and then it is older than the rows, which is no damage
    (folder / COMMITS).write_text(f"{done}\n", encoding="ascii")


def _versions(connection: sqlite3.Connection) -> int:
    """The number of all commits."""
    found = connection.execute("SELECT sum(version) FROM states").fetchone()
    return int(found[0] or 0)


def _commits(folder: Path) -> int:
    """The number of commits on record; 0 without a record, or with half of one."""
    try:
        return int((folder / COMMITS).read_bytes()[:20])
    except (FileNotFoundError, ValueError):
        return 0


def _of_some(connection: sqlite3.Connection, select: str, values: Sequence[Any]) -> Iterator[Any]:
    """Rows of some keys; `select` ends with IN."""
    for start in range(0, len(values), _AT_ONCE):
        some = values[start : start + _AT_ONCE]
        yield from connection.execute(f"{select} ({', '.join('?' * len(some))})", list(some))


_NO_INDEX = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_READONLY_DIRECTORY)
"""Errors of a reader that may not make the index of the log."""

_TROUBLES: dict[int, StoreTrouble] = {
    sqlite3.SQLITE_CORRUPT: "damaged",
    sqlite3.SQLITE_NOTADB: "damaged",
    sqlite3.SQLITE_FORMAT: "damaged",
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_READONLY: "forbidden",
    sqlite3.SQLITE_PERM: "forbidden",
    sqlite3.SQLITE_AUTH: "forbidden",
    sqlite3.SQLITE_CANTOPEN: "forbidden",
    sqlite3.SQLITE_IOERR: "disk",
    sqlite3.SQLITE_PROTOCOL: "disk",
}


def _damaged(folder: Path, reason: str) -> StoreError:
    # no repair reads what SQLite cannot, or brings back what a log has lost
    return StoreError(
        f"{folder}: is damaged ({reason}); put back a copy of the store, or index into a new folder",
        "damaged",
    )


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the file system into a `StoreError` with the next step."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        state = "is empty" if folder.is_dir() and not any(folder.iterdir()) else "is gone"
        raise StoreError(
            f"{folder}: the folder of the store {state}; is its disk mounted? The store is used again as soon as it is "
            "back",
            "missing",
        ) from None
    except OSError as error:
        trouble, advice = cause_of(error.errno)
        reason = error.strerror or str(error)
        raise StoreError(f"{folder}: cannot be used ({reason}){advice}", trouble) from None
    except sqlite3.DatabaseError as error:
        raise _of_sqlite(folder, error) from None


def _of_sqlite(folder: Path, error: sqlite3.DatabaseError) -> Exception:
    code = getattr(error, "sqlite_errorcode", None)
    # a text that is no UTF-8, or a table that is not there, has no number of its own
    primary = sqlite3.SQLITE_CORRUPT if code is None or code == sqlite3.SQLITE_ERROR else code & 0xFF
    if primary == sqlite3.SQLITE_CONSTRAINT:
        return DataError("a picture or sentence was given twice in one commit")
    trouble = _TROUBLES.get(primary, "other")
    if trouble == "damaged":
        return _damaged(folder, str(error))
    if primary == sqlite3.SQLITE_BUSY:
        return StoreError(f"{folder}: is being written by another process; try again when it is done")
    advice = {
        "full": "make room on its disk",
        "forbidden": "give the user who runs limner the right to it",
        "disk": "look at the system's log; on a network file system without locks no store can be used",
    }.get(trouble, "try again")
    return StoreError(f"{folder}: cannot be used ({error}); {advice}", trouble)
