from pathlib import Path, PurePosixPath

import pytest

from limner.data.readers.parsing import PICTURE_FOLDERS, locate, one_of
from limner.errors import DataError


def put(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


@pytest.mark.parametrize("folder", PICTURE_FOLDERS)
def test_pictures_are_found_in_every_usual_folder(folder: str, tmp_path: Path) -> None:
    put(tmp_path / folder / "b.jpg")
    picture = locate(tmp_path / "set.json", [PurePosixPath("a.jpg"), PurePosixPath("b.jpg")])
    assert picture(PurePosixPath("a.jpg")) == tmp_path / folder / "a.jpg"


def test_the_folder_with_most_pictures_wins(tmp_path: Path) -> None:
    put(tmp_path / "images" / "a.jpg", *(tmp_path / "imgs" / name for name in ("a.jpg", "b.jpg")))
    picture = locate(tmp_path / "set.json", [PurePosixPath("a.jpg"), PurePosixPath("b.jpg")])
    assert picture(PurePosixPath("c.jpg")) == tmp_path / "imgs" / "c.jpg"


@pytest.mark.parametrize("at", ["val2014/a.jpg", "images/val2014/a.jpg"])
def test_the_path_in_the_file_is_kept_where_it_exists(at: str, tmp_path: Path) -> None:
    put(tmp_path / at)
    assert locate(tmp_path / "set.json", [PurePosixPath("val2014/a.jpg")])(
        PurePosixPath("val2014/a.jpg")
    ) == (tmp_path / at)


def test_pictures_may_lie_flat_although_the_file_says_otherwise(tmp_path: Path) -> None:
    put(tmp_path / "images" / "a.jpg")
    picture = locate(tmp_path / "set.json", [PurePosixPath("val2014/a.jpg")])
    assert picture(PurePosixPath("val2014/a.jpg")) == tmp_path / "images" / "a.jpg"


def test_few_files_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "images" / "5000.jpg")
    looked: list[Path] = []
    real = Path.is_file

    def is_file(self: Path) -> bool:
        looked.append(self)
        return real(self)

    monkeypatch.setattr(Path, "is_file", is_file)
    locate(tmp_path / "set.json", [PurePosixPath(f"{n}.jpg") for n in range(10_000)])
    assert len(looked) <= 2 * 16 * len(PICTURE_FOLDERS)


def test_no_picture_anywhere_says_where_was_looked(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"e\.g\. 'a\.jpg'; looked in images/, imgs/"):
        locate(tmp_path / "set.json", [PurePosixPath("a.jpg")])
    with pytest.raises(DataError, match="none of its pictures was found"):
        locate(tmp_path / "set.json", [PurePosixPath("x" * 5000)])


def test_one_of_refuses_none_and_two(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"found none of a\.csv, b\.csv"):
        one_of(tmp_path, ("a.csv", "b.csv"), "captions file")
    put(tmp_path / "b.csv")
    assert one_of(tmp_path, ("a.csv", "b.csv"), "captions file") == tmp_path / "b.csv"
    put(tmp_path / "a.csv")
    with pytest.raises(DataError, match=r"found a\.csv, b\.csv; give the path"):
        one_of(tmp_path, ("a.csv", "b.csv"), "captions file")
