from pathlib import Path, PurePosixPath

import pytest

from limner.data.readers import open_dataset
from limner.data.readers.parsing import AnnotationEntry, parse_json, shown
from limner.errors import DataError


def entry(**values: object) -> AnnotationEntry:
    return AnnotationEntry(Path("set.json"), "images[3]", values)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": 1,}', "line 1, column 9"),
        ("[1, NaN]", "NaN"),
        ("[-Infinity]", "-Infinity"),
        ("[1e999]", "too large"),
        ("[" * 100_000, "nested too deeply"),
        ("9" * 5000, "JSON was expected"),
        ('["dog \\ud83d"]', "half of a surrogate pair stands after .*dog"),
    ],
)
def test_json_that_could_not_be_written_again_is_refused(text: str, says: str) -> None:
    with pytest.raises(DataError, match=says) as error:
        parse_json(text, Path("x.json"))
    assert str(error.value).startswith("x.json: ")
    assert "\n" not in str(error.value)


def test_whole_surrogate_pairs_are_one_character() -> None:
    assert parse_json('["\\ud83d\\ude00"]', Path("x.json")) == ["😀"]


@pytest.mark.parametrize(
    "value", ["/etc/passwd", "../a.jpg", "a/../../b.jpg", "C:\\a.jpg", "\\\\host\\a.jpg"]
)
def test_paths_that_leave_the_dataset_folder_are_refused(value: str) -> None:
    with pytest.raises(DataError, match=r"^set.json: images\[3\]: 'file' must be a path inside"):
        entry(file=value).path("file")
    with pytest.raises(DataError, match="must be a path inside"):
        entry(folder="train", file=value).path("folder", "file")


@pytest.mark.parametrize("value", ["", ".", "./", "a\0.jpg"])
def test_paths_that_name_no_file_are_refused(value: str) -> None:
    with pytest.raises(DataError, match="must name a picture file"):
        entry(file=value).path("file")


def test_paths_come_out_in_one_spelling() -> None:
    spelt = ("a/b.jpg", "./a/b.jpg", "a//b.jpg", "a\\b.jpg", "a/./b.jpg")
    assert {entry(file=value).path("file") for value in spelt} == {PurePosixPath("a/b.jpg")}
    assert entry(folder="a", file="b.jpg").path("folder", "file") == PurePosixPath("a/b.jpg")
    assert entry(file="..a..b.jpg").path("file") == PurePosixPath("..a..b.jpg")


@pytest.mark.parametrize("value", [None, True, 1.5, "", "  ", [], {}])
def test_a_name_is_a_number_or_a_string(value: object) -> None:
    with pytest.raises(DataError, match="'id' must be a number or a name"):
        entry(id=value).name("id")


def test_numbers_and_strings_give_the_same_name() -> None:
    assert entry(id=7).name("id") == entry(id=" 7 ").name("id") == "7"


def test_a_missing_key_is_named_with_those_that_are_there() -> None:
    with pytest.raises(DataError, match="'caption' is missing; keys here: 'text, file'"):
        entry(text="", file="").text("caption")


def test_values_are_shown_in_one_short_line() -> None:
    assert len(shown("x" * 1000)) == 60
    assert "\n" not in shown("a\nb\u2028c")


BLIP = '[{"caption": "a man", "image": "val2014/a.jpg", "image_id": "coco_1"}]'
TEXT_REID = '{"categories": [], "annotations": [{"id": 0, "file_path": "cam_a/a.jpg", "sentence": "a man"}]}'


@pytest.mark.parametrize("format_name", ["mscoco", "flickr30k", "cuhk-pedes", "rstpreid", "folder"])
@pytest.mark.parametrize("content", [BLIP, TEXT_REID])
def test_another_programs_form_is_told_where_it_is_described(
    format_name: str, content: str, tmp_path: Path
) -> None:
    (tmp_path / "train.json").write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=r"see docs/data-formats\.md#other-forms$") as error:
        open_dataset(f"{format_name}:{tmp_path / 'train.json'}")
    assert "\n" not in str(error.value)
