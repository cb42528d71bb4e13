"""What an erasure leaves where it may not write, or what others have put into a store's folder."""

import os
from pathlib import Path

from limner.store.erase import erase
from tests.store.erasing import made, store_of


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
