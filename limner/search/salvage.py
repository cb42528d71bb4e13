"""Reads what can be read of a damaged LanceDB table, in a process of its own: some damage ends it with a signal.

`SalvageProcess` keeps the process, `limner.search.salvage_reader`, for the next request, since it takes a second to
start, and begins it anew after it has died. `Salvage` goes on behind what it died of.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from limner.errors import StoreError
from limner.search.commits import Record, State, file_digest
from limner.search.row_digests import damaged
from limner.search.salvage_reader import ENOUGH, FAILED, LARGEST_PART, READY
from limner.search.segments import DIGEST_BYTES

SALVAGE = ".salvage-"
"""Beginning of the name of the folder that it works in, below the store's."""

_READER = "limner.search.salvage_reader"
"""The module that the process runs."""

_SECONDS = 600
"""Seconds that one answer may take; damaged lengths can make LanceDB read for ever."""

_MAGIC = b"LANC"
"""Last bytes of a data file."""

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
        """Return the lines of an answer; the last one is `ENOUGH`, unless the process died of it.

        Raises `StoreError` if the process cannot be started.
        """
        deaths = 0
        while True:
            fresh = self._process is None
            lines, in_time = self._answer(request)
            if lines[-1:] == [ENOUGH]:
                return lines
            self._end()
            # an older one may have died of what it was asked before, and any of something from outside
            deaths += fresh
            if deaths == 2 or not in_time:
                return lines

    def _answer(self, request: Sequence[object]) -> tuple[list[str], bool]:
        """The lines that the process writes, and whether it wrote or ended of itself."""
        process = self._process = self._process or _started()
        assert process.stdin is not None
        lines: list[str] = []
        # a broken pipe: it has died since the last answer
        with _ended_in_time(process) as expired, suppress(OSError):
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            lines += _lines_until(process, ENOUGH)
        return lines, not expired.is_set()

    def _end(self) -> None:
        if self._process is not None:
            with suppress(OSError), self._process as process:
                process.kill()
        self._process = None


def _started() -> "subprocess.Popen[str]":
    # where this limner lies, which need not be installed; -P: and nothing from the working folder
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", _READER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"},
    )
    try:
        with _ended_in_time(process):
            lines = _lines_until(process, READY)
        # taken for death by damage, it would cost every row
        if lines[-1:] != [READY]:
            raise StoreError(f"{sys.executable} -m {_READER}, which reads the tables, cannot be started")
    except BaseException:
        with process:
            process.kill()
        raise
    return process


@contextmanager
def _ended_in_time(process: "subprocess.Popen[str]") -> Iterator[threading.Event]:
    """Kill a process that has not answered in time, and say so."""
    expired = threading.Event()

    def end() -> None:
        expired.set()
        process.kill()

    timer = threading.Timer(_SECONDS, end)
    timer.start()
    try:
        yield expired
    finally:
        # after Ctrl-C, too: Python waits for the timer before it ends
        timer.cancel()


def _lines_until(process: "subprocess.Popen[str]", last: str) -> list[str]:
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if lines[-1] == last:
            break
    return lines


@dataclass(frozen=True)
class _Version:
    """One version of a table.

    - `number`: LanceDB's number; that of its name if the manifest cannot be read.
    - `count`, `total`: the number of its rows and the sum of their digests; None if they cannot be read.
    """

    manifest: Path
    number: int
    count: int | None = None
    total: tuple[int, int] | None = None

    def holds(self, state: State) -> bool:
        """True if its rows are those of a state."""
        return self.count is not None and self.total is not None and state.holds(self.count, self.total)


class Salvage:
    """The rows of a damaged table that can be read, of one of its versions; the table's files are left alone.

    LanceDB takes the manifest with the newest name. Here that version counts whose rows are those of the last commit,
    by the record: the first of which all can be read and are sound, or else the first. If no version has these rows, it
    is the one whose manifest the record names, or else the newest that can be opened.

    - `is_last`: True if the version is that of the last commit, whether or not all of its rows can be read.
    - `is_ahead`: True if the table has commits that the record does not know. The record is then an older one, and
      counts for nothing.
    """

    # one version and not the rows of several: what was deleted or replaced since would come back from the earlier ones
    def __init__(
        self, process: SalvageProcess, store: Path, table: str, schema: pa.Schema, record: Record | None
    ) -> None:
        self._process = process
        self.store, self.table, self.schema = store, table, schema
        self.record = record
        self.is_last = self.is_ahead = False

    def rows(self) -> Iterator[pa.Table]:
        """Yield the rows of the version. They may be damaged: compare their digests."""
        # beside the table, so that its files can be linked; links, since each version is tried as the only one
        with tempfile.TemporaryDirectory(dir=self.store, prefix=SALVAGE) as scratch:
            copy = Path(scratch) / f"{self.table}.lance"
            self._expect_usable(copy)
            _expect_readable(self.store / f"{self.table}.lance")
            _link_all(self.store / f"{self.table}.lance", copy)
            (copy / "_versions").mkdir(parents=True, exist_ok=True)
            # the newest stands first
            versions = (self.store / f"{self.table}.lance" / "_versions").glob("*.manifest")
            chosen = self._chosen(copy, sorted(path for path in versions if path.is_file()))
            if chosen is not None:
                yield from self._rows_of(copy, chosen)

    def _expect_usable(self, copy: Path) -> None:
        """Raise `StoreError` if LanceDB cannot read a sound table in the copy's place, for whatever reason."""
        if self._ask(copy, "control")[-1:] != [ENOUGH]:
            raise StoreError(
                f"{self.store}: LanceDB cannot read a new table here (the process that reads ends or gives no answer)"
            )
        shutil.rmtree(copy)

    def _chosen(self, copy: Path, manifests: list[Path]) -> Path | None:
        # those whose digests can be read first
        readable: dict[bool, list[Path]] = {True: [], False: []}
        fitting: Path | None = None
        state: State | None = None
        for manifest in manifests:
            version = self._version(copy, manifest)
            if self._is_unknown(version):
                self.is_ahead, self.record = True, None
            if version.count is None:
                continue
            readable[version.total is not None].append(manifest)
            # the newer of two while a commit is pending
            state = state or next(filter(version.holds, self._states), None)
            if state is not None and version.holds(state):
                fitting = fitting or manifest
                if self._is_sound(copy, version):
                    fitting = manifest
                    break
        others = [*readable[True], *readable[False]]
        # without a record nobody can tell
        last = fitting or next(filter(self._is_recorded, others), None)
        self.is_last = last is not None
        return last or next(iter(others), None)

    @property
    def _states(self) -> tuple[State, ...]:
        return () if self.record is None else self.record.last

    def _is_unknown(self, version: _Version) -> bool:
        """True for a later commit than the record has, unless it only compacted what the record has."""
        if self.record is None:
            return False
        latest = self.record.done.version
        if self.record.pending is not None:
            # a compaction and a first commit make two versions, of whose files a power cut may leave the names alone
            latest += 2 if version.total is None else 1
        return version.number > latest and not any(map(version.holds, self._states))

    def _is_sound(self, copy: Path, version: _Version) -> bool:
        """True if all rows of a version can be read, as they were written."""
        read = 0
        for rows in self._rows_of(copy, version.manifest):
            read += len(rows)
            if any(wrong.any() for wrong in damaged(rows, rows.schema)):
                return False
        return read == version.count

    def _rows_of(self, copy: Path, manifest: Path) -> Iterator[pa.Table]:
        count = self._version(copy, manifest).count or 0
        return self._parts(copy, copy.parent / "rows.arrow", self.schema, count)

    def _version(self, copy: Path, manifest: Path) -> _Version:
        """Make a version the only one of the copy, and read what it holds."""
        _make_only(copy, manifest)
        told = self._ask(copy, "state")
        # nothing, if the process died of it
        numbers = [int(word) for word in told[0].split()] if told[-1:] == [ENOUGH] else []
        # a damaged manifest may claim 2^64 rows
        most = sum(path.stat().st_size for path in (copy / "data").glob("*")) // DIGEST_BYTES
        if len(numbers) < 2 or numbers[1] > most:
            return _Version(manifest, _number(manifest))
        return _Version(
            manifest, numbers[0], numbers[1], (numbers[2], numbers[3]) if len(numbers) == 4 else None
        )

    def _is_recorded(self, manifest: Path) -> bool:
        # while a commit is pending the newest version may be its
        if self.record is None or self.record.pending is not None:
            return False
        files, folder = self.record.done.files, manifest.parents[1]
        # with other deletions it has other rows
        needed = {name for name in files if name.startswith("_deletions/")} | {f"_versions/{manifest.name}"}
        # a data file with other bytes may be another one, with rows that were deleted or replaced
        needed |= {name for name in files if _has_rows(folder / name)}
        return all(
            (folder / name).is_file() and files.get(name) == file_digest(folder / name) for name in needed
        )

    def _parts(self, copy: Path, out: Path, schema: pa.Schema, count: int) -> Iterator[pa.Table]:
        first, size, deaths = 0, LARGEST_PART, 0
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
                first += min(2 ** max(0, deaths - _DEATHS), LARGEST_PART)

    def _ask(self, copy: Path, *request: object) -> list[str]:
        told = self._process.ask(str(copy.parent), copy.stem, *request)
        # no line at all, if the process died of it
        if told and told[0].startswith(FAILED):
            raise StoreError(f"{self.store}: {told[0].removeprefix(FAILED)}")
        return told


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


def _has_rows(path: Path) -> bool:
    """True for a data file of Lance's as far as its end shows; without it LanceDB reads no row."""
    with suppress(OSError), path.open("rb") as file:
        file.seek(-len(_MAGIC), os.SEEK_END)
        return file.read() == _MAGIC
    return False


def _number(manifest: Path) -> int:
    """LanceDB's number of a version by its name, in which it counts down; 0 for a name that it does not give."""
    return 2**64 - 1 - int(manifest.stem) if manifest.stem.isdecimal() else 0


def _make_only(copy: Path, manifest: Path) -> None:
    """Make a version the only one of the copy."""
    shutil.rmtree(copy / "_versions")
    _link(manifest, copy / "_versions" / manifest.name)


def _link_all(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        if path.is_file() and path.name != "latest_version_hint.json":
            _link(path, target / path.relative_to(source))


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.hardlink_to(source)
    except OSError:
        # file systems without links, and systems that refuse links to the files of others
        shutil.copyfile(source, target)


def _expect_readable(folder: Path) -> None:
    """Raise `StoreError` for what this user may not read: it would be taken for damage."""

    def refuse(error: OSError) -> None:
        if isinstance(error, PermissionError):
            raise StoreError(f"{error.filename}: cannot be read ({error.strerror})")

    for place, _, names in os.walk(folder, onerror=refuse):
        for name in names:
            try:
                with Path(place, name).open("rb"):
                    pass
            except OSError as error:
                refuse(error)
