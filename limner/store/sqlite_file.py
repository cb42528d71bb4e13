"""The SQLite file of a store: its tables, how it is opened, and what its errors mean.

`limner.store.sqlite_rows` reads and writes it.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from limner.errors import DataError, StoreError, StoreTrouble
from limner.inference.source import STORE_FILE
from limner.store.entry import PictureRow
from limner.store.path import cause_of
from limner.store.rows import SentenceRow

FILE = STORE_FILE
"""Name of the file in the store's folder."""

COMMITS = "store.commits"
"""Name of the file with the number of commits."""

PARTIAL = f".{FILE}.partial"
"""Its name while it is made."""

PAGE = 16384
"""Bytes of a page: of vectors of 512 numbers it holds seven, where one of SQLite's own 4,096 holds one."""

WAIT = 30.0
"""Seconds that SQLite waits for another process which holds a file for a moment."""

AT_ONCE = 500  # keys in one statement

PICTURE = ", ".join(PictureRow._fields)
SENTENCE = ", ".join(SentenceRow._fields)

SCHEMA = """
CREATE TABLE texts (name TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE states (name TEXT PRIMARY KEY, version INTEGER NOT NULL, rows INTEGER NOT NULL, total BLOB NOT NULL)
  WITHOUT ROWID;
CREATE TABLE pictures (id TEXT PRIMARY KEY, path TEXT NOT NULL, others TEXT NOT NULL, sha256 TEXT NOT NULL,
  size INTEGER NOT NULL, mtime INTEGER NOT NULL, taken_read INTEGER, taken_told INTEGER, identity TEXT,
  metadata TEXT NOT NULL, gone INTEGER, number INTEGER NOT NULL, vector_sum INTEGER NOT NULL, thumbnail_digest BLOB,
  regions_digest BLOB, digest BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE vectors (number INTEGER PRIMARY KEY AUTOINCREMENT, vector BLOB NOT NULL);
CREATE TABLE thumbnails (number INTEGER PRIMARY KEY, jpeg BLOB NOT NULL);
CREATE TABLE regions (number INTEGER PRIMARY KEY, features BLOB NOT NULL);
CREATE TABLE sentences (id TEXT PRIMARY KEY, text TEXT NOT NULL, path TEXT, vector_sum INTEGER NOT NULL,
  digest BLOB NOT NULL, vector BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO states VALUES ('pictures', 0, 0, zeroblob(16)), ('sentences', 0, 0, zeroblob(16)),
  ('texts', 0, 0, zeroblob(16));
"""


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """Open the file of a store. Raises `StoreError`."""
    with told(path.parent):
        # `sqlite3.connect` of a file that is gone would make an empty one
        path.stat()
        uri = f"{path.absolute().as_uri()}?mode={'rw' if write else 'ro'}"
        connection = sqlite3.connect(uri, WAIT, uri=True, isolation_level=None, check_same_thread=False)
        try:
            _prepare(connection, write=write)
        except sqlite3.OperationalError as error:
            connection.close()
            wal = Path(f"{path}-wal")
            # a folder that may not be written has no place for the log's index; without a log it needs none
            if write or error.sqlite_errorcode not in _NO_INDEX or (wal.exists() and wal.stat().st_size):
                raise
            connection = sqlite3.connect(f"{uri}&immutable=1", uri=True, isolation_level=None)
            _prepare(connection, write=False)
        return connection


def _prepare(connection: sqlite3.Connection, *, write: bool) -> None:
    # a text that is damaged is read as well: its digest tells
    connection.text_factory = _text
    # a row that does not fit its page is an error, not a reading of what lies behind it
    connection.execute("PRAGMA cell_size_check=ON")
    # the first look at the file: one that is no database is told here
    connection.execute("SELECT count(*) FROM texts").fetchone()
    if write:
        connection.execute("PRAGMA synchronous=FULL")
        # what a step of a change might have to undo, which would else lie in a file of the system's temporary folder
        connection.execute("PRAGMA temp_store=MEMORY")
        # zeros over what was deleted in pages that are written anyway; over all of it, deleting 0.9 GB of region
        # features wrote 3 GB, and `scrub` leaves it out in any case
        connection.execute("PRAGMA secure_delete=FAST")
        # pages of a change in memory, 64 MB
        connection.execute("PRAGMA cache_size=-65536")


def of_some(connection: sqlite3.Connection, select: str, values: Sequence[Any]) -> Iterator[Any]:
    """Rows of some keys; `select` ends with IN."""
    parts = (values[start : start + AT_ONCE] for start in range(0, len(values), AT_ONCE))
    # a chain, since a generator would close the cursor of a reading that an error has ended, behind its connection
    return chain.from_iterable(
        connection.execute(f"{select} ({', '.join('?' * len(some))})", list(some)) for some in parts
    )


def begin(connection: sqlite3.Connection, folder: Path, *, write: bool) -> None:
    """Begin to read or to change. Raises `StoreError` for a file that is older than its last commit."""
    # before the moment is chosen: a commit in between makes what is read newer than this, never older
    done = commits(folder)
    connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
    if versions(connection) < done:
        connection.rollback()
        raise damaged(folder, f"it is older than its last commit, number {done}")


def commit(connection: sqlite3.Connection, folder: Path) -> None:
    """End a change, and put the number of commits on record."""
    done = versions(connection)
    connection.commit()
    # not before: a power cut may take this, and then it is older than the rows, which is no damage
    (folder / COMMITS).write_text(f"{done}\n", encoding="ascii")


def versions(connection: sqlite3.Connection) -> int:
    """The number of all commits."""
    (done,) = connection.execute("SELECT sum(version) FROM states").fetchone()
    # a damaged one makes a sum of another type
    return done if isinstance(done, int) else 0


def commits(folder: Path) -> int:
    """The number of commits on record; 0 without a record, or with half of one."""
    try:
        return int((folder / COMMITS).read_bytes()[:20])
    except (FileNotFoundError, ValueError):
        return 0


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


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


def damaged(folder: Path, reason: str) -> StoreError:
    """The error of a file that cannot be read, or that is not the newest."""
    # no repair reads what SQLite cannot, or brings back what a log has lost
    return StoreError(
        f"{folder}: is damaged ({reason}); put back a copy of the store, or index into a new folder",
        "damaged",
    )


@contextmanager
def told(folder: Path) -> Iterator[None]:
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
        return damaged(folder, str(error))
    if primary == sqlite3.SQLITE_BUSY:
        return StoreError(f"{folder}: is being written by another process; try again when it is done", "busy")
    advice = {
        "full": "make room on its disk",
        "forbidden": "give the user who runs limner the right to it",
        "disk": "look at the system's log; on a network file system without locks no store can be used",
    }.get(trouble, "try again")
    return StoreError(f"{folder}: cannot be used ({error}); {advice}", trouble)
