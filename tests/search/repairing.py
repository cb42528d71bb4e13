"""A store of three commits that the tests of `repair` damage."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from limner.search import salvage
from limner.store.entry import key_of
from limner.search.index import index_pictures
from limner.search.repair import repair
from limner.search.salvage import SalvageProcess
from limner.search.sentences import Sentence, SentenceTable
from limner.store.files import StoreFiles
from limner.store.verify import verify
from limner.store_reports import Repair
from tests.search.fake import DIM, FakeEncoder, draw

COUNT = 9


@contextmanager
def shared_reader() -> Iterator[None]:
    """Let repairs use one process that reads, which takes 1.3 s to start, one after the other.

    `tests/search/test_salvage.py` has a process for each, and says that one remembers nothing of what it has read.
    """
    idle: list[subprocess.Popen[str]] = []
    start, leave = salvage._started, SalvageProcess.__exit__

    def started() -> "subprocess.Popen[str]":
        return idle.pop() if idle else start()

    def left(self: SalvageProcess, kind: object, *rest: object) -> None:
        # after an error it may still be in the middle of an answer
        if kind is None and self._process is not None:
            idle.append(self._process)
            self._process = None
        leave(self, kind, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(salvage, "_started", started)
        patch.setattr(SalvageProcess, "__exit__", left)
        yield
    for process in idle:
        with process:
            process.kill()


def drawn(tmp_path: Path) -> list[Path]:
    """The pictures of the store."""
    return [draw(tmp_path / "pictures" / f"{number}.png", number) for number in range(COUNT)]


def store_of(tmp_path: Path, pictures: list[Path]) -> Path:
    """A store of three commits, with sentences."""
    encoder = FakeEncoder()
    files = StoreFiles.create(tmp_path / "store", fingerprint=encoder.fingerprint, dim=DIM, run="run")
    for start in range(0, COUNT, 3):
        metadata = {str(path): {"camera": 7} for path in pictures[start : start + 3]}
        index_pictures(encoder, files, pictures[start : start + 3], metadata=metadata)
    SentenceTable(files).index(encoder, [Sentence("red", str(pictures[0])), Sentence("blue")])
    return tmp_path / "store"


def opened(folder: Path) -> StoreFiles:
    return StoreFiles.open(folder, check=False)


def newest(folder: Path, table: str = "pictures-1") -> Path:
    return min((folder / f"{table}.lance" / "_versions").glob("*.manifest"))


def vector_bytes(folder: Path, picture: Path) -> tuple[Path, int]:
    """The file and the place in it where a picture's vector begins."""
    vector = FakeEncoder().encode_images([picture])[0].tobytes()
    for file in (folder / "pictures-1.lance" / "data").iterdir():
        if (place := file.read_bytes().find(vector)) >= 0:
            return file, place
    raise AssertionError


def flip(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 0x40
    file.write_bytes(content)


def check(folder: Path, pictures: list[Path]) -> None:
    """The store holds these pictures as they are, with their metadata."""
    files = StoreFiles.open(folder)
    assert verify(files, hashes=True).found == {}
    assert sorted(files.entries()) == sorted(map(str, pictures))
    assert {entry.metadata["camera"] for entry in files.entries().values()} == {7}
    vectors = files.vectors([key_of(str(path)) for path in pictures])
    np.testing.assert_array_equal(vectors, FakeEncoder().encode_images(pictures))
    assert all(files.thumbnails([key_of(str(path)) for path in pictures]))
    names = {path.name for path in folder.iterdir()}
    assert not any(name.startswith(".salvage") for name in names)


def refuses(folder: Path) -> Repair:
    """A repair changes nothing, and says what would be lost."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    encoder = FakeEncoder()
    report = repair(opened(folder), lambda: encoder)
    assert (report.applied, report.loses, encoder.encoded) == (False, True, 0)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    return report


def can_be_read(rows: int, table: str = "pictures-1") -> tuple[str, ...]:
    return (f"{table}.lance: {rows} rows of the {COUNT} on record can be read",)
