"""The comparison of what LanceDB reads of a table with what was written.

Files are compared by the checksums in the record of commits (`limner.search.commits`). While a commit is pending, its
files have none yet: all rows are then read and compared with their own digests, and the checksums that these files had
before that reading count from then on, for this handle alone.
"""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from limner.errors import StoreError
from limner.search.commits import Commits, Record, file_digest, files_of
from limner.search.row_digests import DIGEST, VECTOR_DIGEST, facts_digests, vector_digests
from limner.search.store_path import StorePath, cause_of

ROWS = 4096
"""Rows in memory while a table is compared."""

Files = dict[str, tuple[int, str]]
"""Sizes and checksums by the names of files."""


class Integrity:
    """The knowledge that one handle has of the files and rows of a table.

    Nothing is known for ever: a file that was sound when the handle was opened may be damaged when its columns are read
    the next time. So `expect_files` with `afresh` reads all files again, which takes 6 ms for 10,000 vectors of 512
    numbers.
    """

    def __init__(self, folder: StorePath, name: str, schema: pa.Schema, commits: Commits) -> None:
        self.folder, self.name, self.schema = folder, name, schema
        self._path = folder / f"{name}.lance"
        self._commits = commits
        self._sound: Files = {}
        self._unsealed: Files = {}

    def expect_files(self, record: Record, *, afresh: bool) -> None:
        """Compare LanceDB's files with the record, before LanceDB reads them: some damaged ones end the process.

        Those that were sound before are read again `afresh` only.
        """
        sound = {} if afresh else dict(self._sound)
        for name, expected in record.done.files.items():
            path: Any = self._path / name
            if sound.get(name) == expected:
                continue
            try:
                found = file_digest(path)
            except FileNotFoundError:
                # a compaction removes files before its commit is done
                if record.pending is not None:
                    continue
                raise self.damaged(f"its file {name} is gone") from None
            except OSError as error:
                raise self.unreadable(f"{name}: {error.strerror or error}", error.errno) from None
            if found != expected:
                raise self.damaged(f"its file {name} has changed")
            sound[name] = found
        self._sound = sound

    def expect_pending(self, record: Record, table: Any, stamp: tuple[int, ...] | None) -> None:
        """Compare the rows of a table with their digests if it has files without a checksum in the record.

        Raises `StoreError` also if the table has changed meanwhile, which its `stamp` then tells.
        """
        if record.pending is None:
            self._unsealed = {}
            return
        known = record.done.files
        # before the rows: what is damaged later has another checksum than the one that counts from now on
        try:
            files = files_of(self._path, known)
        except OSError as error:
            # a writer that is alive has removed one meanwhile; whoever called this looks again
            raise self.unreadable(str(error.strerror or error), error.errno) from None
        unsealed = {name: found for name, found in files.items() if name not in known}
        if unsealed != self._unsealed:
            # all rows: LanceDB does not say which of them lie in which file
            for _ in self._compared(table):
                # a writer that is alive ends its commit soon, and there is nothing to compare then
                if self._commits.stamp(self._path) != stamp:
                    raise self.damaged("it changes faster than it can be read")
        self._unsealed = unsealed

    def expect_sound(self, table: Any) -> None:
        """Compare all rows of a table with their digests. Raises `StoreError` for the first that is damaged."""
        deque(self._compared(table), maxlen=0)

    def _compared(self, table: Any) -> Iterator[None]:
        """Compare all rows, part by part."""
        with self.readings():
            for batch in table.search().select(self.schema.names).to_batches(batch_size=ROWS):
                self.expect_rows(pa.Table.from_batches([batch]))
                yield

    def expect_rows(self, rows: pa.Table) -> None:
        """Compare rows with their digests, and their vectors if they have them. Raises `StoreError`.

        Of a schema's other columns none may be missing.
        """
        pairs = [(facts_digests(rows, self.schema), DIGEST)]
        if "vector" in rows.schema.names:
            pairs.append((vector_digests(rows["vector"]), VECTOR_DIGEST))
        for digests, column in pairs:
            wrong = np.array(digests, object) != np.array(rows[column].to_pylist(), object)
            if wrong.any():
                # as an ASCII literal: where the damage is in the key, it may be no text
                key = rows["id"].cast(pa.binary())[int(wrong.argmax())].as_py() or b""
                raise self.damaged(f"the row of {key.decode('ascii', 'replace')[:64]!a} has changed")

    def columns(self, wanted: Sequence[str]) -> list[str]:
        """Names of the columns that must be read to compare rows of which these are wanted."""
        return [name for name in self.schema.names if name != "vector" or name in wanted]

    @contextmanager
    def readings(self) -> Iterator[None]:
        """Turn LanceDB's errors for a table that it cannot read into `StoreError`."""
        try:
            yield
        # LanceDB has no error of its own: which one a damaged file raises depends on where it is damaged
        except StoreError:
            raise
        except Exception as error:
            raise self.unreadable(reason_of(error), number_of(error)) from None

    def unreadable(self, reason: str, number: int | None) -> StoreError:
        """Make the error for a table that cannot be read; `number`: the system's, if it has told one."""
        trouble, advice = cause_of(number)
        # what the system does not give is not damaged as far as anybody knows, and a repair would be the wrong advice
        if trouble in ("other", "full"):
            return self.damaged(reason)
        return StoreError(f"{self.folder}: cannot be read ({reason}){advice}", trouble)

    def damaged(self, reason: str) -> StoreError:
        """Make the error for a table that is damaged."""
        kind = self.name.split("-")[0]
        return StoreError(
            f"{self.folder}: its table of {kind} is damaged ({reason}); look at it with `limner store verify`, repair "
            "it with `limner store repair`",
            "damaged",
        )


def number_of(error: Exception) -> int | None:
    """Find the number of the system's error in an error, or in a message of LanceDB's; None without one."""
    match = re.search(r"\(os error (\d+)\)", str(error))
    return int(match[1]) if match else getattr(error, "errno", None)


def reason_of(error: Exception) -> str:
    """Find the system's reason in a message of LanceDB's; without one, the beginning of the message."""
    # its messages are long and differ from version to version; the system's reason stands before "(os error N)"
    match = re.search(r"([^:]+) \(os error \d+\)", str(error))
    return match[1].strip() if match else str(error).splitlines()[0][:120]
