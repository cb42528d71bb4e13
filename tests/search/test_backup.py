"""Backups of a store that is written to meanwhile: each is the store of one moment."""

import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limner.errors import SettingsError, StoreError
from limner.requests import SearchRequest
from limner.search import backup as module
from limner.search.backup import backup
from limner.search.engine import Engine
from limner.search.erase import erase
from limner.search.index import index_pictures
from limner.search.sentences import Sentence, SentenceTable
from limner.search.store_files import StoreFiles
from limner.search.verify import verify
from tests.search.fake import DIM, FakeEncoder, draw

Contents = dict[str, tuple[str, str, bytes | None]]
"""The rows of a store by their keys: digest of the file, metadata, thumbnail."""

SLOW = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))


def made(folder: Path) -> StoreFiles:
    encoder = FakeEncoder()
    files = StoreFiles.create(folder / "store", fingerprint=encoder.fingerprint, dim=DIM, run="run")
    pictures = [draw(folder / "pictures" / f"{seed}.png", seed) for seed in range(6)]
    index_pictures(encoder, files, pictures, metadata={str(one): {"camera": 1} for one in pictures})
    SentenceTable(files).index(encoder, [Sentence("a red coat", str(pictures[0])), Sentence("blue")])
    return files


def contents_of(folder: Path) -> Contents:
    files = StoreFiles.open(folder)
    snapshot = files.snapshot()
    keys = list(snapshot.keys)
    rows = files.read(lambda: files.table.rows(keys, ["id", "sha256", "metadata"])).to_pylist()
    thumbnails = dict(zip(keys, files.thumbnails(keys), strict=True))
    return {row["id"]: (row["sha256"], row["metadata"], thumbnails[row["id"]]) for row in rows}


class Writer:
    """Another process, as far as the store is concerned, and the contents after each of its changes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.encoder, self.count = folder, FakeEncoder(), 100
        self.states = [contents_of(folder / "store")]

    def change(self, kind: str) -> None:
        files = StoreFiles.open(self.folder / "store")
        keys = sorted(files.snapshot().keys)
        self.count += 1
        if kind == "add":
            new = [draw(self.folder / "pictures" / f"{self.count}.png", self.count)]
            index_pictures(self.encoder, files, new)
        elif kind == "facts":
            one = files.entry(keys[0])
            assert one is not None
            index_pictures(self.encoder, files, [Path(one.path)], metadata={one.path: {"camera": self.count}})
        elif kind == "delete" and len(keys) > 2:
            files.delete(keys[:1])
        elif kind == "compact":
            files.compact()
        elif kind == "erase" and len(keys) > 2:
            erase(files, keys[-1:])
        self.states.append(contents_of(self.folder / "store"))


KINDS = st.sampled_from(["add", "facts", "delete", "compact", "erase"])


def while_copying(monkeypatch: pytest.MonkeyPatch, changes: dict[int, Callable[[], None]]) -> None:
    """Make each change before the file of its number is copied."""
    copied, copy_file = 0, module._copy_file

    def copying(source: Path, target: Path) -> None:
        nonlocal copied
        change = changes.pop(copied, None)
        copied += 1
        if change is not None:
            change()
        copy_file(source, target)

    monkeypatch.setattr(module, "_copy_file", copying)


@given(st.dictionaries(st.integers(0, 14), KINDS, min_size=1, max_size=4))
@SLOW
def test_whatever_changes_at_whichever_moment_the_copy_is_of_one_moment(
    tmp_path_factory: pytest.TempPathFactory, moments: dict[int, str]
) -> None:
    folder = tmp_path_factory.mktemp("backup")
    made(folder)
    writer = Writer(folder)
    with pytest.MonkeyPatch.context() as patch:
        steps: dict[int, Callable[[], None]] = {
            number: partial(writer.change, kind) for number, kind in moments.items()
        }
        while_copying(patch, steps)
        report = backup(folder / "store", folder / "copy")
    assert report.sound
    assert contents_of(folder / "copy") in writer.states
    # it can be written to as the store can
    files = StoreFiles.open(folder / "copy")
    index_pictures(FakeEncoder(), files, [draw(folder / "pictures" / "999.png", 999)])
    assert verify(files).sound


def test_without_the_second_look_a_copy_of_two_moments_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This file's own eyes: the property above fails if the copying does not look again."""
    monkeypatch.setattr(module, "_rows_of", lambda seen: {})
    for number in range(20):
        folder = tmp_path / str(number)
        made(folder)
        writer = Writer(folder)
        with monkeypatch.context() as patch:
            while_copying(patch, {number: partial(writer.change, "add")})
            try:
                backup(folder / "store", folder / "copy")
            except StoreError:
                # the check of the copy has found it, which is the second line of defence
                return
        if contents_of(folder / "copy") not in writer.states:
            return
    raise AssertionError("no moment at which a copy without a second look is wrong")


def test_a_writer_that_never_pauses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is taken in the end, between two of its changes."""
    made(tmp_path)
    monkeypatch.setattr(module, "_PAUSE_FOR", 0.0)
    writer, done = Writer(tmp_path), threading.Event()
    trouble: list[Exception] = []

    def write() -> None:
        while not done.is_set():
            try:
                writer.change("add")
            except StoreError as error:
                # as a server's clients are told while another process writes
                trouble.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for number in range(3):
            assert backup(tmp_path / "store", tmp_path / f"copy{number}").sound
    finally:
        done.set()
        thread.join()
    assert all("being written by another process" in str(error) for error in trouble)
    for number in range(3):
        assert contents_of(tmp_path / f"copy{number}") in writer.states


def test_while_an_indexing_holds_the_lock(tmp_path: Path) -> None:
    """It may hold it for hours, and changes nothing between two of its commits."""
    files = made(tmp_path)
    with StoreFiles.open(files.folder).writing():
        (tmp_path / "store" / "segments" / "growing").write_bytes(b"begun")
        assert backup(tmp_path / "store", tmp_path / "copy").sound
    assert contents_of(tmp_path / "copy") == contents_of(tmp_path / "store")


def test_the_copy_answers_as_the_store(tmp_path: Path) -> None:
    made(tmp_path)
    backup(tmp_path / "store", tmp_path / "copy")
    found = [
        [
            (hit.id, hit.score)
            for hit in Engine(StoreFiles.open(tmp_path / name), FakeEncoder()).answer(
                SearchRequest(text="red")
            )
        ]
        for name in ("store", "copy")
    ]
    assert found[0] == found[1] != []
    assert not list(tmp_path.glob(".copy*"))


def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = made(tmp_path)
    store = tmp_path / "store"
    for copy in (tmp_path / "pictures", store):
        with pytest.raises(SettingsError, match="is there already"):
            backup(store, copy)
    (tmp_path / "link").symlink_to(store)
    for inside in (store / "copy", tmp_path / "link" / "copy"):
        with pytest.raises(SettingsError, match="lies in the store"):
            backup(store, inside)
    pytest.importorskip("s3fs")
    with pytest.raises(SettingsError, match="is no folder"):
        backup("s3://bucket/store", tmp_path / "copy")
    with pytest.raises(StoreError, match=r"no such|not a store|no store"):
        backup(tmp_path / "nowhere", tmp_path / "copy")

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfileobj", full)
        with pytest.raises(StoreError, match="No space left"):
            backup(store, tmp_path / "copy")
    segment = next((store / "segments").iterdir())
    segment.write_bytes(bytes(segment.stat().st_size))
    with pytest.raises(StoreError, match="the copy is damaged"):
        backup(store, tmp_path / "copy")
    # nothing is left of any of them
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link", "pictures", "store"]
    assert len(files) == 6
