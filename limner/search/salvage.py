"""Reads what can be read of a damaged LanceDB table, in a process of its own: some damage ends it with a signal.

`python -m limner.search.salvage` reads requests, each a line of JSON:

    [FOLDER, TABLE, "rows", OUT, FIRST, SIZE]
    [FOLDER, TABLE, "state"]

The first writes all rows from number FIRST on to the Arrow file OUT, in parts of SIZE rows that grow, and after each
part the number of the next row to OUT.next. The second prints the number of the rows and the sum of their digests,
as far as they can be read. `SalvageProcess` keeps the process for the next request, since it
takes a second to start, and begins it anew after it has died. `Salvage` goes on behind what it died of.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from limner.search.commits import Record, State, column_sum, file_digest
from limner.search.lancedb_import import lancedb
from limner.search.row_digests import DIGEST, damaged

SALVAGE = ".salvage-"
"""Beginning of the name of the folder that it works in, below the store's."""

_SIZE = 256
"""Rows that are read at once, as long as nothing is wrong with them."""

_SECONDS = 600
"""Seconds that one answer may take; damaged lengths can make LanceDB read for ever."""

_HOPELESS = 2 * _SIZE
"""Rows in a row that cannot be read, after which only the ends of a part are tried: a data file without its footer."""

_ENOUGH = "enough"
"""Last line of an answer, unless the process dies."""

_DEATHS = 8
"""Rows in a row that end the process, after which some are passed over, twice as many each time."""


class SalvageProcess:
    """The process that reads; a context that ends it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "SalvageProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def ask(self, *request: object) -> list[str]:
        """Return the lines of an answer; the last one is `_ENOUGH`, unless the process died of it."""
        fresh = self._process is None
        process = self._process = self._process or _started()
        assert process.stdin is not None
        assert process.stdout is not None
        lines: list[str] = []
        timer = threading.Timer(_SECONDS, process.kill)
        timer.start()
        # a broken pipe: it has died since the last answer
        with suppress(OSError):
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                lines.append(line.rstrip("\n"))
                if lines[-1] == _ENOUGH:
                    break
        timer.cancel()
        if lines[-1:] == [_ENOUGH]:
            return lines
        self._end()
        # an older one may have died of what it was asked before
        return lines if fresh else self.ask(*request)

    def _end(self) -> None:
        if self._process is not None:
            with suppress(OSError), self._process as process:
                process.kill()
        self._process = None


def _started() -> "subprocess.Popen[str]":
    # where this limner lies, which need not be installed
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-m", "limner.search.salvage"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


class Salvage:
    """The rows of a damaged table that can be read, of one of its versions; the table's files are left alone.

    LanceDB takes the manifest with the newest name. Here that version counts whose rows are those of the last commit,
    by the record: the first of which all can be read and are sound, or else the first. If no version has these rows, it
    is the one whose manifest the record names, or else the newest that can be opened.

    - `is_last`: True if the version is that of the last commit, whether or not all of its rows can be read.
    """

    # one version and not the rows of several: what was deleted or replaced since would come back from the earlier ones
    def __init__(
        self, process: SalvageProcess, store: Path, table: str, schema: pa.Schema, record: Record | None
    ) -> None:
        self._process = process
        self.store, self.table, self.schema = store, table, schema
        self.record = record
        self.is_last = False

    def rows(self) -> Iterator[pa.Table]:
        """Yield the rows of the version. They may be damaged: compare their digests."""
        # beside the table, so that its files can be linked; links, since each version is tried as the only one
        with tempfile.TemporaryDirectory(dir=self.store, prefix=SALVAGE) as scratch:
            copy = Path(scratch) / f"{self.table}.lance"
            _link(self.store / f"{self.table}.lance", copy)
            # the newest stands first
            versions = sorted((self.store / f"{self.table}.lance" / "_versions").glob("*.manifest"))
            chosen = self._chosen(copy, versions)
            if chosen is not None:
                yield from self._rows_of(copy, chosen)

    def _chosen(self, copy: Path, versions: list[Path]) -> Path | None:
        # those whose digests can be read first
        readable: dict[bool, list[Path]] = {True: [], False: []}
        fitting: Path | None = None
        state: State | None = None
        for version in versions:
            count, total = self._state(copy, version)
            if count is None:
                continue
            readable[total is not None].append(version)
            # the newer of two while a commit is pending
            state = state or self._last_state(count, total)
            if state is not None and total is not None and state.holds(count, total):
                fitting = fitting or version
                if self._is_sound(copy, version, count):
                    fitting = version
                    break
        others = [*readable[True], *readable[False]]
        # without a record nobody can tell
        last = fitting or next(filter(self._is_recorded, others), None)
        self.is_last = last is not None
        return last or next(iter(others), None)

    def _last_state(self, count: int, total: tuple[int, int] | None) -> State | None:
        states = () if self.record is None else self.record.last
        return next((state for state in states if total is not None and state.holds(count, total)), None)

    def _is_sound(self, copy: Path, version: Path, count: int) -> bool:
        """True if all rows of a version can be read, as they were written."""
        read = 0
        for rows in self._rows_of(copy, version):
            read += len(rows)
            if any(wrong.any() for wrong in damaged(rows, rows.schema)):
                return False
        return read == count

    def _rows_of(self, copy: Path, version: Path) -> Iterator[pa.Table]:
        count = self._state(copy, version)[0] or 0
        return self._parts(copy, copy.parent / "rows.arrow", self.schema, count)

    def _state(self, copy: Path, version: Path) -> tuple[int | None, tuple[int, int] | None]:
        """Make a version the only one of the copy, and read how many rows it has, and the sum of their digests."""
        _make_only(copy, self.store / f"{self.table}.lance" / "_versions" / version.name)
        # nothing, if the process died of it
        told = self._ask(copy, "state")
        return _numbers(told[0] if told[-1:] == [_ENOUGH] else "")

    def _is_recorded(self, version: Path) -> bool:
        # while a commit is pending the newest version may be its
        if self.record is None or self.record.pending is not None:
            return False
        files = self.record.done.files
        # with other deletions it has other rows
        needed = {name for name in files if name.startswith("_deletions/")} | {f"_versions/{version.name}"}
        folder = version.parents[1]
        return all(
            (folder / name).is_file() and files.get(name) == file_digest(folder / name) for name in needed
        )

    def _parts(self, copy: Path, out: Path, schema: pa.Schema, count: int) -> Iterator[pa.Table]:
        first, size, deaths = 0, _SIZE, 0
        while first < count:
            # of a request whose answer nobody waited for
            for file in (out, out.with_suffix(".next")):
                file.unlink(missing_ok=True)
            self._ask(copy, "rows", str(out), first, size)
            yield from _written(out, schema)
            reached = _next(out)
            if reached is not None and reached > first:
                # small at first: where one row ends the process, its neighbours may, too
                first, size, deaths = reached, (1 if reached < count else size), 0
            elif size > 1:
                size = max(1, size // 16)
            else:
                deaths += 1
                first += min(2 ** max(0, deaths - _DEATHS), _SIZE)

    def _ask(self, copy: Path, *request: object) -> list[str]:
        return self._process.ask(str(copy.parent), copy.stem, *request)


def _written(out: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    # a file that was cut off by a signal gives what is whole of it
    with suppress(OSError, pa.ArrowInvalid), pa.OSFile(str(out)) as file, pa.ipc.open_stream(file) as reader:
        for batch in reader:
            if batch.schema.equals(schema):
                yield pa.Table.from_batches([batch])


def _next(out: Path) -> int | None:
    try:
        return int(out.with_suffix(".next").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _numbers(line: str) -> tuple[int | None, tuple[int, int] | None]:
    numbers = [int(word) for word in line.split()]
    return (numbers[0] if numbers else None), ((numbers[1], numbers[2]) if len(numbers) == 3 else None)


def _make_only(copy: Path, version: Path) -> None:
    """Make a version the only one of the copy."""
    for other in (copy / "_versions").glob("*"):
        other.unlink()
    (copy / "_versions" / version.name).hardlink_to(version)


def _link(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        if path.is_file() and path.name != "latest_version_hint.json":
            place = target / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.hardlink_to(path)


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
            self.table = self._opened()
            self._refused += end - first == 1
            return None
        self._refused = 0
        return rows


def main() -> None:
    """Answer requests until there are no more; see above."""
    for line in sys.stdin:
        folder, name, kind, *rest = json.loads(line)
        if kind == "state":
            _print_state(folder, name)
        else:
            _write_rows(_Reader(folder, name), *rest)
        sys.stdout.write(_ENOUGH + "\n")
        sys.stdout.flush()


def _print_state(folder: str, name: str) -> None:
    numbers: list[int] = []
    # without the digests if only these cannot be read
    with suppress(Exception):
        table: Any = lancedb().connect(folder).open_table(name)
        numbers = [int(table.count_rows())]
        digests = table.search().select([DIGEST]).to_arrow()[DIGEST]
        numbers += column_sum(digests)
    sys.stdout.write(" ".join(map(str, numbers)) + "\n")


def _write_rows(reader: _Reader, out: str, start: int, size: int) -> None:
    table = reader.table
    count = int(table.count_rows())
    done = Path(out).with_suffix(".next")
    with pa.OSFile(out, "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        while start < count:
            end = min(start + size, count)
            for rows in reader.read(start, end):
                writer.write_table(rows)
            file.flush()
            done.write_text(str(end), encoding="utf-8")
            start, size = end, min(2 * size, _SIZE)


if __name__ == "__main__":
    main()
