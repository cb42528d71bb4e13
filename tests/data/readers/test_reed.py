from pathlib import Path

import pytest

from limner.data.readers import open_dataset
from limner.errors import DataError
from tests.data.trees import ROWS, draw, write_cub, write_flowers


def test_a_group_is_a_class_and_a_split_a_list_of_classes(tmp_path: Path) -> None:
    dataset = open_dataset(write_cub(tmp_path, ROWS))
    assert [record.group for record in dataset.records] == [
        f"00{number}.Bird_{number}" for number in (1, 1, 2, 3, 4)
    ]
    assert dataset.split_counts == {"train": 3, "val": 1, "test": 1}
    assert dataset.records[0].image == tmp_path / "CUB_200_2011/images/001.Bird_1/a1.jpg"


def test_the_archive_of_the_sentences_may_be_the_folder_itself(tmp_path: Path) -> None:
    open_dataset(write_cub(tmp_path, ROWS))
    inner = tmp_path / "cvpr2016_cub"
    (tmp_path / "CUB_200_2011" / "images").rename(inner / "images")
    dataset = open_dataset(f"cub:{inner}")
    assert all(record.image.is_file() for record in dataset.records)


def test_flowers_lie_together_and_have_their_class_from_the_sentences(tmp_path: Path) -> None:
    dataset = open_dataset(write_flowers(tmp_path, ROWS))
    assert dataset.records[-1].image == tmp_path / "jpg" / "d1.jpg"
    assert dataset.records[-1].group == "class_00004"


def test_what_is_no_sentence_is_left_alone(tmp_path: Path) -> None:
    source = write_cub(tmp_path, ROWS)
    before = open_dataset(source).records
    draw(tmp_path / "cvpr2016_cub" / "text_c10" / "notes.png")
    (tmp_path / "cvpr2016_cub" / "text_c10" / "001.Bird_1" / "a1.h5").write_bytes(b"\x89HDF")
    (tmp_path / "cvpr2016_cub" / "text_c10" / "001.Bird_1" / "._a1.txt").write_bytes(b"\x00\xff")
    assert open_dataset(source).records == before


def test_refusals(tmp_path: Path) -> None:
    source = write_flowers(tmp_path, ROWS)
    lists = tmp_path / "valclasses.txt"
    lists.write_text("class_00003\nclass_00001\n")
    with pytest.raises(DataError, match=r"line 2: class 'class_00001' is also in trainclasses\.txt"):
        open_dataset(source)
    lists.unlink()
    with pytest.raises(DataError, match=r"valclasses\.txt: this list of classes is missing"):
        open_dataset(source)
    with pytest.raises(DataError, match="a folder was expected"):
        open_dataset(f"flowers:{tmp_path / 'trainclasses.txt'}")


def test_sentences_in_another_encoding_are_named(tmp_path: Path) -> None:
    source = write_flowers(tmp_path, ROWS)
    (tmp_path / "text_c10" / "class_00002" / "b1.txt").write_bytes("a rosé petal\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"b1\.txt: line 1: UTF-8 text was expected"):
        open_dataset(source)


def test_an_empty_line_is_kept_for_the_doctor_and_an_empty_file_has_no_sentence(tmp_path: Path) -> None:
    source = write_flowers(tmp_path, ROWS)
    (tmp_path / "text_c10" / "class_00002" / "b1.txt").write_text("a petal\n\nand another\n\n")
    (tmp_path / "text_c10" / "class_00001" / "a1.txt").write_text("\n")
    texts = {record.image.stem: record.sentences for record in open_dataset(source).records}
    assert texts["b1"] == ("a petal", "", "and another")
    assert texts["a1"] == ()
