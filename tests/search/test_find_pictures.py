import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from limner.errors import DataError
from limner.search.find_pictures import FoundPictures, find_pictures


def drawn(path: Path, kind: str = "jpeg") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8)).save(path, kind)
    return path


def names(found: FoundPictures, folder: Path) -> list[str]:
    return [os.path.relpath(path, folder) for path in found.pictures]


@pytest.mark.parametrize(
    "name",
    [
        *("@eaDir", "#recycle", "@Recycle", "$RECYCLE.BIN", "System Volume Information", "lost+found"),
        *("__MACOSX", "Thumbnails", "Previews.lrdata", ".Trash-1000"),
    ],
)
def test_folders_of_other_systems_hold_no_pictures(tmp_path: Path, name: str) -> None:
    drawn(tmp_path / "a.jpg")
    for folder in (name, f"2023/{name}", f"2024/{name.upper()}/deeper"):
        drawn(tmp_path / folder / "b.jpg")
    found = find_pictures([tmp_path])
    assert names(found, tmp_path) == ["a.jpg"]
    # hidden ones are nobody's business
    assert sum(found.left_out.values()) == (0 if name.startswith(".") else 3)
    # whoever names it means it
    assert names(find_pictures([tmp_path / name]), tmp_path) == [f"{name}/b.jpg"]


def test_of_a_photo_library_the_originals(tmp_path: Path) -> None:
    library = tmp_path / "My.photoslibrary"
    for name in ("originals/A/a.heic.jpg", "Masters/b.jpg", "resources/derivatives/a.jpg", "database/c.jpg"):
        drawn(library / name)
    found = find_pictures([tmp_path])
    assert names(found, library) == ["Masters/b.jpg", "originals/A/a.heic.jpg"]
    assert found.left_out == {"resources of a photo library": 1, "database of a photo library": 1}


def test_links_to_folders_are_counted(tmp_path: Path) -> None:
    drawn(tmp_path / "real" / "a.jpg")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "circle").symlink_to(tmp_path)
    found = find_pictures([tmp_path])
    assert (names(found, tmp_path), found.left_out) == (["real/a.jpg"], {"links to folders": 2})
    # given itself it is followed
    assert names(find_pictures([tmp_path / "link"]), tmp_path) == ["link/a.jpg"]


def test_excluded_by_options_and_files(tmp_path: Path) -> None:
    for name in (
        "a.jpg",
        "a_thumb.jpg",
        "raw/b.jpg",
        "2023/raw/c.jpg",
        "2023/d.jpg",
        "2023/old/e.jpg",
        "other/old/g.jpg",
        "old/f.jpg",
    ):
        drawn(tmp_path / name)
    (tmp_path / "2023" / ".limnerignore").write_bytes("# mine\r\n\r\nold/\r\n".encode("utf-8-sig"))
    found = find_pictures([tmp_path], ["*_thumb.*", "raw", "2023/d.*"])
    assert names(found, tmp_path) == ["a.jpg", "old/f.jpg", "other/old/g.jpg"]
    assert found.left_out == {"*_thumb.*": 1, "raw": 2, "2023/d.*": 1, "old/": 1}
    # of a file that is named nothing is asked
    assert names(find_pictures([tmp_path / "a_thumb.jpg"], ["*_thumb.*"]), tmp_path) == ["a_thumb.jpg"]
    (tmp_path / ".limnerignore").write_bytes(b"\xff")
    with pytest.raises(DataError, match="limnerignore: line 1: UTF-8 text was expected"):
        find_pictures([tmp_path])


@given(part=st.sampled_from(["raw", "r?w", "*", "2023/raw", "/raw", "raw/"]), depth=st.integers(0, 2))
def test_a_pattern_means_no_more_than_it_says(
    part: str, depth: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    top = tmp_path_factory.mktemp("top")
    folder = top.joinpath(*["2023"] * depth, "raw")
    drawn(folder / "a.jpg")
    drawn(top / "z.jpg")
    found = names(find_pictures([top, top / "z.jpg"], [part]), top)
    meant = {"2023/raw": depth == 1, "/raw": depth == 0}.get(part, True)
    assert (os.path.relpath(folder / "a.jpg", top) not in found) == meant
    assert "z.jpg" in found


@pytest.mark.parametrize("kind", ["jpeg", "png", "gif", "webp"])
@pytest.mark.parametrize("name", ["a.jfif", "a", "a.dat", "a.txt"])
def test_the_content_says_what_a_picture_is(tmp_path: Path, kind: str, name: str) -> None:
    drawn(tmp_path / name, kind)
    # what begins like one, but is of a kind that nothing here reads
    drawn(tmp_path / "b.nef", "tiff")
    (tmp_path / "c.txt").write_text("BMW and GIF")
    os.mkfifo(tmp_path / "d")
    found = find_pictures([tmp_path])
    assert names(found, tmp_path) == [name]
    assert found.passed_over == {".nef": 1, "": 1, ".txt": 1}
