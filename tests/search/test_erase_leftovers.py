"""What an erasure leaves where it may not write, or what others have put into a store's folder."""

import os
import shutil
from pathlib import Path

import pytest

from limner.store.erase import erase
from limner.search.repair import repair
from limner.store.files import StoreFiles
from limner.store.verify import verify
from tests.search.erasing import add, made, store_of
from tests.search.fake import FakeEncoder

NEWEST = "_versions/*.manifest"


def test_a_name_in_the_model_is_told_and_searched_for_elsewhere(tmp_path: Path) -> None:
    some = [made(number, 1, False) for number in range(4)]
    files = store_of(tmp_path / "store", some)
    name = some[0].entry.identity
    assert name is not None
    (tmp_path / "store" / "model").mkdir()
    (tmp_path / "store" / "model" / "words.bin").write_bytes(b"\0" + name.encode() + b"\0")
    report = erase(files, identity=name)
    assert (report.traces.model, report.traces.shared, report.found) == (1, 0, ())
    (tmp_path / "store" / "notes.txt").write_text(f"seen: {name}", encoding="utf-8")
    assert [one.file for one in erase(files, identity=name).found] == ["notes.txt"]


def test_a_file_whose_name_is_not_unicode(tmp_path: Path) -> None:
    some = [made(number, 2, False) for number in range(3)]
    files = store_of(tmp_path / "store", some)
    path = some[0].entry.path
    with open(os.fsencode(tmp_path / "store") + b"/f\xfe.bin", "wb") as file:  # noqa: PTH123 - bytes
        file.write(path.encode())
    report = erase(files, paths=path)
    assert [one.file for one in report.found] == ["f\\xfe.bin"]
    # as an answer over HTTP
    assert "xfe" in report.model_dump_json()


def test_a_folder_among_the_segments_stops_nobody(tmp_path: Path) -> None:
    some = [made(number, 3, True) for number in range(6)]
    files = store_of(tmp_path / "store", some)
    (tmp_path / "store" / "segments" / "somebody's").mkdir()
    add(files, [made(9, 3, True)])
    assert erase(files, paths=some[0].entry.path).found == ()
    files.tidy()
    assert verify(files).sound


def test_tables_that_could_not_be_removed_are_told(tmp_path: Path) -> None:
    some = [made(number, 4, False) for number in range(4)]
    files = store_of(tmp_path / "store", some)
    shutil.copytree(tmp_path / "store" / "pictures-1.lance", tmp_path / "old")
    erase(files, paths=some[0].entry.path)
    assert "generation" not in verify(files).found
    shutil.copytree(tmp_path / "old", tmp_path / "store" / "pictures-1.lance")
    found = verify(files).found["generation"]
    assert (found.count, found.example) == (1, "pictures-1.lance")
    # as it says, the next change removes them
    add(files, [made(9, 4, False)])
    assert not (tmp_path / "store" / "pictures-1.lance").exists()


@pytest.mark.parametrize("fault", ["gone", "cut", "zeros"])
@pytest.mark.parametrize("deleted", [1, 2, 3])
def test_a_repair_that_cannot_tell_what_was_deleted_says_so(tmp_path: Path, fault: str, deleted: int) -> None:
    some = [made(number, 5, False) for number in range(8)]
    files = store_of(tmp_path / "store", some)
    for one in some[:deleted]:
        files.delete([one.entry.id])
    newest = min((tmp_path / "store" / "pictures-1.lance").glob(NEWEST))
    content = newest.read_bytes()
    newest.unlink()
    if fault != "gone":
        newest.write_bytes(content[:100] if fault == "cut" else bytes(len(content)))
    opened = StoreFiles.open(tmp_path / "store", check=False)
    report = repair(opened, FakeEncoder, accept_loss=True)
    # the last deletion is undone, and nobody can say which rows are of it
    assert report.pictures == 8 - deleted + 1
    assert report.earlier == report.pictures
    assert report.missing
