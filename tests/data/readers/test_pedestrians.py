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


VIETNAMESE, ENGLISH = "một người đàn ông", "a man"


def test_the_languages_of_a_set_are_known(tmp_path: Path) -> None:
    both = entry(captions=[VIETNAMESE], en_captions=[ENGLISH, ENGLISH], split="validate")
    write(tmp_path, [both, entry(captions=[VIETNAMESE])], "data_captions.json")
    first, second = open_dataset(f"vn3k:{tmp_path}").records
    assert (first.sentences, first.languages) == ((VIETNAMESE, ENGLISH, ENGLISH), ("vi", "en", "en"))
    assert (second.sentences, second.languages) == ((VIETNAMESE,), ("vi",))
    assert first.split == "val"
    assert "en_captions" not in first.metadata
    # The published sentences come first; RSTPReid's file has the same name and is read as such.
    write(tmp_path, [entry(captions=[VIETNAMESE])], "data_captions_vn3k.json")
    assert len(open_dataset(f"vn3k:{tmp_path}").records) == 1
    english = entry(en_captions=[ENGLISH])
    del english["captions"]
    file = write(tmp_path, [english], "data_captions.json")
    assert open_dataset(f"vn3k:{file}").records[0].languages == ("en",)


def test_languages_that_a_file_states_go_before_those_of_the_set(tmp_path: Path) -> None:
    stated = entry(captions=["一个男人", ENGLISH], languages=["zh", "en"])
    write(tmp_path, [stated, entry(captions=["一个男人"])], "prw_cn_caption_crops.json")
    first, second = open_dataset(f"prw-tps-cn:{tmp_path}").records
    assert (first.languages, second.languages) == (("zh", "en"), ("zh",))


def test_a_validation_split_is_held_out_only_of_training(tmp_path: Path) -> None:
    pictures = [entry(id=number) for number in range(200)]
    write(tmp_path, pictures, "UFine6926_Annotations.json")
    dataset = open_dataset(f"ufine6926:{tmp_path}")
    assert 0 < dataset.split_counts["val"] < 30
    assert dataset.drawn == {"train": "val=0.05 of train", "val": "val=0.05 of train"}
    (tmp_path / "UFine6926_Annotations.json").unlink()
    write(tmp_path, [entry(split="test", source="UFine6926")], "UFine3C_Annotations.json")
    dataset = open_dataset(f"ufine6926:{tmp_path}")
    assert (dataset.split_counts, dataset.drawn) == ({"test": 1}, {})
    assert dataset.records[0].metadata["source"] == "UFine6926"
