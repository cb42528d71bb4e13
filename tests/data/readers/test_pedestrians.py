import json
from pathlib import Path
from typing import Any

import pytest

from limner.data.readers import open_dataset
from limner.errors import DataError
from tests.data.trees import draw


def entry(file: str = "cam_a/1.png", **changes: Any) -> dict[str, Any]:
    return {
        "split": "train",
        "captions": ["a man"],
        "file_path": file,
        "id": 1,
        "processed_tokens": [],
        **changes,
    }


def write(root: Path, content: object, name: str = "reid_raw.json") -> Path:
    draw(root / "imgs" / "cam_a" / "1.png")
    (root / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return root / name


def test_identities_folders_and_backslashes(tmp_path: Path) -> None:
    write(
        tmp_path, [entry(), entry("CUHK01\\2.png", id=20, split="val"), entry("3.png", id="1", split="test")]
    )
    dataset = open_dataset(f"cuhk-pedes:{tmp_path}")
    assert dataset.group_kind == "identity"
    assert [record.group for record in dataset.records] == ["id-1", "id-20", "id-1"]
    assert [record.image for record in dataset.records] == [
        tmp_path / "imgs" / name for name in ("cam_a/1.png", "CUHK01/2.png", "3.png")
    ]
    assert [record.metadata for record in dataset.records] == [{"folder": "cam_a"}, {"folder": "CUHK01"}, {}]


def test_keys_beyond_the_published_ones_become_metadata(tmp_path: Path) -> None:
    write(tmp_path, [entry(camera=3, attributes={"coat": "red"})])
    (record,) = open_dataset(f"cuhk-pedes:{tmp_path}").records
    assert record.metadata == {"folder": "cam_a", "camera": 3, "attributes": {"coat": "red"}}


def test_languages_of_captions(tmp_path: Path) -> None:
    write(
        tmp_path, [entry(languages=["DE"]), entry("2.png", languages=[None]), entry("3.png", languages=None)]
    )
    dataset = open_dataset(f"cuhk-pedes:{tmp_path}")
    assert [record.languages for record in dataset.records] == [("de",), (), ()]
    assert "languages" not in dataset.records[0].metadata
    write(tmp_path, [entry(languages=["de", "en"])])
    with pytest.raises(DataError, match=r"\[0\]: 'languages' must have one for each caption, got 2 for 1"):
        open_dataset(f"cuhk-pedes:{tmp_path}")


def test_the_first_release_has_no_splits_and_says_so_when_one_is_wanted(tmp_path: Path) -> None:
    first = entry()
    del first["split"]
    write(tmp_path, [first], "caption_all.json")
    dataset = open_dataset(f"cuhk-pedes:{tmp_path}")
    assert dataset.records[0].split is None
    with pytest.raises(DataError, match=r"no picture in split 'train'; splits here: none \(1\)"):
        dataset.split("train")


def test_the_file_with_splits_is_preferred(tmp_path: Path) -> None:
    write(tmp_path, [entry(split=None)], "caption_all.json")
    write(tmp_path, [entry()])
    assert open_dataset(f"cuhk-pedes:{tmp_path}").records[0].split == "train"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("not json", "JSON was expected"),
        ({"images": []}, "a list of entries was expected at the top level"),
        ([], "the list holds no picture"),
        ([entry(), "x"], "[1]: an object was expected, got 'x'"),
        ([entry(id=None)], "[0]: 'id' must be a number or a name, got None"),
        ([entry(captions="a man")], "[0]: 'captions' must be a list, got 'a man'"),
        ([entry(captions=["a man", 2])], "[0]: captions[1] must be a string, got 2"),
        ([entry(split="query")], "[0]: 'split' must be one of"),
        ([entry("..\\1.png")], "[0]: 'file_path' must be a path inside"),
        ([entry("elsewhere/9.png")], "none of its pictures was found"),
        ([{"id": 1, "captions": []}], "[0]: 'file_path' is missing; keys here: 'id, captions'"),
        ([{"file_path": "cam_a/1.png", "captions": []}], "[0]: 'id' is missing"),
        ([{"file_path": "cam_a/1.png", "id": 1}], "[0]: 'captions' is missing"),
    ],
)
def test_a_malformed_file_is_refused_with_its_place(content: object, says: str, tmp_path: Path) -> None:
    file = write(tmp_path, content)
    with pytest.raises(DataError) as error:
        open_dataset(f"cuhk-pedes:{tmp_path}")
    assert str(error.value).startswith(f"{file}: ")
    assert says in str(error.value)
