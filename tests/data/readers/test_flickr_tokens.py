from pathlib import Path

import pytest

from limner.data.readers import open_dataset
from limner.errors import DataError
from tests.data.trees import ROWS, write_flickr8k_text, write_flickr30k_text, write_karpathy


def test_it_agrees_with_the_karpathy_form(tmp_path: Path) -> None:
    raw = open_dataset(write_flickr8k_text(tmp_path / "raw", ROWS))
    karpathy = open_dataset(write_karpathy(tmp_path / "karpathy", ROWS))
    assert raw.fingerprint == karpathy.fingerprint


def test_the_karpathy_file_is_preferred(tmp_path: Path) -> None:
    write_flickr8k_text(tmp_path, ROWS)
    write_karpathy(tmp_path, ROWS[:2])
    assert len(open_dataset(f"flickr8k:{tmp_path}")) == 2


def test_the_text_archive_may_have_its_own_folder(tmp_path: Path) -> None:
    write_flickr8k_text(tmp_path, ROWS)
    (tmp_path / "Flickr8k_text").mkdir()
    for file in tmp_path.glob("*.txt"):
        file.rename(tmp_path / "Flickr8k_text" / file.name)
    assert open_dataset(f"flickr8k:{tmp_path}").records[0].image.is_file()


def test_pictures_in_no_list_have_no_split(tmp_path: Path) -> None:
    write_flickr8k_text(tmp_path, ROWS)
    with (tmp_path / "Flickr8k.token.txt").open("a") as file:
        file.write("2258277193_586949ec62.jpg.1#0\ta bench in the rain\n")
    assert open_dataset(f"flickr8k:{tmp_path}").records[-1].split is None


def test_a_listed_picture_without_a_caption_is_kept_for_the_doctor(tmp_path: Path) -> None:
    write_flickr8k_text(tmp_path, ROWS)
    with (tmp_path / "Flickr_8k.devImages.txt").open("a") as file:
        file.write("z.jpg\n")
    last = open_dataset(f"flickr8k:{tmp_path}").records[-1]
    assert (last.image.name, last.sentences, last.split) == ("z.jpg", (), "val")


@pytest.mark.parametrize(
    ("name", "line", "says"),
    [
        ("Flickr8k.token.txt", "a.jpg#0 no tab", "line 8: NAME#NUMBER, a tab and a sentence were expected"),
        ("Flickr8k.token.txt", "a.jpg\tno number", "line 8: NAME#NUMBER"),
        ("Flickr8k.token.txt", "a.jpg#x\tno number", "line 8: NAME#NUMBER"),
        ("Flickr8k.token.txt", "../a.jpg#0\tout", "line 8: 'name' must be a path inside"),
        ("Flickr_8k.testImages.txt", "/a.jpg", "line 2: 'name' must be a path inside"),
        ("Flickr_8k.testImages.txt", "a1.jpg", "line 2: 'a1.jpg' is also in Flickr_8k.trainImages.txt"),
    ],
)
def test_a_malformed_line_is_named(name: str, line: str, says: str, tmp_path: Path) -> None:
    write_flickr8k_text(tmp_path, ROWS)
    with (tmp_path / name).open("a") as file:
        file.write(line + "\n")
    with pytest.raises(DataError) as error:
        open_dataset(f"flickr8k:{tmp_path}")
    assert str(error.value).startswith(f"{tmp_path / name}: {says}")


def test_a_first_line_without_a_name_is_refused(tmp_path: Path) -> None:
    write_flickr8k_text(tmp_path, ROWS)
    (tmp_path / "Flickr8k.token.txt").write_text("#0\ta dog\na1.jpg#0\ta dog\n")
    with pytest.raises(DataError, match="line 1: 'name' must name a picture file, got ''"):
        open_dataset(f"flickr8k:{tmp_path}")


def test_a_missing_list_is_named(tmp_path: Path) -> None:
    write_flickr8k_text(tmp_path, ROWS)
    (tmp_path / "Flickr_8k.devImages.txt").unlink()
    with pytest.raises(DataError, match=r"Flickr_8k\.devImages\.txt: this list of the dataset is missing"):
        open_dataset(f"flickr8k:{tmp_path}")


@pytest.mark.parametrize("lists_apart", [False, True])
def test_the_folder_may_have_the_name_of_the_archives_own(lists_apart: bool, tmp_path: Path) -> None:
    root = tmp_path / "flickr30k"
    root.mkdir()
    source = write_flickr30k_text(root, ROWS)
    if lists_apart:
        (root / "flickr30k_entities").mkdir()
        for name in ("train", "val", "test"):
            (root / f"{name}.txt").rename(root / "flickr30k_entities" / f"{name}.txt")
    dataset = open_dataset(source)
    assert all(record.image.is_file() for record in dataset.records)
    assert dataset.split_counts == {"train": 3, "val": 1, "test": 1}
