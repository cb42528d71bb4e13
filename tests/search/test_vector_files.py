"""Files of vectors from other programs: what they may look like, and what is refused in one line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limner.errors import DataError
from limner.search.foreign_vectors import read_vectors
from limner.search.store_export import flat_header


def parquet(path: Path, /, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_lists_of_any_kind_and_of_any_length_of_float(tmp_path: Path) -> None:
    rows: list[list[float]] = [[3.0, 4.0], [0.0, -2.0]]
    for kind in (pa.list_(pa.float64()), pa.list_(pa.float32(), 2), pa.large_list(pa.float16())):
        file = parquet(tmp_path / "given.parquet", path=["a.png", "b.png"], vector=pa.array(rows, kind))
        found = read_vectors(file)
        np.testing.assert_allclose(found.vectors, [[0.6, 0.8], [0.0, -1.0]])
        # relative to the folder of the file, as everywhere
        assert found.paths == (str(tmp_path / "a.png"), str(tmp_path / "b.png"))


def test_a_time_that_was_read_from_a_picture_is_not_told(tmp_path: Path) -> None:
    taken, rows = pa.array([0, 0, None], pa.timestamp("us")), [[1.0, 0.0]] * 3
    file = parquet(
        tmp_path / "x.parquet",
        path=["a", "b", "c"],
        vector=rows,
        taken=taken,
        taken_from=["file", "told", None],
    )
    assert [sorted(facts) for facts in read_vectors(file).facts or ()] == [[], ["taken"], []]


def test_a_row_of_length_one_stays_bit_for_bit(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(50, 512)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows[7] *= 3
    file = parquet(tmp_path / "given.parquet", path=[f"{n}" for n in range(50)], vector=list(rows))
    found = read_vectors(file).vectors
    others = np.arange(50) != 7
    np.testing.assert_array_equal(found[others], rows[others])
    np.testing.assert_allclose(found[7], rows[7] / 3, atol=1e-7)
    np.savez(tmp_path / "given.npz", images=rows, image_names=[f"{n}" for n in range(50)])
    np.testing.assert_array_equal(read_vectors(tmp_path / "given.npz").vectors, found)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"vector": [[1.0]]}, "lacks the column 'path'"),
        ({"path": ["a"]}, "lacks the column 'vector'"),
        ({"path": ["a"], "vector": [1.0]}, "must hold lists of floats"),
        ({"path": ["a"], "vector": [["x"]]}, "must hold lists of floats"),
        ({"path": ["a", "b"], "vector": [[1.0], [1.0, 2.0]]}, "the same length"),
        ({"path": ["a", "b"], "vector": [[1.0], None]}, "the same length|NaN"),
        ({"path": ["a", "b"], "vector": [[1.0], [None]]}, "the same length|NaN"),
        ({"path": ["a"], "vector": [[0.0]]}, "row 0 is zero"),
        ({"path": ["a"], "vector": [[float("nan")]]}, "NaN"),
        ({"path": ["a", "./a"], "vector": [[1.0], [1.0]]}, "stands there twice"),
        ({"path": [None], "vector": [[1.0]]}, "row 1: expected the picture's path"),
        ({"path": [7], "vector": [[1.0]]}, "expected the picture's path"),
        ({"path": ["a"], "vector": [[1.0]], "metadata": ["{"]}, "'metadata' is not JSON"),
        ({"path": ["a"], "vector": [[1.0]], "metadata": ["[1]"]}, "expected an object under 'metadata'"),
        ({"path": pa.array([], pa.string()), "vector": pa.array([], pa.list_(pa.float32()))}, "holds no row"),
    ],
)
def test_columns_that_do_not_fit(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_vectors(parquet(tmp_path / "given.parquet", **columns))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: expected a point"),
        ("[]", "line 2: expected a point"),
        ('{"vector": {"named": [1, 0]}, "payload": {"path": "b"}}', "one list of numbers"),
        ('{"vector": [1, 0], "payload": null}', "'payload'"),
        ('{"vector": [1], "payload": {"path": "b"}}', "1 numbers, the first point has 2"),
        ('{"vector": [1, 0], "payload": {}}', "line 2: expected the picture's path"),
        ('{"vector": [1, NaN], "payload": {"path": "b"}}', "NaN"),
        ("[" * 100_000, "line 2: expected a point"),
    ],
)
def test_points_that_do_not_fit(tmp_path: Path, line: str, message: str) -> None:
    first = json.dumps({"id": 1, "vector": [0, 1], "payload": {"path": "a"}})
    (tmp_path / "points.jsonl").write_text(f"{first}\n{line}\n")
    with pytest.raises(DataError, match=message):
        read_vectors(tmp_path / "points.jsonl")


def test_an_index_that_does_not_fit(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    folder.mkdir()
    with pytest.raises(DataError, match=r"rows\.parquet: cannot be read as Parquet"):
        read_vectors(folder)
    parquet(folder / "rows.parquet", path=["a", "b"])
    with pytest.raises(DataError, match=r"vectors\.faiss: cannot be read"):
        read_vectors(folder)
    rows = np.eye(2, dtype="<f4").tobytes()
    good = flat_header(2, 2) + rows
    for content, message in (
        (b"", "expected an IndexFlatIP"),
        (b"IxF2" + good[4:], "expected an IndexFlatIP"),
        (flat_header(3, 2) + rows, "expected an IndexFlatIP of 2 rows"),
        (good[:-1], "cut off"),
        (good + b"x", "longer"),
        # a width that would ask for terabytes
        (flat_header(2, 2**31 - 1) + rows, "cut off"),
    ):
        (folder / "vectors.faiss").write_bytes(content)
        with pytest.raises(DataError, match=message):
            read_vectors(folder)
    (folder / "vectors.faiss").write_bytes(good)
    np.testing.assert_array_equal(read_vectors(folder).vectors, np.eye(2))


@given(content=st.binary(max_size=200), name=st.sampled_from(["x.parquet", "x.jsonl", "x.npz"]))
@settings(max_examples=60, deadline=None)
def test_any_bytes_are_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str
) -> None:
    file = tmp_path_factory.mktemp("any") / name
    file.write_bytes(content)
    with pytest.raises(DataError) as told:
        read_vectors(file)
    assert "\n" not in str(told.value)


def test_folders_that_are_no_data_sets(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        read_vectors(tmp_path / "gone.lance")
    (tmp_path / "none.lance").mkdir()
    with pytest.raises(DataError, match="not a Lance dataset"):
        read_vectors(tmp_path / "none.lance")
    with pytest.raises(DataError, match="No such file"):
        read_vectors(tmp_path / "gone.parquet")
