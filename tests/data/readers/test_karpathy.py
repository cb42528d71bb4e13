import json
from pathlib import Path
from typing import Any

import pytest

from limner.data.readers import open_dataset
from limner.errors import DataError
from tests.data.trees import ROWS, draw, write_karpathy


def image(name: str, **changes: Any) -> dict[str, Any]:
    return {"filename": name, "split": "train", "imgid": 0, "sentences": [{"raw": "a dog"}], **changes}


def write(root: Path, content: object, name: str = "dataset_coco.json") -> Path:
    file = root / name
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


def test_mscoco_with_paths_restval_and_ids(tmp_path: Path) -> None:
    for part in ("val2014", "train2014"):
        draw(tmp_path / part / f"COCO_{part}_01.jpg")
    one = image("COCO_val2014_01.jpg", filepath="val2014", split="restval", imgid=4, cocoid=391895)
    two = image("COCO_train2014_01.jpg", filepath="train2014", split="val", imgid=5, cocoid=7)
    write(tmp_path, {"images": [one, two], "dataset": "coco"})
    first, second = open_dataset(f"mscoco:{tmp_path}").records
    assert first.image == tmp_path / "val2014" / "COCO_val2014_01.jpg"
    assert (first.split, second.split) == ("train", "val")
    assert first.metadata == {"imgid": 4, "cocoid": 391895}
    assert (first.group, second.group) == ("COCO_val2014_01", "COCO_train2014_01")


def test_pictures_that_share_a_name_are_still_groups_of_their_own(tmp_path: Path) -> None:
    draw(tmp_path / "images" / "x" / "1.jpg")
    images = [image("x/1.jpg"), image("y/1.jpg"), image("2.jpg")]
    write(tmp_path, {"images": images})
    groups = [record.group for record in open_dataset(f"mscoco:{tmp_path}").records]
    assert groups == ["x/1.jpg", "y/1.jpg", "2"]


def test_a_picture_without_sentences_is_read(tmp_path: Path) -> None:
    draw(tmp_path / "a.jpg")
    write(tmp_path, {"images": [image("a.jpg", sentences=[])]})
    assert open_dataset(f"mscoco:{tmp_path}").records[0].sentences == ()


def test_each_format_takes_its_own_file_of_the_archive(tmp_path: Path) -> None:
    for name, picture in (("flickr8k", "a"), ("flickr30k", "b"), ("coco", "c")):
        draw(tmp_path / "images" / f"{picture}.jpg")
        write(tmp_path, {"images": [image(f"{picture}.jpg")]}, f"dataset_{name}.json")
    for name, picture in (("flickr8k", "a"), ("flickr30k", "b"), ("mscoco", "c")):
        assert open_dataset(f"{name}:{tmp_path}").records[0].group == picture


def test_another_formats_file_alone_is_refused(tmp_path: Path) -> None:
    write_karpathy(tmp_path, ROWS)
    with pytest.raises(DataError, match=f"write flickr8k:{tmp_path}"):
        open_dataset(f"flickr30k:{tmp_path}")


def test_a_file_of_any_name_is_taken_when_it_is_the_only_one(tmp_path: Path) -> None:
    draw(tmp_path / "a.jpg")
    write(tmp_path, {"images": [image("a.jpg")]}, "dataset_mine.json")
    assert len(open_dataset(f"flickr30k:{tmp_path}")) == 1
    write(tmp_path, {"images": [image("a.jpg")]}, "dataset_yours.json")
    with pytest.raises(DataError, match=r"found dataset_mine\.json, dataset_yours\.json"):
        open_dataset(f"flickr30k:{tmp_path}")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "the file is empty"),
        ("{", "JSON was expected"),
        ([], "top level: an object was expected, got []"),
        ({}, "top level: 'images' is missing"),
        ({"images": {}}, "'images' must be a list"),
        ({"images": []}, "lists no picture"),
        ({"images": [image("a.jpg"), 7]}, "images[1]: an object was expected, got 7"),
        ({"images": [{"split": "train", "sentences": []}]}, "images[0]: 'filename' is missing"),
        ({"images": [image("a.jpg", filename=3)]}, "'filename' must be a string, got 3"),
        ({"images": [image("a.jpg", filepath=3)]}, "'filepath' must be a string, got 3"),
        ({"images": [image("../a.jpg")]}, "must be a path inside the dataset folder, got '../a.jpg'"),
        ({"images": [image("a.jpg", filepath="/etc")]}, "must be a path inside"),
        ({"images": [image("a.jpg", split="extra")]}, "images[0]: 'split' must be one of"),
        ({"images": [image("a.jpg", split=None)]}, "images[0]: 'split' must name a split, got None"),
        ({"images": [{"filename": "a.jpg", "sentences": []}]}, "images[0]: 'split' is missing"),
        ({"images": [image("a.jpg", sentences="a dog")]}, "'sentences' must be a list"),
        (
            {"images": [image("a.jpg", sentences=["a dog"])]},
            "sentences[0] must be an object with a string 'raw'",
        ),
        ({"images": [image("a.jpg", sentences=[{"raw": 1}])]}, "sentences[0] must be an object"),
        ({"images": [image("a.jpg", cocoid=1.5)]}, "'cocoid' must be a number or a name"),
    ],
)
def test_a_malformed_file_is_refused_with_its_place(content: object, says: str, tmp_path: Path) -> None:
    draw(tmp_path / "a.jpg")
    file = write(tmp_path, content)
    with pytest.raises(DataError) as error:
        open_dataset(f"mscoco:{tmp_path}")
    assert str(error.value).startswith(f"{file}: ")
    assert says in str(error.value)
