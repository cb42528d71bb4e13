"""The disk of the nets: what is followed, and what a power cut leaves of it."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from ctypes import CDLL, c_long
from pathlib import Path

import pytest

from benchmarks.torture import disk
from benchmarks.torture.disk import How, Recording
from benchmarks.torture.forks import EndedError, Forks, forks

pytestmark = pytest.mark.skipif(not disk.can_follow(), reason="needs Linux on x86-64 and gcc")

HERE = "tests.benchmarks.torture.test_disk"


@pytest.fixture(scope="module")
def fork() -> Iterator[Forks]:
    with forks({}) as started:
        yield started


def follow(folder: str, log: str, kind: int = 0, at: int = 0) -> CDLL:
    library = CDLL(str(disk.library()))
    assert not library.limner_disk(folder.encode(), log.encode(), kind, c_long(at))
    return library


def write_files(folder: str, log: str, kind: int = 0, at: int = 0) -> list[str]:
    """A file that is replaced as it should be, one without a sync, and one that goes."""
    library, refused = follow(folder, log, kind, at), []
    for name, is_synced in (("synced", True), ("unsynced", False)):
        try:
            with Path(folder, f"{name}.partial").open("wb") as file:
                file.write(name.encode() * 1000)
                file.flush()
                if is_synced:
                    os.fsync(file.fileno())
            Path(folder, f"{name}.partial").rename(Path(folder, name))
        except OSError as error:
            refused.append(f"{name}: {error.strerror}")
    if is_there := Path(folder, "old").exists():
        Path(folder, "old").unlink()
    return [*refused, str(library.limner_disk_done()), str(is_there)]


def test_what_nobody_waited_for_may_be_lost(fork: Forks, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "old").write_bytes(b"old")
    recording = Recording(folder)
    *refused, operations, _ = fork(f"{HERE}:write_files", str(folder), str(tmp_path / "log"))
    recording.read(tmp_path / "log")
    assert not refused
    assert recording.moments == int(operations)
    synced, unsynced = b"synced" * 1000, b"unsynced" * 1000
    end: dict[How, dict[str, bytes | None]] = {
        "all": {"synced": synced, "unsynced": unsynced},
        "names": {"synced": synced, "unsynced": b""},
        "synced": {"synced.partial": synced, "old": b"old"},
        "strict": {"old": b"old"},
    }
    for how, left in end.items():
        assert recording.files(recording.moments, how) == left, how
    assert recording.files(recording.moments, "all") == disk.read(folder)
    drawn = [recording.files(recording.moments, "drawn", seed) for seed in range(50)]
    assert {b"", unsynced} < {files.get("unsynced", b"") for files in drawn}
    assert all(synced in files.values() for files in drawn)
    assert recording.files(0, "strict") == {"old": b"old"}


def test_killed_and_without_room_at_any_operation(fork: Forks, tmp_path: Path) -> None:
    for at in range(1, 8):
        (folder := tmp_path / str(at)).mkdir()
        with pytest.raises(EndedError, match="signal 9"):
            fork(f"{HERE}:write_files", str(folder), "", 1, at)
        left = {"synced.partial"} if 1 < at < 5 else {"synced"} if at > 4 else set()
        assert {path.name for path in folder.iterdir()} - {"unsynced.partial"} == left
        # the operation itself, and all that need room after it
        (room := tmp_path / f"room-{at}").mkdir()
        told = fork(f"{HERE}:write_files", str(room), "", 2, at)
        assert [one.partition(":")[0] for one in told[:-2]] == ["synced", "unsynced"][
            2 - (at < 7) - (at < 3) :
        ]
        assert all("No space left on device" in one for one in told[:-2])


def write_rows(folder: str, log: str, synchronous: str) -> int:
    library = follow(folder, log)
    with closing(sqlite3.connect(Path(folder, "rows"), isolation_level=None)) as rows:
        rows.execute("PRAGMA journal_mode=WAL")
        rows.execute(f"PRAGMA synchronous={synchronous}")
        rows.execute("CREATE TABLE rows (number INTEGER, content BLOB)")
        for number in range(10):
            rows.execute("INSERT INTO rows VALUES (?, ?)", (number, os.urandom(9000)))
            if number % 4 == 3:
                rows.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            with Path(folder, "told").open("ab", 0) as told:
                told.write(b".")
    return int(library.limner_disk_done())


def rows_in(folder: str) -> list[int]:
    try:
        with closing(sqlite3.connect(f"file:{folder}/rows?mode=rw", uri=True)) as rows:
            if rows.execute("PRAGMA integrity_check").fetchone() != ("ok",):
                return [-1]
            return [number for (number,) in rows.execute("SELECT number FROM rows ORDER BY number")]
    except sqlite3.DatabaseError:
        return []


@pytest.mark.parametrize("synchronous", ["FULL", "OFF"])
def test_a_database_that_waits_for_the_disk_and_one_that_does_not(
    fork: Forks, tmp_path: Path, synchronous: str
) -> None:
    folder, lost = tmp_path / "folder", 0
    folder.mkdir()
    recording = Recording(folder)
    fork(f"{HERE}:write_rows", str(folder), str(tmp_path / "log"), synchronous)
    recording.read(tmp_path / "log")
    real, replayed = disk.read(folder), recording.files(recording.moments, "all")
    assert {name for name in real if real[name] != replayed.get(name)} <= recording.mapped()
    hows: tuple[How, ...] = ("all", "names", "synced", "drawn", "strict")
    for moment in range(1, recording.moments + 1, 5):
        told = len(recording.files(moment, "all").get("told") or b"")
        for how in hows:
            found = rows_in(str(disk.written(recording.files(moment, how, moment), tmp_path / "cut")))
            lost += found not in (list(range(told)), list(range(told + 1)))
    assert (lost > 5) if synchronous == "OFF" else not lost
