"""The file of values of each query: ours round, others read, damaged ones refused in one line."""

from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from limner.errors import DataError
from limner.evaluation.arrays import Results
from limner.evaluation.per_query import mean_of, read_queries, write_queries
from limner.evaluation.protocols import find_protocol


def results(seed: int = 0) -> Results:
    generator = np.random.default_rng(seed)
    images = generator.normal(size=(6, 4)).astype(np.float32)
    sentences = np.repeat(images, 2, axis=0) + generator.normal(size=(12, 4)).astype(np.float32)
    return Results(
        np.array([0, 0, 1, 2, 3, 9]),
        np.repeat([0, 0, 1, 2, 3, 4], 2),
        images,
        sentences,
        image_names=[f"{number}.png" for number in range(6)],
        sentence_names=[f"00{number}" for number in range(12)],
    )


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_what_is_written_is_read(tmp_path: Path, ending: str) -> None:
    report = find_protocol("plain").report(results())
    path = tmp_path / f"queries.{ending}"
    write_queries(path, report.queries)
    read = read_queries(path)
    assert list(read) == ["image_to_text", "text_to_image"]
    # image 9 and the sentences of group 4 have no match
    assert read["image_to_text"].names == ("0.png", "1.png", "2.png", "3.png", "4.png")
    assert read["text_to_image"].names == tuple(sorted(f"00{number}" for number in range(10)))
    for direction, values in (
        ("image_to_text", report.image_to_text),
        ("text_to_image", report.text_to_image),
    ):
        assert 100 * read[direction].values["mAP"].mean() == pytest.approx(values["mAP"])
        assert read[direction].values["MeanR"].mean() == pytest.approx(values["MeanR"])
    # images 0 and 1 are of one group
    assert read["image_to_text"].clusters.tolist() == [0, 0, 1, 2, 3]


def test_both_forms_hold_the_same_to_the_bit(tmp_path: Path) -> None:
    queries = find_protocol("plain").report(results()).queries
    for ending in ("parquet", "csv"):
        write_queries(tmp_path / f"queries.{ending}", queries, "fp32")
    first, second = (read_queries(tmp_path / f"queries.{ending}") for ending in ("parquet", "csv"))
    for direction, values in first.items():
        other = second[direction]
        assert (values.names, values.precisions) == (other.names, other.precisions)
        assert values.values.keys() == other.values.keys()
        for name, column in values.values.items():
            np.testing.assert_array_equal(column, other.values[name])


def test_csv_as_other_programs_write_it(tmp_path: Path) -> None:
    path = tmp_path / "theirs.csv"
    path.write_bytes(
        '\ufeffquery,hit,nDCG,note\r\n"a, ""b""\nc",TRUE,5e-1,NA\r\n\r\n007,FALSE,1,3 of 4\r\n'.encode()
    )
    read = read_queries(path)["as given"]
    assert read.names == ("007", 'a, "b"\nc')
    assert {name: values.tolist() for name, values in read.values.items()} == {
        "hit": [0.0, 1.0],
        "nDCG": [1.0, 0.5],
    }


def test_measures_of_one_direction_alone(tmp_path: Path) -> None:
    report = find_protocol("cub").report(results())
    assert set(report.intervals["image_to_text"]) == {"R@1"}
    path = tmp_path / "queries.parquet"
    write_queries(path, report.queries)
    read = read_queries(path)
    assert (set(read["image_to_text"].values), set(read["text_to_image"].values)) == ({"R@1"}, {"AP@50"})


def test_files_of_others(tmp_path: Path) -> None:
    path = tmp_path / "theirs.csv"
    path.write_text("query,nDCG,note\n007,0.5,a\n12,1,b\n", encoding="utf-8")
    read = read_queries(path)["as given"]
    assert read.names == ("007", "12")
    assert read.clusters.tolist() == [0, 1]
    assert {name: values.tolist() for name, values in read.values.items()} == {"nDCG": [0.5, 1.0]}


def test_the_mean_over_seeds(tmp_path: Path) -> None:
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    paths[0].write_text("query,R@1\na,1\nb,0\n", encoding="utf-8")
    paths[1].write_text("query,R@1\nb,1\na,1\n", encoding="utf-8")
    assert mean_of(paths)["as given"].values["R@1"].tolist() == [1, 0.5]
    paths[1].write_text("query,R@1\nb,1\nc,1\n", encoding="utf-8")
    with pytest.raises(DataError, match="of different queries"):
        mean_of(paths)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("query,R@1\n", "expected a row a query"),
        ("name,R@1\na,1\n", "expected a row a query"),
        ("query,R@1\na,x\n", "no column of numbers"),
        ("query,R@1\na,1\na,0\n", "query 'a' is there twice"),
        ("query,R@1\na,1\nb,\n", "without a finite value"),
        ("query,R@1\na,1\nb,inf\n", "without a finite value"),
        ("query,R@1\na,1,2\n", "not a table of queries"),
        ("query,R@1,R@1\na,1,0\n", "a column twice"),
        ('query,R@1\n"a,1\n', "line 2: CSV was expected"),
        ("query,R@1\na,NA\n", "no column of numbers"),
        ("query,R@1,mAP\na,1,1\nb,O,1\n", r"queries.csv: line 3: 'R@1' is a number, not 'O'"),
    ],
)
def test_damaged_files_are_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "queries.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message) as caught:
        read_queries(path)
    assert "\n" not in str(caught.value)


def test_mutated_parquet_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "queries.parquet"
    write_queries(path, find_protocol("plain").report(results()).queries)
    whole, generator = path.read_bytes(), np.random.default_rng(0)
    for _ in range(150):
        mutated = bytearray(whole)
        mutated[generator.integers(len(whole))] ^= 1 << int(generator.integers(8))
        path.write_bytes(mutated)
        with suppress(DataError):  # any other error is a bug
            read_queries(path)


def test_names_that_are_there_twice_are_not_written(tmp_path: Path) -> None:
    report = find_protocol("plain").report(results())
    queries = report.queries["image_to_text"]
    twice = type(queries)(
        queries.places, queries.clusters, queries.folds, queries.first_ranks, queries.values, ["same"] * 6
    )
    with pytest.raises(DataError, match="one name"):
        write_queries(tmp_path / "queries.csv", {"image_to_text": twice})
    with pytest.raises(DataError, match="expected a name that ends in"):
        write_queries(tmp_path / "queries.txt", report.queries)


def test_a_table_of_wrong_columns(tmp_path: Path) -> None:
    path = tmp_path / "queries.parquet"
    pyarrow.parquet.write_table(pa.table({"query": ["a"], "R@1": [[1.0]]}), path)
    with pytest.raises(DataError, match="no column of numbers"):
        read_queries(path)
    pyarrow.parquet.write_table(pa.table({"query": ["a", "b", "c"], "R@1": ["1", "0.5", "O"]}), path)
    with pytest.raises(DataError, match=r"queries.parquet: row 3: 'R@1' is a number, not 'O'"):
        read_queries(path)
