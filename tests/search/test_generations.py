"""An older `store.json` put back: refused, nothing of the newer generation is removed, and a repair takes it over."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from limner.errors import StoreError
from limner.search import erase as module
from limner.search import generations
from limner.store.entry import StoredImage, key_of
from limner.store.erase import erase
from limner.search.repair import repair
from limner.store.files import StoreFiles
from limner.store.path import remove
from limner.store.verify import verify


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
    assert (repaired.pictures, repaired.loses) == (2, False)
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


def test_a_refused_repair_removes_no_earlier_generation(store: Path, tmp_path: Path) -> None:
    """Of an erasure that was killed before it had removed it: it may be all that can be read. An erasure removes it."""
    shutil.copytree(store, tmp_path / "copy")
    erase(StoreFiles.open(store), key_of("/a"))
    for path in (tmp_path / "copy").glob("pictures-1.*"):
        (shutil.copytree if path.is_dir() else shutil.copy)(path, store / path.name)
    files = list((store / "pictures-2.lance" / "data").iterdir())
    whole = [file.read_bytes() for file in files]
    for file in files:
        file.write_bytes(file.read_bytes()[:100])
    before = content(store)
    assert not repair(StoreFiles.open(store, check=False), lambda: pytest.fail("encoded")).applied
    assert content(store) == before
    for file, data in zip(files, whole, strict=True):
        file.write_bytes(data)
    erase(StoreFiles.open(store), key_of("/none"))
    assert not list(store.glob("pictures-1.*"))
    assert sorted(StoreFiles.open(store).entries()) == ["/b", "/c"]


STRAYS: dict[str, Callable[[Path], object]] = {
    "an empty folder": lambda store: (store / "pictures-9.lance").mkdir(),
    "an empty record": lambda store: (store / "sentences-9.commits.json").write_bytes(b""),
    "a copy of a table": lambda store: shutil.copytree(
        store / "pictures-1.lance", store / "pictures-3.lance"
    ),
    "a table and its record": lambda store: [
        shutil.copytree(store / "pictures-1.lance", store / "pictures-2.lance"),
        shutil.copy(store / "pictures-1.commits.json", store / "pictures-2.commits.json"),
    ],
}


@pytest.mark.parametrize("kind", STRAYS)
def test_a_repair_gives_up_no_generation_for_what_looks_like_a_later_one(store: Path, kind: str) -> None:
    files = sorted(StoreFiles.open(store).entries())
    STRAYS[kind](store)
    before = content(store)
    with pytest.raises(StoreError, match="older than the tables"):
        StoreFiles.open(store)
    for accept_loss in (False, True):
        with pytest.raises(StoreError, match=r"nothing was changed\. Move away"):
            repair(
                StoreFiles.open(store, check=False), lambda: pytest.fail("encoded"), accept_loss=accept_loss
            )
    assert content(store) == before
    for path in [path for path in store.iterdir() if re.search(r"-[239]\.", path.name)]:
        remove(path)
    assert sorted(StoreFiles.open(store).entries()) == files


def test_nor_for_an_erasure_that_was_killed_and_lost_its_mark(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "write_manifest", kill)
    with pytest.raises(KilledError):
        erase(StoreFiles.open(store), key_of("/a"))
    (store / ".generation-2.partial").unlink()
    before = content(store)
    with pytest.raises(StoreError, match=r"nothing was changed\. Move away"):
        repair(StoreFiles.open(store, check=False), lambda: pytest.fail("nothing to encode"))
    assert content(store) == before


@pytest.mark.parametrize("of", ["a later copy", "another store"])
def test_nothing_is_removed_for_a_manifest_whose_tables_are_not_there(
    store: Path, tmp_path: Path, of: str
) -> None:
    later = tmp_path / "later"
    if of == "a later copy":
        shutil.copytree(store, later)
    else:
        add(StoreFiles.create(later, fingerprint="a" * 64, dim=3, run="run"), "d", "e")
    erase(StoreFiles.open(later), key_of("/a" if of == "a later copy" else "/d"))
    writer, own = StoreFiles.open(store), (store / "store.json").read_bytes()
    (store / "store.json").write_bytes((later / "store.json").read_bytes())
    before = content(store)
    for change in CHANGES:
        with pytest.raises(StoreError):
            change(writer)
    for accept_loss in (False, True):
        with pytest.raises(StoreError, match="nothing was removed"):
            repair(
                StoreFiles.open(store, check=False), lambda: pytest.fail("encoded"), accept_loss=accept_loss
            )
    assert content(store) == before
    (store / "store.json").write_bytes(own)
    assert sorted(StoreFiles.open(store).entries()) == ["/a", "/b", "/c"]
