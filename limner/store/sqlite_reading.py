"""Reading a store's SQLite file at one moment."""

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int

from limner.store.entry import PictureRow
from limner.store.rows import SentenceRow, State
from limner.store.sqlite_file import PICTURE, SENTENCE, damaged, of_some

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
        """One of the texts of that moment."""
        found = self._connection.execute("SELECT text FROM texts WHERE name=?", (name,)).fetchone()
        return None if found is None else str(found[0])

    def state(self, table: str) -> State:
        """See `Reading.state`."""
        return state_of(self._connection, self._folder, table)

    def pictures(self, ids: Sequence[str] | None = None) -> Iterator[PictureRow]:
        """See `Reading.pictures`."""
        if ids is None:
            return map(PictureRow._make, self._connection.execute(f"SELECT {PICTURE} FROM pictures"))
        found = of_some(self._connection, f"SELECT {PICTURE} FROM pictures WHERE id IN", ids)
        return map(PictureRow._make, found)

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


def state_of(connection: sqlite3.Connection, folder: Path, table: str) -> State:
    """The state of a table."""
    found = connection.execute("SELECT version, rows, total FROM states WHERE name=?", (table,)).fetchone()
    if found is None:
        raise damaged(folder, f"the number of its {table} is gone")
    version, rows, total = found
    if not (isinstance(version, int) and isinstance(rows, int) and rows >= 0 and isinstance(total, bytes)):
        raise damaged(folder, f"the number of its {table} has changed")
    return State(version, rows, int.from_bytes(total, "little"))
