"""A repair is one commit: one that is killed, or whose pictures change while it works, has changed nothing."""

import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from limner.errors import StoreError
from limner.search.index import index_pictures
from limner.search.repair import repair
from limner.store.files import StoreFiles
from limner.store.sqlite_transactions import SqliteWriting
from limner.store.verify import verify
from limner.store.writer import StoreWriter
from tests.search.fake import DIM, FakeEncoder, draw

COUNT = 6


@pytest.fixture
def files(tmp_path: Path) -> StoreFiles:
    pictures = [draw(tmp_path / "pictures" / f"{number}.png", number) for number in range(COUNT)]
    made = StoreFiles.create(tmp_path / "store", fingerprint="a" * 64, dim=DIM, run="run")
    index_pictures(FakeEncoder(), made, pictures)
    database = sqlite3.connect(tmp_path / "store" / "store.sqlite")
    database.execute(f"UPDATE vectors SET vector = zeroblob({4 * DIM}) WHERE number < 4")
    database.commit()
    database.close()
    return made


def held(folder: Path) -> list[str]:
    # the rows, and not the file: SQLite may take the log into it
    database = sqlite3.connect(folder / "store.sqlite")
    dump = list(database.iterdump())
    database.close()
    return dump


class KilledError(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("step", ["add", "recount", "commit"])
def test_a_repair_that_is_killed_changes_nothing(
    files: StoreFiles, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = held(tmp_path / "store")

    def killed(self: SqliteWriting, *given: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(SqliteWriting, step, killed)
        with pytest.raises(KilledError):
            repair(files, FakeEncoder)
    assert held(tmp_path / "store") == before
    report = repair(StoreFiles.open(files.folder), FakeEncoder)
    assert (report.applied, len(report.repaired), report.pictures) == (True, 3, COUNT)
    assert verify(files).sound


def test_a_picture_that_changes_while_it_works_ends_it(
    files: StoreFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = held(tmp_path / "store")
    begin = StoreFiles.changing

    def late(self: StoreFiles) -> object:
        draw(tmp_path / "pictures" / "1.png", 77)
        return begin(self)

    monkeypatch.setattr(StoreFiles, "changing", late)
    with pytest.raises(StoreError, match="pictures have changed meanwhile; repair it again"):
        repair(files, FakeEncoder)
    assert held(tmp_path / "store") == before


def test_two_repairs_at_once(files: StoreFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    add = StoreWriter.add
    refused: list[str] = []

    def beside(self: StoreWriter, *given: object) -> None:
        with pytest.raises(StoreError) as caught:
            repair(StoreFiles.open(files.folder), FakeEncoder)
        refused.append(str(caught.value))
        add(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(StoreWriter, "add", beside)
    assert repair(files, FakeEncoder).applied
    assert refused
    assert all("is being written by another process" in one for one in refused)
    assert verify(files).sound


def test_pictures_that_stay_keep_their_rows(files: StoreFiles, tmp_path: Path) -> None:
    """And those that are encoded again have the vectors that they had."""
    whole = FakeEncoder().encode_images([tmp_path / "pictures" / f"{number}.png" for number in range(COUNT)])
    repair(files, FakeEncoder)
    np.testing.assert_array_equal(files.snapshot().matrix, whole)
    shutil.rmtree(tmp_path / "pictures")
    assert not repair(files, FakeEncoder).loses


def test_any_file_of_a_picture_mends_it(files: StoreFiles, tmp_path: Path) -> None:
    first = files.images()[0]
    copy = shutil.copy2(first.path, tmp_path / "copy.png")
    index_pictures(FakeEncoder(), files, [copy])
    before = files.images()[0]
    Path(first.path).unlink()
    report = repair(files, FakeEncoder)
    assert (report.applied, len(report.repaired), report.lost) == (True, 3, ())
    assert files.images()[0] == before
