"""The record of a table's commits: how many rows it must have, what they are, and which files hold them.

    STORE/pictures-1.commits.json   of the table pictures-1.lance

LanceDB has no checksums: a flipped bit in a vector is another vector, a lost manifest is the table of yesterday, and
some damaged files end the process with a signal. So the record says of the last commit its version, the number of rows,
the sum of their digests, and the sizes and checksums of LanceDB's files. It is written before the commit, with the new
state as `pending`, and after it, so that a kill in between is no damage: the table is then in either state. Each state
has a digest over that of the one before it (`chain`).

On an object storage the files are not read a second time: such storages have checksums of their own. The rows' digests
are checked there as everywhere.
"""

import json
import os
import zlib
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from limner.durable import opened, sealed
from limner.errors import StoreError
from limner.search.segments import DIGEST_BYTES, sync_folder
from limner.search.store_path import StorePath, reached, read_text

ENDING = ".commits.json"

OWNER = b"limner.table"
"""Key of the metadata of a table's schema under which it says whose it is, as its record does."""

_PART = 2**20  # bytes of a file that are read at once

_KEPT = 16
"""Number of earlier states that are kept: a reader whose rows are some commits old finds theirs."""


@dataclass(frozen=True)
class State:
    """A table after one commit.

    - `version`: LanceDB's number of the commit; 0 = there is no table yet, or of a pending one: not known yet.
    - `sum`: sum of the rows' digests, each read as two numbers of 64 bits, modulo 2^64.
    - `files`: for the names of LanceDB's files, below the table's folder, size and CRC-32.
    """

    version: int = 0
    rows: int = 0
    sum: tuple[int, int] = (0, 0)
    chain: str = ""
    files: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    def after(self, added: Collection[bytes], removed: Collection[bytes]) -> "State":
        """State after rows of these digests have come and gone."""
        plus, minus = digest_sum(added), digest_sum(removed)
        total = tuple(
            (one + more - less) % 2**64 for one, more, less in zip(self.sum, plus, minus, strict=True)
        )
        state = replace(self, version=0, rows=self.rows + len(added) - len(removed), sum=(total[0], total[1]))
        return replace(state, chain=_hex(self.chain, state.rows, *state.sum))

    def holds(self, rows: int, total: tuple[int, int]) -> bool:
        """True if a table with so many rows and this sum is in this state."""
        return (self.rows, self.sum) == (rows, total)


@dataclass(frozen=True)
class Record:
    """The last commit that is done, the one that is pending, and some before them."""

    done: State = field(default_factory=State)
    pending: State | None = None
    before: tuple[State, ...] = ()

    @property
    def last(self) -> tuple[State, ...]:
        """The states that the table may be in: two while a commit is pending."""
        return (self.done, *([] if self.pending is None else [self.pending]))

    @property
    def states(self) -> tuple[State, ...]:
        """All states that are known."""
        return (*self.last, *self.before)

    def begun(self, pending: State) -> "Record":
        """The record while this commit is made."""
        return replace(self, pending=pending)

    def ended(self, done: State) -> "Record":
        """The record after a commit."""
        before = (replace(self.done, files={}), *self.before)[:_KEPT]
        return Record(done, None, before)


class ForeignTableError(StoreError):
    """A table of another store lies in the place of the store's own."""


class Commits:
    """The record of one table, in the store's folder.

    With the id of the store (`StoreManifest.id`) it says whose table it is, and that of another is refused.
    """

    def __init__(self, store: StorePath, table: str, identity: str = "") -> None:
        self.path: Any = store / f"{table}{ENDING}"
        self._store = store
        self.owner = f"{identity}/{table}" if identity else ""
        """Whose table it is; the table, too: one of the store's own in the place of another is as wrong."""

    def read(self) -> Record | None:
        """Read the record; None if the table has none. Raises `StoreError` for a damaged one, and another store's."""
        with reached(self._store, "read"):
            try:
                text = read_text(self.path)
            except FileNotFoundError:
                return None
            except UnicodeDecodeError:
                text = ""
        try:
            values = json.loads(text)
            values = opened(values)
            pending = values["pending"]
            before = tuple(_state(one) for one in values["before"])
            # not there in records of the first stores of format 4
            owner = values.get("table", self.owner)
            record = Record(_state(values["done"]), None if pending is None else _state(pending), before)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise StoreError(
                f"{self._store}: {self.path.name} is damaged; repair the store with `limner store repair`",
                "damaged",
            ) from None
        if self.owner and owner != self.owner:
            raise ForeignTableError(
                f"{self._store}: {self.path.name} is that of another store or table; put back its own, and the table's "
                "files with it"
            )
        return record

    def changed_at(self) -> float | None:
        """Time of the last commit in seconds since 1970; None before the first one. Raises `OSError`."""
        try:
            return float(self.path.stat().st_mtime)
        except FileNotFoundError:
            return None

    def write(self, record: Record) -> None:
        """Write the record as a whole or not at all."""
        owner = {"table": self.owner} if self.owner else {}
        text = sealed({**owner, **asdict(record)})
        if not isinstance(self.path, Path):
            self.path.write_text(text, encoding="utf-8")
            return
        partial = self.path.with_name(f".{self.path.name}.partial")
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.path)
        # a record that a power cut takes back is older than its table
        sync_folder(self.path.parent)

    def owned(self, schema: pa.Schema) -> pa.Schema:
        """The schema to make the table with; LanceDB keeps its metadata through every change."""
        return schema.with_metadata({OWNER: self.owner})

    def is_foreign(self, schema: pa.Schema) -> bool:
        """True if a table with this schema is that of another store or generation."""
        owner = (schema.metadata or {}).get(OWNER)
        # the record may have been exchanged without its table, and the table without its record
        if owner is not None:
            return bool(owner.decode(errors="replace") != self.owner)
        # tables that were made before they had it
        try:
            self.read()
        except ForeignTableError:
            return True
        except StoreError:
            pass
        return False

    def stamp(self, table: StorePath) -> tuple[int, ...] | None:
        """Numbers that change with the record, or with the list of versions of its table.

        LanceDB's handle follows that list by itself. None without a record, and on an object storage.
        """
        if not isinstance(self.path, Path) or not isinstance(table, Path):
            return None
        try:
            state = self.path.stat()
        except OSError:
            return None
        try:
            versions = (table / "_versions").stat().st_mtime_ns
        except OSError:
            versions = 0
        return state.st_ino, state.st_mtime_ns, state.st_size, versions


def files_of(table: StorePath, known: Mapping[str, tuple[int, str]]) -> dict[str, tuple[int, str]]:
    """Sizes and checksums of the files in which LanceDB keeps the newest version of a table; {} on an object storage.

    Files are never changed, so those that are `known` are not read again. The others are on the disk when this returns,
    which LanceDB leaves to the system: a record must not outlive what it is of.
    """
    if not isinstance(table, Path):
        return {}
    # LanceDB counts down in the names, so that the newest stands first
    versions = sorted((table / "_versions").glob("*.manifest"))
    if not versions:
        return {}
    # the manifest holds the names of its files as plain text; others belong to older versions
    content = versions[0].read_bytes()
    files = [versions[0], *(path for path in (table / "data").glob("*") if path.name.encode() in content)]
    # under another name, with a point first, as long as it is being written
    files += (path for path in (table / "_deletions").glob("*") if not path.name.startswith("."))
    names = {str(path.relative_to(table)): path for path in files}
    # a commit may make several versions, as the first one and compaction do
    made = list(takewhile(lambda path: str(path.relative_to(table)) not in known, versions))
    others = [path for name, path in names.items() if name not in known and path not in made]
    # the newest last: whoever can read it after a power cut can read what it names, too
    new = [*others, *reversed(made)]
    for path in [*new, *dict.fromkeys(path.parent for path in new), table]:
        sync_folder(path)
    return {name: known[name] if name in known else file_digest(path) for name, path in names.items()}


def file_digest(path: Path) -> tuple[int, str]:
    """Size and CRC-32 of a file."""
    # zlib's CRC-32 takes 3.4 GB a second here, BLAKE2b 0.75: a store of 8,000 images opens in 10 ms more in place of
    # 70. What passes it by chance (one damage of four billion) the rows' own digests find in `verify`
    size, code, part = 0, 0, memoryview(bytearray(_PART))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(part):
            size, code = size + count, zlib.crc32(part[:count], code)
    return size, f"{code:08x}"


def digest_sum(digests: Collection[bytes]) -> tuple[int, int]:
    """Sum of digests, each read as two numbers of 64 bits, modulo 2^64."""
    numbers = np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2)
    low, high = numbers.sum(axis=0, dtype=np.uint64).tolist()
    return low, high


def column_sum(column: pa.ChunkedArray) -> tuple[int, int]:
    """Sum of a column of digests."""
    total = np.zeros(2, np.uint64)
    for chunk in column.chunks:
        # through the buffer: a list of 100,000 objects takes as long as all the rest of a check
        numbers = np.frombuffer(chunk.buffers()[1], np.uint64).reshape(-1, 2)
        total += numbers[chunk.offset : chunk.offset + len(chunk)].sum(axis=0, dtype=np.uint64)
    low, high = total.tolist()
    return low, high


def _state(values: dict[str, Any]) -> State:
    low, high = values["sum"]
    files = {name: (int(size), str(digest)) for name, (size, digest) in values["files"].items()}
    return State(int(values["version"]), int(values["rows"]), (int(low), int(high)), values["chain"], files)


def _hex(*parts: object) -> str:
    return blake2b("\n".join(map(str, parts)).encode(), digest_size=DIGEST_BYTES).hexdigest()
