"""An older `store.json` put back: refused, nothing of the newer generation is removed, and a repair takes it over."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from limner.errors import StoreError
from limner.search import erase as module
from limner.search import generations
from limner.search.entry import StoredImage, key_of
from limner.search.erase import erase
from limner.search.repair import repair
from limner.search.store_files import StoreFiles
from limner.search.store_path import remove
from limner.search.verify import verify


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of three images."""
    files = StoreFiles.create(tmp_path / "store", fingerprint="a" * 64, dim=3, run="run")
    add(files, "a", "b", "c")
    return tmp_path / "store"


def add(files: StoreFiles, *names: str) -> None:
    entries = [StoredImage(f"/{name}", "0" * 64, 1, 2) for name in names]
    files.add(entries, np.ones((len(names), 3), np.float32))


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".store.lock"
    }


CHANGES: list[Callable[[StoreFiles], object]] = [
    lambda files: add(files, "d"),
    lambda files: files.delete([key_of("/b")]),
    lambda files: files.compact(),
    lambda files: erase(files, key_of("/b")),
]


def test_an_older_manifest_is_refused_and_nothing_is_removed(store: Path) -> None:
    reader = StoreFiles.open(store)
    older = (store / "store.json").read_bytes()
    erase(StoreFiles.open(store), key_of("/a"))
    newer = (store / "store.json").read_bytes()
    assert len(reader) == 2
    writer = StoreFiles.open(store)
    (store / "store.json").write_bytes(older)
    before = content(store)
    said = r"store\.json is older than the tables .*generation 1, there is 2.*limner store repair"
    for read in (lambda: StoreFiles.open(store), reader.snapshot, lambda: len(reader)):
        with pytest.raises(StoreError, match=said):
            read()
    for change in CHANGES:
        for files in (writer, StoreFiles.open(store, check=False)):
            with pytest.raises(StoreError, match=said):
                change(files)
    assert content(store) == before
    report = verify(StoreFiles.open(store, check=False))
    # once: the tables that it names are gone, which is no damage of theirs
    assert (report.sound, list(report.found), report.found["manifest"].count) == (False, ["manifest"], 1)
    # either way back
    (store / "store.json").write_bytes(newer)
    assert sorted(StoreFiles.open(store).entries()) == sorted(reader.entries()) == ["/b", "/c"]
    (store / "store.json").write_bytes(older)
    repaired = repair(StoreFiles.open(store, check=False), lambda: pytest.fail("nothing to encode"))
    assert (repaired.pictures, repaired.complete) == (2, True)
    assert content(store) == {**before, "store.json": newer}
    assert sorted(reader.entries()) == ["/b", "/c"]


class KilledError(BaseException):
    """In place of SIGKILL."""


def kill(*_: object) -> None:
    raise KilledError


def test_a_generation_that_was_not_finished_is_removed(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "write_manifest", kill)
    with pytest.raises(KilledError):
        erase(StoreFiles.open(store), key_of("/a"))
    monkeypatch.undo()
    names = {path.name for path in store.iterdir()}
    assert {"pictures-2.lance", "pictures-2.commits.json", ".generation-2.partial"} <= names
    files = StoreFiles.open(store)
    assert (len(files), verify(files).sound) == (3, True)
    add(files, "d")
    names = {path.name for path in store.iterdir()}
    assert not any("-2." in name for name in names)
    # its number is used again
    assert erase(files, key_of("/a")).left == 3
    assert StoreFiles.open(store).manifest.generation == 2


@pytest.mark.parametrize("moment", ["given up", "taken over"])
def test_killed_at_each_removal(store: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """Neither a generation that takes over nor one that is given up leaves what would be refused."""
    steps = 0
    for step in range(20):
        files = StoreFiles.open(store)
        add(files, "a")
        if moment == "given up":
            with monkeypatch.context() as patch:
                patch.setattr(module, "write_manifest", kill)
                with pytest.raises(KilledError):
                    erase(files, key_of("/a"))
        left = [step]

        def counted(path: Path, left: list[int] = left) -> None:
            if not left[0]:
                raise KilledError
            left[0] -= 1
            remove(path)

        with monkeypatch.context() as patch:
            patch.setattr(generations, "remove", counted)
            try:
                if moment == "given up":
                    files.delete([key_of("/no")])
                else:
                    erase(files, key_of("/a"))
            except KilledError:
                steps += 1
        files = StoreFiles.open(store)
        assert (len(files), verify(files).sound) == (3 if moment == "given up" else 2, True)
    # two files of the table, and the mark
    assert 3 <= steps < 20
