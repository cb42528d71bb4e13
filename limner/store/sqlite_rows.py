"""The rows of a store in one SQLite file, the usual engine.

    STORE/store.sqlite        texts, images, vectors, thumbnails, region features, sentences
    STORE/store.sqlite-wal    what has been committed and is not yet in it; SQLite makes, reads and removes it
    STORE/store.sqlite-shm    the index of that, for all processes that have the store open
    STORE/store.commits       the number of commits: a file or a log that is older is one that was put back or damaged

SQLite keeps what a store promises: a commit is whole or not there after a kill or a power cut (a write-ahead log,
`synchronous=FULL`), readers have their moment beside a writer, values may be of any size, and a damaged file is an
error. What it does not see, a bit that changes within a value, the digests of the rows show.

A change is one transaction, which begins with its first row: vectors, thumbnails and region features are on their way
to the disk at once. A reading has a connection of its own, which ends with it.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from limner.durable import sync
from limner.errors import StoreError
from limner.store.sqlite_file import (
    FILE,
    PAGE,
    PARTIAL,
    SCHEMA,
    WAIT,
    begin,
    commit,
    commits,
    connect,
    told,
)
from limner.store.sqlite_transactions import SqliteReading, SqliteWriting

_STEP = 0.1
"""Seconds in which two changes of a file may have the same time."""


class SqliteRows:
    """Rows in `FILE` of a folder; see `limner.store.rows.Rows`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / FILE
        # the connection by which a thread reads just now, with its process: after a fork it is another one's
        self._reading = threading.local()
        self._known: tuple[object, tuple[object, ...]] | None = None
        self._texts: dict[str, tuple[object, str | None]] = {}

    @classmethod
    def create(cls, folder: Path, texts: dict[str, str]) -> "SqliteRows":
        """Make a store without rows, as a whole or not at all. Raises `StoreError`."""
        partial = folder / PARTIAL
        with told(folder):
            partial.unlink(missing_ok=True)
            with closing(sqlite3.connect(partial, isolation_level=None)) as made:
                made.execute(f"PRAGMA page_size={PAGE}")
                made.execute("PRAGMA journal_mode=MEMORY")
                made.executescript(f"BEGIN; {SCHEMA} COMMIT;")
                made.executemany("INSERT INTO texts VALUES (?, ?)", texts.items())
                # the name stays in the file: whoever opens it has a write-ahead log
                made.execute("PRAGMA journal_mode=WAL")
            partial.replace(folder / FILE)
            sync(folder)
        return cls(folder)

    def identity(self) -> tuple[object, ...]:
        """See `Rows.identity`."""
        with told(self.folder):
            # looked at first: what is committed in between is then found by the next look
            face, known, nested = self._face(), self._known, self._reads()
            if known is not None and known[0] == face and not nested:
                return known[1]
            with self._reading_connection() as connection:
                # the file, too: another store may have taken the folder, with as many commits. max: None of no row
                (store,) = connection.execute("SELECT max(text) FROM texts WHERE name='id'").fetchone()
                # the sums, too: an older copy that is put back comes to the same number of commits
                found = connection.execute("SELECT version, total FROM states ORDER BY name").fetchall()
                status = self.path.stat()
                identity = store, status.st_dev, status.st_ino, *found
            # a reading's moment may be older than how the file looks now
            if not nested:
                self._known = face, identity
            return identity

    def _face(self) -> object:
        """A fingerprint that changes with every commit and seldom without one; it opens nothing for SQLite.

        An answered commit has changed `COMMITS`. One whose writer was killed before that shows by the log's time, which
        goes in steps of some milliseconds: one that has just changed is not trusted.
        """
        status = self.path.stat()
        try:
            log = Path(f"{self.path}-wal").stat()
        except FileNotFoundError:
            return _seen(status), commits(self.folder)
        if time.time() - log.st_mtime < _STEP:
            return object()
        return _seen(status), _seen(log), commits(self.folder)

    def text(self, name: str) -> str | None:
        """See `Rows.text`."""
        identity = self.identity()
        known = self._texts.get(name)
        # kept: an audited server asks for one twice a request
        if known is None or known[0] != identity or self._reads():
            with self.reading() as reading:
                known = identity, reading.text(name)
            self._texts[name] = known
        return known[1]

    def set_text(self, name: str, text: str | None) -> None:
        """See `Rows.set_text`."""
        with self._writing_connection() as connection:
            begin(connection, self.folder, write=True)
            for table in ("texts", "states"):
                connection.execute(f"DELETE FROM {table} WHERE name=?", (name,))
            if text is not None:
                connection.execute("INSERT INTO texts VALUES (?, ?)", (name, text))
                # another place that says so: a calibration whose row is lost would be none, and no error
                connection.execute("INSERT INTO states VALUES (?, 0, 1, zeroblob(16))", (name,))
            connection.execute("UPDATE states SET version = version + 1 WHERE name='texts'")
            commit(connection, self.folder)

    @contextmanager
    def reading(self) -> Iterator["SqliteReading"]:
        """See `Rows.reading`."""
        with self._reading_connection() as connection:
            # one within another reads the same moment
            nested = connection.in_transaction
            if not nested:
                begin(connection, self.folder, write=False)
            try:
                yield SqliteReading(self.folder, connection)
            finally:
                if not nested:
                    with suppress(sqlite3.Error):
                        connection.rollback()

    def begin(self) -> "SqliteWriting":
        """See `Rows.begin`."""
        return SqliteWriting(self.folder, connect(self.path, write=True))

    def scrub(self) -> None:
        """Write the file anew without what was deleted, and take it out of the write-ahead log.

        Until then deleted values may stay in pages that are free, and where SQLite has moved a row to another page, a
        copy of it in the unused part of the first.
        """
        with self._writing_connection() as connection:
            begin(connection, self.folder, write=True)
            connection.rollback()
            # not in memory, which a store may exceed
            connection.execute("PRAGMA temp_store=FILE")
            connection.execute("VACUUM")
            (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                raise StoreError(
                    f"{self.folder}: another process has been reading for {WAIT:g} s what is to be erased; call it "
                    "again when that is done"
                )
        # SQLite waits for the disk before the log is cut off, not after it: a power cut could bring it back
        with told(self.folder):
            for place in (Path(f"{self.path}-wal"), self.folder):
                if place.exists():
                    sync(place)

    def faults(self) -> list[str]:
        """See `Rows.faults`."""
        with self._reading_connection() as connection:
            found = [str(line) for (line,) in connection.execute("PRAGMA integrity_check(10)")]
        return [] if found == ["ok"] else found

    def copy(self, folder: Path) -> None:
        """See `Rows.copy`."""
        with self._reading_connection() as connection, told(folder):
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
        with told(self.folder):
            return max(path.stat().st_mtime for path in times if path.exists())

    def close(self) -> None:
        """See `Rows.close`."""
        self._known, self._texts = None, {}

    def _reads(self) -> bool:
        """True within a reading of this thread."""
        return getattr(self._reading, "by", (0,))[0] == os.getpid()

    @contextmanager
    def _reading_connection(self) -> Iterator[sqlite3.Connection]:
        """The connection of this thread's reading, or one of its own.

        None is kept: its open files would keep the disk from being unmounted, and one that was opened where the log's
        index cannot be made would never see a later commit. Opening takes a fifth of a millisecond.
        """
        if self._reads():
            yield self._reading.by[1]
            return
        with told(self.folder), closing(connect(self.path, write=False)) as connection:
            self._reading.by = os.getpid(), connection
            try:
                yield connection
            finally:
                del self._reading.by

    @contextmanager
    def _writing_connection(self) -> Iterator[sqlite3.Connection]:
        with told(self.folder), closing(connect(self.path, write=True)) as connection:
            yield connection


def _seen(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
