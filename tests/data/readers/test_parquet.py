from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limner.data.check import check_dataset
from limner.data.readers import open_dataset
from limner.data.records import Dataset
from limner.errors import DataError
from tests.data.trees import picture, write_table


def row(number: int = 0, **changes: Any) -> dict[str, Any]:
    return {
        "image": {"bytes": picture(number), "path": f"{number}.jpg"},
        "caption": f"person {number}",
        **changes,
    }


def read(root: Path, *rows: dict[str, Any], name: str = "train.parquet") -> Dataset:
    write_table(root / name, rows)
    return open_dataset(f"parquet:{root}")


def sentences(dataset: Dataset) -> list[tuple[str, ...]]:
    return [record.sentences for record in dataset.records]


def test_pictures_are_the_bytes_of_the_rows(tmp_path: Path) -> None:
    dataset = read(tmp_path, row(0), row(1, image={"bytes": picture(1), "path": None}))
    assert [record.image.read_bytes() for record in dataset.records] == [picture(0), picture(1)]
    assert [record.image.name for record in dataset.records] == ["0000000-0.jpg", "0000001-picture.jpg"]
    assert [record.group for record in dataset.records] == [
        "train.parquet/0000000-0.jpg",
        "train.parquet/0000001-picture.jpg",
    ]
    assert [record.metadata for record in dataset.records] == [{"name": "0.jpg"}, {}]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"caption": "a"}, ("a",)),
        ({"captions": ["a", "b"]}, ("a", "b")),
        ({"caption1": "a", "caption2": "b", "text": "no"}, ("a", "b")),
        ({"text": "a", "title": "no"}, ("a",)),
        ({"Sentences": ["a", None, "b"]}, ("a", "b")),
        ({"description_1": "a", "description_2": None}, ("a",)),
    ],
)
def test_columns_of_captions(columns: dict[str, Any], expected: tuple[str, ...], tmp_path: Path) -> None:
    dataset = read(tmp_path, {"image": picture(), **columns})
    assert sentences(dataset) == [expected]


def test_the_other_columns(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "split": "validation",
        "labels": ["coat", "bag"],
        "language": "de",
        "camera": 3,
        "score": float("nan"),
    }
    (record,) = read(tmp_path, row(pid=7, embedding=[0.5, 0.25], **values)).records
    assert (record.split, record.labels, record.languages) == ("val", ("bag", "coat"), ("de",))
    assert record.group == "id-7"
    # Not a number is none; a vector of floats is left out.
    assert record.metadata == {"name": "0.jpg", "camera": 3}


def test_class_numbers_are_no_labels(tmp_path: Path) -> None:
    (record,) = read(tmp_path, row(labels=3)).records
    assert (record.labels, record.metadata["labels"]) == ((), 3)


def test_an_id_names_persons_only_where_one_repeats(tmp_path: Path) -> None:
    dataset = read(tmp_path, row(0, id=1), row(1, id=2))
    assert dataset.group_kind == "image"
    assert dataset.records[0].metadata["id"] == 1
    dataset = read(tmp_path, row(0, id=1), row(1, id=1))
    assert dataset.group_kind == "identity"
    assert [record.group for record in dataset.records] == ["id-1", "id-1"]


def test_splits_are_those_of_the_files_or_drawn(tmp_path: Path) -> None:
    write_table(tmp_path / "data" / "train-00000-of-00001.parquet", [row(0)])
    write_table(tmp_path / "validation" / "0.parquet", [row(1)])
    write_table(tmp_path / "test.parquet", [row(2)])
    write_table(tmp_path / ".cache" / "train.parquet", [row(3)])
    dataset = open_dataset(f"parquet:{tmp_path}")
    assert dataset.split_counts == {"train": 1, "test": 1, "val": 1}
    assert dataset.drawn == {}
    many = read(tmp_path / "own", *(row(number) for number in range(30)), name="part-0.parquet")
    assert set(many.drawn) == {"train", "val", "test"}
    assert many.how_drawn == "drawn splits, seed=0"


def test_files_by_a_pattern(tmp_path: Path) -> None:
    for number in range(3):
        write_table(tmp_path / f"train-{number:05}-of-00003.parquet", [row(number)])
    assert len(open_dataset(f"parquet:{tmp_path}/train-*.parquet").records) == 3
    assert len(open_dataset(f"parquet:{tmp_path}/train-{{00001..00002}}-of-00003.parquet").records) == 2
    one = open_dataset(f"parquet:{tmp_path}/train-00001-of-00003.parquet#seed=1")
    assert sentences(one) == [("person 1",)]
    with pytest.raises(
        DataError, match=r"train-00003-of-00003\.parquet: a Parquet file was expected; 2 of 4"
    ):
        open_dataset(f"parquet:{tmp_path}/train-{{00001..00004}}-of-00003.parquet")
    with pytest.raises(DataError, match="from a smaller to a larger number"):
        open_dataset(f"parquet:{tmp_path}/train-{{2..1}}.parquet")
    with pytest.raises(DataError, match="no file has such a name"):
        open_dataset(f"parquet:{tmp_path}/val-*.parquet")
    with pytest.raises(DataError, match="there is no such folder or file"):
        open_dataset(f"parquet:{tmp_path}/nowhere/val-*.parquet")


def test_webperson_is_for_training(tmp_path: Path) -> None:
    rows = [
        {
            "image": {"bytes": picture(n), "path": None},
            "image_path": f"a/{n}.jpg",
            "caption1": "x",
            "caption2": f"y {n}",
        }
        for n in range(80)
    ]
    write_table(tmp_path / "data" / "train-00000-of-00001.parquet", rows)
    dataset = open_dataset(f"webperson:{tmp_path}")
    assert dataset.split_counts["train"] + dataset.split_counts["val"] == 80
    assert dataset.split_counts["val"] >= 1
    assert dataset.group_kind == "image"
    assert sentences(dataset)[3] == ("x", "y 3")
    assert dataset.records[3].metadata["image_path"] == "a/3.jpg"
    assert check_dataset(dataset, open_images=False).facts.edition == "WebPerson-5M"


def test_a_picture_that_stands_twice_is_found(tmp_path: Path) -> None:
    write_table(tmp_path / "train.parquet", [row(0), row(1), row(0, caption="again")])
    write_table(tmp_path / "val.parquet", [row(1, caption="leaked")])
    report = check_dataset(open_dataset(f"parquet:{tmp_path}"))
    kinds = {problem.kind: problem.severity for problem in report.problems}
    assert kinds == {
        "duplicate-across-splits": "error",
        "duplicate-picture": "warning",
        "split-missing": "warning",
    }


def test_faults_of_rows_are_found(tmp_path: Path) -> None:
    write_table(
        tmp_path / "train.parquet",
        [
            row(0, pid=1),
            row(1, pid=2, image={"bytes": b"no picture", "path": None}),
            row(2, pid=3, caption=""),
        ],
    )
    write_table(tmp_path / "val.parquet", [row(3, pid=1)])
    report = check_dataset(open_dataset(f"parquet:{tmp_path}"))
    assert {problem.kind for problem in report.problems} == {
        *("unreadable-picture", "empty-caption", "identity-across-splits", "split-missing")
    }


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (
            [{"caption": "a"}],
            "one column of pictures was expected (bytes, or a struct of bytes and path), columns here",
        ),
        ([{"a": b"x", "b": b"y"}], "found several: 'a, b'; call one of them image"),
        ([row(title="x", caption=None)], None),
        ([{"image": picture()}], "a column of captions was expected"),
        ([row(), row(image={"bytes": None, "path": "b.jpg"})], "row 1: the bytes of a picture were expected"),
        ([row(split="train"), row(split="query")], "row 1: 'split' must be one of"),
        ([row(caption=5)], "row 0: 'caption' must be a string or a list of strings, got 5"),
        ([row(0, pid=1), row(1, pid=None)], "row 1: 'pid' must be a number or a name, got None"),
        ([row(language="??")], "row 0: 'language' must be the tag of a language"),
    ],
)
def test_what_cannot_be_read_is_one_line(
    rows: list[dict[str, Any]], says: str | None, tmp_path: Path
) -> None:
    if says is None:  # a column of nulls alone is a column
        assert sentences(read(tmp_path, *rows)) == [()]
        return
    with pytest.raises(DataError) as error:
        read(tmp_path, *rows)
    assert says in str(error.value)
    assert str(error.value).startswith(str(tmp_path))
    assert "\n" not in str(error.value)


def test_files_that_are_no_parquet_or_damaged(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a Parquet file was expected here \(\.parquet\), found none"):
        open_dataset(f"parquet:{tmp_path}")
    file = tmp_path / "train.parquet"
    file.write_bytes(b"PAR1 no")
    with pytest.raises(DataError, match="a Parquet file was expected, it cannot be read"):
        open_dataset(f"parquet:{tmp_path}")
    write_table(file, [row(number) for number in range(20)])
    content = bytearray(file.read_bytes())
    content[len(content) // 4 : len(content) // 2] = bytes(len(content) // 2 - len(content) // 4)
    file.write_bytes(content)
    try:
        open_dataset(f"parquet:{tmp_path}")
    except DataError as error:
        assert str(error).startswith(f"{file}: ")  # noqa: PT017 - pages without a check sum may be read
    write_table(tmp_path / "val.parquet", [{"picture": picture(), "caption": "a"}])
    write_table(file, [row()])
    with pytest.raises(
        DataError, match=r"in the column 'image' were expected as in train\.parquet, got 'picture'"
    ):
        open_dataset(f"parquet:{tmp_path}")


def test_rows_of_several_groups_and_dictionaries(tmp_path: Path) -> None:
    count = 150
    table = pa.table(
        {
            "image": [picture(number) for number in range(count)],
            "text": pa.array([f"{number % 3} people" for number in range(count)]).dictionary_encode(),
            "when": np.arange(count).astype("datetime64[s]"),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=40)
    dataset = open_dataset(f"parquet:{tmp_path}")
    assert sentences(dataset) == [(f"{number % 3} people",) for number in range(count)]
    assert dataset.records[140].image.read_bytes() == picture(140)
    assert dataset.records[0].metadata == {}
