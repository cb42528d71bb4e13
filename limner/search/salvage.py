"""Reads what can be read of a damaged LanceDB table, in a process of its own: some damage ends it with a signal.

`python -m limner.search.salvage` reads requests, each a line of JSON:

    [FOLDER, TABLE, "rows", OUT, FIRST, SIZE]
    [FOLDER, TABLE, "states", VERSIONS, WANTED]

The first writes all rows from number FIRST on to the Arrow file OUT, in parts of SIZE rows that grow, and after each
part the number of the next row to OUT.next. The second prints of each version in a list the number of its rows and the
sum of their digests, up to a line that is wanted. `SalvageProcess` keeps the process for the next request, since it
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

from limner.search.commits import Record, column_sum, file_digest
from limner.search.lancedb_import import lancedb
from limner.search.row_digests import DIGEST

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
    """The rows of a damaged table that can be read; its files are left alone.

    LanceDB takes the manifest with the newest name. Here the version counts whose rows are those of the last commit, by
    the record. Without such a version the one that the record names comes first, then the others, newest first.

    - `files`: names of the data files.
    - `unread`: names of data files that are there, and of which nothing shows that all their rows were read.
    """

    def __init__(
        self, process: SalvageProcess, store: Path, table: str, schema: pa.Schema, record: Record | None
    ) -> None:
        self._process = process
        self.store, self.table, self.schema = store, table, schema
        self.record = record
        self._known: dict[Path, tuple[int | None, tuple[int, int] | None]] = {}
        files = list((store / f"{table}.lance" / "data").glob("*"))
        self.files = frozenset(path.name for path in files)
        self.unread = set(self.files)
        known = {} if record is None else record.done.files
        # what it does not name may be of versions before
        self._bad = {
            path.name for path in files if known.get(f"data/{path.name}") not in (None, file_digest(path))
        }

    def rows(self) -> Iterator[tuple[bool, pa.Table]]:
        """Yield rows, and before each part True if it is of an earlier version than the first part.

        Rows may be damaged: compare their digests. One row may come in several versions.
        """
        # beside the table, so that its files can be linked; links, since each version is tried as the only one
        with tempfile.TemporaryDirectory(dir=self.store, prefix=SALVAGE) as scratch:
            copy = Path(scratch) / f"{self.table}.lance"
            _link(self.store / f"{self.table}.lance", copy)
            # the newest stands first
            versions = sorted((self.store / f"{self.table}.lance" / "_versions").glob("*.manifest"))
            versions.sort(key=lambda version: not self._is_recorded(version))
            fitting = self._fitting(copy, versions)
            versions.sort(key=lambda version: version != fitting)
            whole: set[str] = set()
            opened: set[str] = set()
            # where none is the one on record, nobody can tell what was deleted after the first that can be read
            earlier = self.record is not None and fitting is None
            for version in versions:
                names = self._data_files(version)
                # only other files can have other rows: without this, what was deleted would come back from any version
                if earlier and (names <= whole or (names <= opened and names & self._bad)):
                    continue
                if version not in self._known:
                    self._look_at(copy, [version])
                count = self._known[version][0]
                if count is None:
                    continue
                _make_only(copy, version)
                read = 0
                for rows in self._parts(copy, Path(scratch) / "rows.arrow", self.schema, count):
                    read += len(rows)
                    yield earlier, rows
                opened |= names
                if read == count:
                    self.unread -= names
                    whole |= names
                    # without a record nothing says that more is missing
                    if version == fitting or self.record is None:
                        break
                earlier = True

    def _data_files(self, version: Path) -> set[str]:
        # they stand in the manifest as plain text
        content = version.read_bytes()
        data = (self.store / f"{self.table}.lance" / "data").glob("*")
        return {path.name for path in data if path.name.encode() in content}

    def _is_recorded(self, version: Path) -> bool:
        # while a commit is pending the newest version may be its
        if self.record is None or self.record.pending is not None:
            return False
        return self.record.done.files.get(f"_versions/{version.name}") == file_digest(version)

    def _fitting(self, copy: Path, versions: list[Path]) -> Path | None:
        """The first version with the rows of the last commit."""
        if self.record is None:
            return None
        states = self.record.last
        self._look_at(copy, versions, *(f"{state.rows} {state.sum[0]} {state.sum[1]}" for state in states))
        for version in versions:
            count, total = self._known.get(version, (None, None))
            if count is None or total is None:
                continue
            if any(state.holds(count, total) for state in states):
                return version
        return None

    def _look_at(self, copy: Path, versions: list[Path], *wanted: str) -> None:
        """Read the numbers of rows of versions, and the sums of their digests, up to one that is wanted."""
        left = versions
        while left:
            told = self._ask(copy, "states", [str(version) for version in left], wanted)
            for line, version in zip(told, left, strict=False):
                if line == _ENOUGH:
                    return
                self._known[version] = _numbers(line)
            if told and told[-1] == _ENOUGH:
                return
            # it died of the one behind the last that it told of
            self._known |= dict.fromkeys(left[len(told) : len(told) + 1], (None, None))
            left = left[len(told) + 1 :]

    def _parts(self, copy: Path, out: Path, schema: pa.Schema, count: int) -> Iterator[pa.Table]:
        first, size, deaths = 0, _SIZE, 0
        while first < count:
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
            for file in (out, out.with_suffix(".next")):
                file.unlink(missing_ok=True)

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
        if kind == "states":
            _print_states(Path(folder) / f"{name}.lance", *rest)
        else:
            _write_rows(_Reader(folder, name), *rest)
        sys.stdout.write(_ENOUGH + "\n")
        sys.stdout.flush()


def _print_states(copy: Path, versions: list[str], wanted: list[str]) -> None:
    for version in versions:
        _make_only(copy, Path(version))
        numbers: list[int] = []
        # without the digests if only these cannot be read
        with suppress(Exception):
            table: Any = lancedb().connect(str(copy.parent)).open_table(copy.stem)
            numbers = [int(table.count_rows())]
            digests = table.search().select([DIGEST]).to_arrow()[DIGEST]
            numbers += column_sum(digests)
        line = " ".join(map(str, numbers))
        # one at a time: the next may end the process
        sys.stdout.write(line + "\n")
        if line in wanted:
            break
        sys.stdout.flush()


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
