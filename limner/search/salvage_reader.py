"""The process that reads a damaged LanceDB table for `salvage`; some damage ends it with a signal.

`python -m limner.search.salvage_reader` prints `READY` and reads requests, each a line of JSON:

    [FOLDER, TABLE, "control"]
    [FOLDER, TABLE, "state"]
    [FOLDER, TABLE, "rows", OUT, FIRST, SIZE]

The first writes a small table and reads it, so that what hinders LanceDB in this folder is not taken for damage. The
second prints LanceDB's number of the version, the number of the rows and the sum of their digests, as far as they can
be read. The third writes all rows from number FIRST on to the Arrow file OUT, in parts of SIZE rows that grow, and
after each part the number of the next row to OUT.next. An answer ends with `ENOUGH`.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from limner.search.commits import column_sum
from limner.search.lancedb_import import lancedb
from limner.search.row_digests import DIGEST

READY = "ready"
"""Line of a process that has started."""

FAILED = "failed: "
"""Beginning of the line of a process that cannot go on for a reason that is no damage, as on a full disk."""

ENOUGH = "enough"
"""Last line of an answer, unless the process dies."""

LARGEST_PART = 256
"""Rows that are read at once, as long as nothing is wrong with them."""

_HOPELESS = 2 * LARGEST_PART
"""Rows in a row that cannot be read, after which only the ends of a part are tried: a data file without its footer."""


class _Reader:
    """Reads rows of a table by their numbers, and goes past those that LanceDB refuses to read."""

    def __init__(self, folder: str, name: str) -> None:
        self._folder, self._name = folder, name
        self.table = self._opened()
        self._refused = 0

    def _opened(self) -> Any:
        return lancedb().connect(self._folder).open_table(self._name)

    def read(self, first: int, end: int) -> Iterator[pa.Table]:
        """Yield the rows of these numbers that can be read."""
        rows = self._taken(first, end)
        if rows is not None:
            yield rows
        # of a data file without its footer no row can be read, and looking at each takes hours
        elif end - first > 1 and (self._refused < _HOPELESS or self._can_read_an_end(first, end)):
            middle = (first + end) // 2
            yield from self.read(first, middle)
            yield from self.read(middle, end)

    def _can_read_an_end(self, first: int, end: int) -> bool:
        return any(self._taken(place, place + 1) is not None for place in (first, end - 1))

    def _taken(self, first: int, end: int) -> pa.Table | None:
        try:
            rows = self.table.take_offsets(list(range(first, end))).to_arrow()
            rows = rows.select(self.table.schema.names).cast(self.table.schema)
        # which error a damaged file raises depends on where it is damaged
        except Exception:
            # a new handle: nothing that this one has half read
            with suppress(Exception):
                self.table = self._opened()
            self._refused += end - first == 1
            return None
        self._refused = 0
        return rows


def main() -> None:
    """Answer requests until there are no more; see above."""
    # a second; in the middle of a request it would let one write into a folder whose repair was killed meanwhile
    lancedb()
    _print_line(READY)
    for line in sys.stdin:
        folder, name, kind, *rest = json.loads(line)
        if kind == "control":
            _write_control(folder, name)
        elif kind == "state":
            _print_state(folder, name)
        else:
            _write_rows(_Reader(folder, name), *rest)
        _print_line(ENOUGH)


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _write_control(folder: str, name: str) -> None:
    rows = pa.table({"number": [0]})
    try:
        # overwrite: it is asked again after a death behind the table
        table = lancedb().connect(folder).create_table(name, rows, mode="overwrite")
        unread = table.take_offsets([0]).to_arrow() != rows
    except Exception as error:
        _print_failure("LanceDB cannot read a new table here", error)
    else:
        if unread:
            _print_line(f"{FAILED}LanceDB reads a new table wrongly here")


def _print_failure(what: str, error: Exception) -> None:
    reason = (getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()[0]
    _print_line(f"{FAILED}{what} ({reason})")


def _print_state(folder: str, name: str) -> None:
    numbers: list[int] = []
    # without the digests if only these cannot be read
    with suppress(Exception):
        table: Any = lancedb().connect(folder).open_table(name)
        numbers = [int(table.version), int(table.count_rows())]
        digests = table.search().select([DIGEST]).to_arrow()[DIGEST]
        numbers += column_sum(digests)
    _print_line(" ".join(map(str, numbers)))


def _write_rows(reader: _Reader, out: str, start: int, size: int) -> None:
    table = reader.table
    count = int(table.count_rows())
    done = Path(out).with_suffix(".next")
    try:
        with pa.OSFile(out, "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            while start < count:
                end = min(start + size, count)
                for rows in reader.read(start, end):
                    writer.write_table(rows)
                file.flush()
                done.write_text(str(end), encoding="utf-8")
                start, size = end, min(2 * size, LARGEST_PART)
    # only of writing: whatever the reader is refused it passes over
    except OSError as error:
        _print_failure("cannot be written", error)


if __name__ == "__main__":
    main()
