"""One look at a store's SQLite file, and one change of it: a transaction each."""

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from limner.store.digests import SIZE, known, row_digest, total_of, total_without, vector_sums
from limner.store.entry import PictureRow, StoredImage, keys_of
from limner.store.rows import Picture, SentenceRow, State, contents_of, picture_row, same_contents
from limner.store.sqlite_file import PICTURE, SENTENCE, begin, commit, damaged, of_some, told

_BLOCK = 8192  # vectors that are read at once
_MANY = 4  # if one vector in four or more is wanted, all are read from first to last


class SqliteReading:
    """All rows at one moment, see `limner.store.rows.Reading`.

    A damaged row gives values of any type, whatever its columns say. Bytes of another type are as good as gone; for the
    facts of a row its digest is compared before they are used.
    """

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        self._folder, self._connection = folder, connection

    def text(self, name: str) -> str | None:
        """One of the texts of that moment; empty if it is lost."""
        select = (
            "SELECT ifnull((SELECT text FROM texts WHERE name=?1), (SELECT '' FROM states WHERE name=?1))"
        )
        (found,) = self._connection.execute(select, (name,)).fetchone()
        return None if found is None else str(found)

    def state(self, table: str) -> State:
        """See `Reading.state`."""
        return state_of(self._connection, self._folder, table)

    def pictures(self, ids: Sequence[str] | None = None) -> Iterator[PictureRow]:
        """See `Reading.pictures`."""
        if ids is None:
            return map(PictureRow._make, self._connection.execute(f"SELECT {PICTURE} FROM pictures"))
        found = of_some(self._connection, f"SELECT {PICTURE} FROM pictures WHERE id IN", ids)
        return map(PictureRow._make, found)

    def pictures_like(self, paths: Sequence[str], sizes: Sequence[int]) -> Iterator[PictureRow]:
        """See `Reading.pictures_like`."""
        # by the key, too: a row whose path is damaged must not be taken for none
        given = {"id": keys_of(paths), "path": paths, "size": sizes}
        tests = [f"{column} IN ({', '.join('?' * len(some))})" for column, some in given.items()]
        found = self._connection.execute(
            f"SELECT {PICTURE} FROM pictures WHERE {' OR '.join(tests)} OR others <> '[]'",
            [one for some in given.values() for one in some],
        )
        return map(PictureRow._make, found)

    def digests(self) -> dict[Any, Any]:
        """See `Reading.digests`."""
        return dict(self._connection.execute("SELECT id, digest FROM pictures").fetchall())

    def sentences(self) -> Iterator[tuple[SentenceRow, bytes]]:
        """See `Reading.sentences`."""
        for *values, vector in self._connection.execute(f"SELECT {SENTENCE}, vector FROM sentences"):
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
                "SELECT number, vector FROM vectors WHERE typeof(vector) = 'blob'"
            )
        else:
            select = "SELECT number, vector FROM vectors WHERE typeof(vector) = 'blob' AND number IN"
            found = of_some(self._connection, select, ascending.tolist())
        left = len(numbers)
        while block := [row for _, row in zip(range(_BLOCK), found, strict=False)]:
            read = np.fromiter((number for number, _ in block), np.int64, len(block))
            places = np.minimum(np.searchsorted(ascending, read), len(ascending) - 1)
            wanted = ascending[places] == read
            left -= int(wanted.sum())
            yield order[places[wanted]], [block[row][1] for row in np.flatnonzero(wanted).tolist()]
        if left:
            raise damaged(self._folder, f"{left} of its vectors are gone")

    def thumbnails(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """See `Reading.thumbnails`."""
        select = "SELECT number, jpeg FROM thumbnails WHERE typeof(jpeg) = 'blob' AND number IN"
        return dict(of_some(self._connection, select, numbers))

    def regions(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """See `Reading.regions`."""
        select = "SELECT number, features FROM regions WHERE typeof(features) = 'blob' AND number IN"
        return dict(of_some(self._connection, select, numbers))


_NO_UTF_8 = re.compile("[\ud800-\udfff]")  # how its bytes are read
_CONTENTS = ("vectors", "thumbnails", "regions")

# with SQLite's own count alone, which no digest holds, damage could keep all pictures out
_LAST_NUMBER = f"""SELECT max(number) FROM (SELECT 0 number
  UNION ALL SELECT seq FROM sqlite_sequence WHERE name = 'vectors' AND typeof(seq) = 'integer' AND seq < 1 << 62
  {" ".join(f"UNION ALL SELECT * FROM (SELECT max(number) FROM {table})" for table in _CONTENTS)})"""


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
            (number,) = connection.execute(_LAST_NUMBER).fetchone()
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
                raise damaged(self._folder, f"the row of {min(gone)} is gone")
            for row in before.values():
                # it must not get a digest that says that it is sound
                if row.digest != row_digest(row[:-1]):
                    raise damaged(self._folder, f"the row of {row.id} is damaged")
            held = [before[one] for one in ids]
            self._forget([row.id for row in held])
            self._insert([same_contents(image, row) for image, row in zip(images, held, strict=True)])

    def delete(self, ids: Sequence[Any]) -> int:
        """See `Writing.delete`."""
        with self._changing("pictures"):
            rows = self._remove(ids)
            # of a picture whose row is gone or damaged the sentences cannot be found either
            sound = [row for row in rows if row.digest == row_digest(row[:-1])]
            self.delete_sentences(paths=[path for row in sound for path in row.paths])
            return len(rows)

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
                f"INSERT INTO sentences ({SENTENCE}, vector) VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (*row, digest, vector.tobytes())
                    for row, digest, vector in zip(
                        rows, digests, np.ascontiguousarray(vectors, "<f4"), strict=True
                    )
                ],
            )
            self._count("sentences", digests, [])

    def delete_sentences(self, ids: Sequence[Any] = (), paths: Sequence[str] = ()) -> int:
        """See `Writing.delete_sentences`."""
        with self._changing("sentences") as connection:
            # all are read, 0.1 s of 100,000: no digest holds an index, and what a damaged one does not find would stay
            held = connection.execute("SELECT id, path FROM sentences") if (wanted := set(paths)) else ()
            theirs = [key for key, path in held if path in wanted]
            found = self._take("sentences", list({*ids, *theirs}), "digest")
            self._count("sentences", [], [digest for (digest,) in found])
            return len(found)

    def recount(self) -> None:
        """See `Writing.recount`."""
        for table in ("pictures", "sentences"):
            with self._changing(table) as connection:
                if table == "pictures":
                    for held in _CONTENTS:
                        connection.execute(
                            f"DELETE FROM {held} WHERE number NOT IN (SELECT number FROM pictures)"
                        )
                digests = known(digest for (digest,) in connection.execute(f"SELECT digest FROM {table}"))
                self._states[table] = State(self._states[table].version, len(digests), total_of(digests))

    def commit(self) -> None:
        """See `Writing.commit`."""
        with told(self._folder):
            if self._connection.in_transaction:
                self._connection.executemany(
                    "UPDATE states SET version=?, rows=?, total=? WHERE name=?",
                    [
                        (state.version + 1, state.rows, state.total.to_bytes(SIZE, "little"), name)
                        for name, state in self._states.items()
                    ],
                )
                commit(self._connection, self._folder)
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
        with told(self._folder):
            connection, before = self._connection, dict(self._states)
            if not connection.in_transaction:
                begin(connection, self._folder, write=True)
            connection.execute("SAVEPOINT step")
            try:
                if table not in self._states:
                    self._states[table] = state_of(connection, self._folder, table)
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

    def _remove(self, ids: Sequence[Any]) -> list[PictureRow]:
        """Remove images with their bytes, and return their rows."""
        found = self._forget(ids)
        # the number of a damaged row could be that of another image; what is nobody's a repair takes away
        numbers = [(row.number,) for row in found if row_digest(row[:-1]) == row.digest]
        for table in _CONTENTS:
            self._connection.executemany(f"DELETE FROM {table} WHERE number=?", numbers)
        return found

    def _forget(self, ids: Sequence[Any]) -> list[PictureRow]:
        """Remove rows of images, and return them."""
        found = [PictureRow._make(values) for values in self._take("pictures", ids, PICTURE)]
        self._count("pictures", [], [row.digest for row in found])
        return found

    def _take(self, table: str, ids: Sequence[Any], columns: str) -> list[Any]:
        """Remove rows by their keys, and return some columns of those that there were."""
        found: list[Any] = []
        texts = [key for key in ids if isinstance(key, str) and not _NO_UTF_8.search(key)]
        odd = [key for key in ids if not isinstance(key, str)]
        broken = [key.encode("utf-8", "surrogateescape") for key in {*ids}.difference(texts, odd)]
        # a key that is no text is compared as it is, and a text that is no UTF-8 by its bytes: no index helps, and few
        # are damaged
        for key, some in (("id", texts), ("+id", odd), ("CAST(id AS BLOB)", broken)):
            found += of_some(self._connection, f"SELECT {columns} FROM {table} WHERE {key} IN", some)
            self._connection.executemany(f"DELETE FROM {table} WHERE {key}=?", [(one,) for one in some])
        return found

    def _insert(self, rows: list[PictureRow]) -> None:
        marks = ", ".join("?" * len(PictureRow._fields))
        self._connection.executemany(f"INSERT INTO pictures ({PICTURE}) VALUES ({marks})", rows)
        self._count("pictures", [row.digest for row in rows], [])

    def _count(self, table: str, more: list[bytes], less: list[Any]) -> None:
        state = self._states[table]
        total = total_without(known(less), total_of(more, state.total))
        self._states[table] = State(state.version, state.rows + len(more) - len(less), total)


def state_of(connection: sqlite3.Connection, folder: Path, table: str) -> State:
    """The state of a table."""
    found = connection.execute("SELECT version, rows, total FROM states WHERE name=?", (table,)).fetchone()
    if found is None:
        raise damaged(folder, f"the number of its {table} is gone")
    version, rows, total = found
    if not (isinstance(version, int) and isinstance(rows, int) and rows >= 0 and isinstance(total, bytes)):
        raise damaged(folder, f"the number of its {table} has changed")
    return State(version, rows, int.from_bytes(total, "little"))
