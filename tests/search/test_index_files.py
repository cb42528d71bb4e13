import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limner.errors import DataError
from limner.search.find_pictures import find_pictures, hint, is_picture_ending, told


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
    found, skipped, passed_over, *_ = find_pictures(
        ["set", explicit, "set/a.png", Path("set/deep/..") / "f.bmp"]
    )
    assert sorted(found) == sorted(str(tmp_path / "set" / name) for name in [*names, "notes.txt"])
    assert len(found) == len(set(found))
    assert not skipped
    # notes.txt was named, and is a picture then
    assert passed_over == {"": 1}


@given(
    st.lists(
        st.sampled_from([".jpg", ".HEIC", ".cr2", ".txt", ".mp4", "", ".a-very-long-ending", ".x\x1b[2J"])
    )
)
def test_every_file_is_a_picture_or_counted(endings: list[str]) -> None:
    with TemporaryDirectory() as above:
        folder = Path(above) / "pictures"
        for number, ending in enumerate([".png", *endings]):
            path = folder / str(number % 3) / f"{number}{ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        # one folder within the other: no file counts twice
        found, _, passed_over, *_ = find_pictures([folder, folder / "0"])
    assert len(found) + sum(passed_over.values()) == 1 + len(endings)
    assert passed_over.get(".cr2", 0) == endings.count(".cr2")
    assert "\x1b" not in told(passed_over)
    kinds = [is_picture_ending(ending) for ending in passed_over]
    assert kinds == sorted(kinds, reverse=True)
    assert (hint(passed_over) is None) == (True not in kinds)


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
    found, skipped, *_ = find_pictures([tmp_path])
    assert found == [str(tmp_path / "a.png")]
    assert skipped == [(str(closed), "folder cannot be listed (Permission denied)")]
