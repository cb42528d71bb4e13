import json
from pathlib import Path
from typing import Any

import pytest

from limner.data.check import check_dataset
from limner.data.readers import open_dataset
from limner.data.records import label_matrices
from limner.errors import DataError
from tests.data.trees import draw

LABELS = {1: {"dog"}, 2: {"dog", "cat"}, 3: {"cat"}, 4: {"cat"}, 5: {"bird"}, 6: set[str]()}
"""Labels of the pictures; 1 to 3 are for training. Picture n has the sentences "n one" and "n two"."""


ONE = {"id": 1, "file_name": "train2014_1.jpg"}


def write(root: Path, *, instances: bool = True) -> Path:
    for part, numbers in (("train2014", (1, 2, 3)), ("val2014", (4, 5, 6))):
        for number in numbers:
            draw(root / part / f"{part}_{number}.jpg", number)
        put(root, f"captions_{part}.json", captions(part, numbers))
        if instances:
            put(root, f"instances_{part}.json", objects(numbers))
    return root


def captions(part: str, numbers: tuple[int, ...]) -> dict[str, Any]:
    return {
        "images": [{"id": number, "file_name": f"{part}_{number}.jpg"} for number in numbers],
        "annotations": [
            {"image_id": number, "id": 10 * number, "caption": f"{number} {text}"}
            for text in ("one", "two")
            for number in numbers
        ],
    }


def objects(numbers: tuple[int, ...]) -> dict[str, Any]:
    names = ["cat", "dog", "bird"]
    return {
        "images": [{"id": number} for number in numbers],
        "categories": [{"id": 7 + place, "name": name} for place, name in enumerate(names)],
        "annotations": [
            {"image_id": number, "category_id": 7 + names.index(name)}
            for number in numbers
            for name in sorted(LABELS[number])
            for _ in range(2)
        ],
    }


def put(root: Path, name: str, content: object) -> None:
    (root / "annotations").mkdir(parents=True, exist_ok=True)
    (root / "annotations" / name).write_text(json.dumps(content))


def test_the_official_form(tmp_path: Path) -> None:
    dataset = open_dataset(f"mscoco:{write(tmp_path, instances=False)}")
    assert dataset.group_kind == "image"
    assert dataset.split_counts == {"train": 3, "val": 3}
    first = dataset.records[0]
    assert first.image == tmp_path / "train2014" / "train2014_1.jpg"
    assert first.sentences == ("1 one", "1 two")
    assert first.metadata == {"cocoid": 1}
    assert first.labels == ()
    report = check_dataset(dataset)
    assert [problem.kind for problem in report.problems] == ["split-missing"]  # there is no test split


def test_one_file_may_be_given(tmp_path: Path) -> None:
    write(tmp_path)
    dataset = open_dataset(f"mscoco:{tmp_path}/annotations/captions_val2014.json")
    assert dataset.split_counts == {"val": 3}


def test_labels_and_drawn_splits(tmp_path: Path) -> None:
    dataset = open_dataset(f"mscoco-labels:{write(tmp_path)}")
    assert dataset.split_counts == {"train": 3, "val": 1, "test": 1}
    assert {record.image.stem[-1]: set(record.labels) for record in dataset.records} == {
        str(number): labels for number, labels in LABELS.items() if labels
    }
    assert check_dataset(dataset).problems == ()  # the picture without a label is left out on purpose
    assert dataset.records == open_dataset(f"mscoco-labels:{tmp_path}").records
    images, sentences = label_matrices(dataset.split("train"))
    assert images.tolist() == [[0, 1], [1, 1], [1, 0]]  # cat, dog
    assert sentences.tolist() == [row for row in images.tolist() for _ in range(2)]


def test_labels_take_part_in_the_fingerprint(tmp_path: Path) -> None:
    before = open_dataset(f"mscoco-labels:{write(tmp_path)}").fingerprint
    content = objects((1, 2, 3))
    content["annotations"].pop(0)
    content["annotations"].pop(0)  # picture 1 has lost its label
    put(tmp_path, "instances_train2014.json", content)
    assert open_dataset(f"mscoco-labels:{tmp_path}").fingerprint != before


def test_a_set_without_labels_has_none_to_match_by(tmp_path: Path) -> None:
    dataset = open_dataset(f"mscoco:{write(tmp_path)}")
    with pytest.raises(DataError, match="its pictures have no labels; mscoco-labels: has them"):
        label_matrices(dataset)


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("captions_train2014.json", {"images": []}, "'images' lists no picture"),
        (
            "captions_train2014.json",
            {"images": [{**ONE, "id": "1"}]},
            "images[0]: 'id' must be a whole number",
        ),
        ("captions_train2014.json", {"images": [ONE]}, "annotations[1]: 'image_id' 2 is not among"),
        (
            "captions_train2014.json",
            {"annotations": [{"image_id": 1}]},
            "annotations[0]: 'caption' is missing",
        ),
        ("captions_train2014.json", {"annotations": [3]}, "annotations[0]: an object was expected"),
        ("instances_train2014.json", {"categories": []}, "annotations[0]: 'category_id' 8 is not among"),
        ("instances_train2014.json", {"annotations": {}}, "'annotations' must be a list"),
    ],
)
def test_a_malformed_file_is_refused_with_its_place(
    name: str, change: dict[str, Any], says: str, tmp_path: Path
) -> None:
    write(tmp_path)
    sound = json.loads((tmp_path / "annotations" / name).read_text())
    put(tmp_path, name, {**sound, **change})
    with pytest.raises(DataError) as error:
        open_dataset(f"mscoco-labels:{tmp_path}")
    assert str(error.value).startswith(f"{tmp_path / 'annotations' / name}: ")
    assert says in str(error.value)


@pytest.mark.parametrize("labels", [False, True])
def test_each_fault_is_found_and_nothing_else(labels: bool, tmp_path: Path) -> None:
    name = "mscoco-labels" if labels else "mscoco"
    whole = set() if labels else {"split-missing"}
    dataset = open_dataset(f"{name}:{write(tmp_path)}")
    first, second = (record.image for record in dataset.records[:2])
    kept = first.read_bytes()

    def found() -> set[str]:
        return {problem.kind for problem in check_dataset(dataset).problems} - whole

    assert found() == set()
    first.write_bytes(second.read_bytes())
    assert found() == {"duplicate-picture"}
    first.write_bytes(kept[:-200])
    assert found() == {"unreadable-picture"}
    first.unlink()
    assert found() == {"missing-picture"}
    first.write_bytes(kept)
    dataset.records[-1].image.write_bytes(kept)
    assert found() == {"duplicate-across-splits"}


def test_pictures_may_lie_together_and_a_part_may_be_missing(tmp_path: Path) -> None:
    write(tmp_path)
    whole = open_dataset(f"mscoco:{tmp_path}").split_counts
    (tmp_path / "images").mkdir()
    for part in ("train2014", "val2014"):
        (tmp_path / part).rename(tmp_path / "images" / part)
    assert open_dataset(f"mscoco:{tmp_path}").split_counts == whole
    (tmp_path / "images" / "train2014").rename(tmp_path / "elsewhere")
    assert open_dataset(f"mscoco:{tmp_path}").split_counts == {"val": 3}
    (tmp_path / "images" / "val2014").rename(tmp_path / "gone")
    with pytest.raises(DataError, match=r"captions_train2014\.json: none of its pictures was found"):
        open_dataset(f"mscoco:{tmp_path}")


def test_the_year_that_has_pictures_is_read(tmp_path: Path) -> None:
    write(tmp_path)
    for part in ("train", "val"):
        text = (tmp_path / "annotations" / f"captions_{part}2014.json").read_text()
        (tmp_path / "annotations" / f"captions_{part}2017.json").write_text(text.replace("2014", "2017"))
        (tmp_path / f"{part}2017").mkdir()
        for picture in (tmp_path / f"{part}2014").iterdir():
            picture.rename(tmp_path / f"{part}2017" / picture.name.replace("2014", "2017"))
    dataset = open_dataset(f"mscoco:{tmp_path}")
    assert {record.image.parent.name for record in dataset.records} == {"train2017", "val2017"}


def test_another_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(DataError, match=r"one of captions_train2014\.json, .* was expected"):
        open_dataset(f"mscoco-labels:{tmp_path}/annotations/instances_val2014.json")


def test_missing_labels_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"instances_train2014\.json: the labels of the pictures were expected"
    ):
        open_dataset(f"mscoco-labels:{write(tmp_path, instances=False)}")
