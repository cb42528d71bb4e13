"""A file that is older than the store's last commit is refused, and so is a store of another format."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from limner.durable import from_json, opened, sealed
from limner.errors import StoreError
from limner.search.repair import repair
from limner.store.backup import backup
from limner.store.entry import StoredImage, key_of
from limner.store.erase import erase
from limner.store.files import StoreFiles
from limner.store.manifest import FORMAT
from limner.store.verify import verify
from tests.search.fake import FakeEncoder

DIM = 3


def add(files: StoreFiles, *names: str) -> None:
    entries = [StoredImage(f"/{name}", "0" * 64, 1, 1) for name in names]
    files.add(entries, np.eye(DIM, dtype=np.float32)[: len(names)])


def paths(files: StoreFiles) -> list[str]:
    return files.snapshot().columns.paths


@pytest.fixture
def files(tmp_path: Path) -> StoreFiles:
    made = StoreFiles.create(tmp_path / "store", fingerprint="a" * 64, dim=DIM, run="run")
    add(made, "a", "b")
    # all of it is in the file, and nothing in the log
    made.rows.scrub()
    shutil.copy(tmp_path / "store" / "store.sqlite", tmp_path / "earlier")
    add(made, "c")
    made.rows.scrub()
    return made


READS: dict[str, Callable[[StoreFiles], object]] = {
    "open": lambda files: StoreFiles.open(files.folder),
    "search": lambda files: files.snapshot(),
    "entries": StoreFiles.entries,
    "length": len,
    "repair": lambda files: repair(files, FakeEncoder),
    "backup": lambda files: backup(str(files.folder), f"{files.folder}-copy"),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_an_older_file_is_refused_and_nothing_is_changed(
    files: StoreFiles, tmp_path: Path, read: Callable[[StoreFiles], object]
) -> None:
    files.forget()
    file = tmp_path / "store" / "store.sqlite"
    # as `cp` to another name and `mv` do it, so that it is also seen by whoever has the store open
    shutil.copy(tmp_path / "earlier", tmp_path / "new")
    (tmp_path / "new").replace(file)
    with pytest.raises(StoreError, match=r"is older than its last commit, number 2.*put back a copy"):
        read(files)
    found = verify(files)
    assert (found.sound, set(found.found) & {"file"}) == (False, {"file"})
    assert file.read_bytes() == (tmp_path / "earlier").read_bytes()
    assert not (tmp_path / "store-copy").exists()


CHANGES: dict[str, Callable[[StoreFiles], object]] = {
    "add": lambda files: add(files, "d"),
    "delete": lambda files: files.delete([key_of("/a")]),
    "text": lambda files: files.rows.set_text("calibration", "{}"),
    "erase": lambda files: erase(files, [key_of("/a")]),
    "scrub": lambda files: files.rows.scrub(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_nothing_is_written_into_an_older_file(
    files: StoreFiles, tmp_path: Path, change: Callable[[StoreFiles], object]
) -> None:
    """Also by whoever has the store open: it would take the last commits away, and the file would look sound."""
    assert len(files.snapshot().keys) == 3
    shutil.copy(tmp_path / "earlier", tmp_path / "new")
    (tmp_path / "new").replace(tmp_path / "store" / "store.sqlite")
    with pytest.raises(StoreError, match="is older than its last commit, number 2"):
        change(files)
    with pytest.raises(StoreError, match="is older than its last commit, number 2"):
        StoreFiles.open(tmp_path / "store")


def test_a_log_that_is_gone_or_damaged_loses_no_commit_without_an_error(
    files: StoreFiles, tmp_path: Path
) -> None:
    """As after a kill, which leaves commits in the log alone."""
    held = sqlite3.connect(tmp_path / "store" / "store.sqlite")
    held.execute("SELECT count(*) FROM texts").fetchone()
    for name in "def":
        add(files, name)
    killed = tmp_path / "killed"
    # while somebody has it open nothing is taken out of the log
    shutil.copytree(tmp_path / "store", killed)
    held.close()
    assert paths(StoreFiles.open(shutil.copytree(killed, tmp_path / "whole"))) == [f"/{x}" for x in "abcdef"]
    size = (killed / "store.sqlite-wal").stat().st_size
    assert size > 3 * 16384
    refused: list[str] = []
    for number, place in enumerate([None, *range(40, size, size // 25)]):
        folder = Path(shutil.copytree(killed, tmp_path / f"damaged {number}"))
        log = folder / "store.sqlite-wal"
        if place is None:
            log.unlink()
        else:
            content = bytearray(log.read_bytes())
            content[place] ^= 1
            log.write_bytes(content)
        try:
            assert paths(StoreFiles.open(folder)) == [f"/{x}" for x in "abcdef"]
        except StoreError as error:
            refused.append(str(error))
    assert len(refused) > 20
    assert all("damaged" in one for one in refused)


@pytest.mark.parametrize(
    ("version", "advice"), [(FORMAT - 1, "index into a new folder"), (FORMAT + 1, "upgrade limner")]
)
def test_a_store_of_another_format_has_one_clear_line(
    files: StoreFiles, tmp_path: Path, version: int, advice: str
) -> None:
    values = opened(from_json(files.rows.text("description") or ""))
    files.rows.set_text("description", sealed({**values, "format": version}))
    with pytest.raises(
        StoreError, match=f"store format {version}, and this limner reads {FORMAT}; {advice}$"
    ):
        StoreFiles.open(tmp_path / "store")


def test_a_store_of_before_sqlite_has_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "store.json").write_text('{"format": 4}', encoding="utf-8")
    with pytest.raises(StoreError, match=r"a store of an earlier limner; index into a new folder$"):
        StoreFiles.open(tmp_path / "store")
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["store.json"]


def test_an_older_file_under_a_name_of_its_own_is_a_store(files: StoreFiles, tmp_path: Path) -> None:
    """The record goes with the file: a copy of a whole folder can be put back."""
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    add(files, "d")
    assert paths(StoreFiles.open(tmp_path / "copy")) == ["/a", "/b", "/c"]
    database = sqlite3.connect(tmp_path / "copy" / "store.sqlite")
    assert database.execute("SELECT sum(version) FROM states").fetchone() == (2,)
    database.close()
