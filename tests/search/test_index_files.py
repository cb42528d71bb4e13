import os
from pathlib import Path

import pytest

from limner.errors import DataError
from limner.search.find_pictures import find_pictures


def test_folders_are_searched_and_files_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["b.JPG", "a.png", "deep/er/c.webp", "deep/d.tiff", "e.gif", "f.bmp", "g.jpeg", "h.tif"]
    others = [".hidden.jpg", ".thumbs/i.jpg", "notes.txt", "deep/readme"]
    for name in (*names, *others):
        path = tmp_path / "set" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "set" / "circle").symlink_to(tmp_path / "set")
    explicit = tmp_path / "set" / "notes.txt"
    monkeypatch.chdir(tmp_path)
    found, skipped, _ = find_pictures(["set", explicit, "set/a.png", Path("set/deep/..") / "f.bmp"])
    assert sorted(found) == sorted(str(tmp_path / "set" / name) for name in [*names, "notes.txt"])
    assert len(found) == len(set(found))
    assert not skipped


def test_nothing_to_find_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        find_pictures([tmp_path / "missing"])
    with pytest.raises(DataError, match="no pictures in"):
        find_pictures([tmp_path])
    with pytest.raises(DataError, match="an empty list"):
        find_pictures([])


def test_folders_that_cannot_be_listed_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    (tmp_path / "a.png").touch()
    scan = os.scandir

    def refusing(path: str) -> object:
        if path == str(closed):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refusing)
    found, skipped, _ = find_pictures([tmp_path])
    assert found == [str(tmp_path / "a.png")]
    assert skipped == [(str(closed), "folder cannot be listed (Permission denied)")]
