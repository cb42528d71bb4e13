"""A backup is the store of one moment, beside whoever writes, or is refused and leaves nothing."""

import errno
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from limner.errors import LimnerError, SettingsError, StoreError
from limner.store.backup import backup
from limner.store.entry import StoredImage
from limner.store.files import StoreFiles
from limner.store.sqlite_rows import SqliteRows

DIM = 3


def add(files: StoreFiles, name: str) -> None:
    files.add([StoredImage(f"/{name}", "0" * 64, 1, 1)], np.ones((1, DIM), np.float32), thumbnails=[b"x"])


def paths(folder: Path) -> list[str]:
    return StoreFiles.open(folder).snapshot().columns.paths


@pytest.fixture
def files(tmp_path: Path) -> StoreFiles:
    made = StoreFiles.create(tmp_path / "store", fingerprint="a" * 64, dim=DIM, run="run")
    add(made, "a")
    return made


def test_while_an_indexing_holds_the_lock_it_is_what_was_committed(files: StoreFiles, tmp_path: Path) -> None:
    entry = StoredImage("/b", "0" * 64, 1, 1)
    with files.changing() as writer:
        writer.add([entry], np.ones((1, DIM), np.float32))
        assert backup(str(files.folder), tmp_path / "copy").pictures == 1
        writer.commit()
        assert backup(str(files.folder), tmp_path / "later").pictures == 2
    assert paths(tmp_path / "copy") == ["/a"]
    assert paths(tmp_path / "later") == ["/a", "/b"]


def test_the_copy_holds_the_model_and_can_be_put_back(files: StoreFiles, tmp_path: Path) -> None:
    (tmp_path / "store" / "model").mkdir()
    (tmp_path / "store" / "model" / "run.json").write_text("{}")
    backup(str(files.folder), tmp_path / "copy")
    assert (tmp_path / "copy" / "model" / "run.json").read_text() == "{}"
    add(files, "b")
    files.forget()
    shutil.rmtree(tmp_path / "store")
    shutil.copytree(tmp_path / "copy", tmp_path / "store")
    assert paths(tmp_path / "store") == ["/a"]
    add(StoreFiles.open(tmp_path / "store"), "c")
    # whoever had it open follows
    assert files.snapshot().columns.paths == ["/a", "/c"]


def test_a_store_that_is_replaced_meanwhile_is_refused(
    files: StoreFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = SqliteRows.copy

    def late(self: SqliteRows, folder: Path) -> None:
        if self.folder.name == "store":
            shutil.rmtree(self.folder)
            StoreFiles.create(self.folder, fingerprint="b" * 64, dim=DIM, run="run")
        copy(self, folder)

    monkeypatch.setattr(SqliteRows, "copy", late)
    with pytest.raises(StoreError, match="was replaced by another store meanwhile; copy it again"):
        backup(str(files.folder), tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_what_a_killed_backup_has_left_goes_with_the_next(
    files: StoreFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = SqliteRows.copy

    def killed(self: SqliteRows, folder: Path) -> None:
        copy(self, folder)
        monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
        raise KeyboardInterrupt

    monkeypatch.setattr(SqliteRows, "copy", killed)
    with pytest.raises(KeyboardInterrupt):
        backup(str(files.folder), tmp_path / "copy")
    monkeypatch.undo()
    (left,) = tmp_path.glob(".copy*")
    (left / "old").touch()
    (left / "model").mkdir()
    backup(str(files.folder), tmp_path / "copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "store"]
    assert not (tmp_path / "copy" / "old").exists()
    assert not (tmp_path / "copy" / "model").exists()


def test_a_second_backup_into_the_same_folder_leaves_the_first_alone(
    files: StoreFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, refused = SqliteRows.copy, list[str]()

    def slow(self: SqliteRows, folder: Path) -> None:
        copy(self, folder)
        monkeypatch.undo()
        with ThreadPoolExecutor(1) as other, pytest.raises(StoreError, match="is being written") as error:
            other.submit(backup, str(files.folder), tmp_path / "copy").result()
        refused.append(str(error.value))

    monkeypatch.setattr(SqliteRows, "copy", slow)
    backup(str(files.folder), tmp_path / "copy")
    assert refused
    assert paths(tmp_path / "copy") == ["/a"]


def test_a_link_where_the_copy_is_put_together_is_not_followed(files: StoreFiles, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    (tmp_path / ".copy.partial").symlink_to(tmp_path / "mine")
    with pytest.raises(SettingsError, match="is a link"):
        backup(str(files.folder), tmp_path / "copy")
    assert (tmp_path / "mine" / "file").exists()


def test_refusals(files: StoreFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = str(files.folder)
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for copy, message in (
        (tmp_path / "there", "is there already"),
        (tmp_path / "link", "is there already"),
        (Path(store) / "copy", "lies in the store"),
    ):
        with pytest.raises(SettingsError, match=message):
            backup(store, copy)
    with pytest.raises(LimnerError, match="copy it with the tools of the storage"):
        backup("s3://bucket/store", tmp_path / "copy")
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be written"):
        backup(store, tmp_path / "file" / "copy")

    def full(self: SqliteRows, folder: Path) -> None:
        (folder / "store.sqlite").write_bytes(b"SQLite")
        raise StoreError(f"{folder}: cannot be used (the disk is full); make room on its disk", "full")

    with monkeypatch.context() as patch:
        patch.setattr(SqliteRows, "copy", full)
        with pytest.raises(StoreError, match="make room"):
            backup(store, tmp_path / "copy")

    def no_room(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (Path(store) / "model" / "deep").mkdir(parents=True)
    (Path(store) / "model" / "deep" / "a").touch()
    monkeypatch.setattr("shutil.copyfile", no_room)
    with pytest.raises(StoreError) as told:
        backup(store, tmp_path / "copy")
    assert str(told.value) == f"{tmp_path / 'copy'}: cannot be written (No space left on device)"
    assert told.value.trouble == "full"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link", "store", "there"]
