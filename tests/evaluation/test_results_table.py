"""Tables of embeddings are read as the same arrays in an `.npz`, and any other table is refused in one line."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from limner.errors import DataError
from limner.evaluation.arrays import Results
from limner.evaluation.protocols import PROTOCOLS
from limner.evaluation.results_table import read_results_table

PLAIN = PROTOCOLS["plain"]
RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((7, 12)).astype(np.float32)
# in mixed order; eleven columns and more, which sort otherwise as text
SIDES = ["image", "sentence", "sentence", "image", "sentence", "image", "sentence"]
GROUPS = ["007", "7", "007", "7", "ä", "ä", "7"]
IMAGES, SENTENCES = [0, 3, 5], [1, 2, 4, 6]
WIDE: dict[str, Any] = {
    "side": SIDES,
    "group": GROUPS,
    **{f"x{place}": ROWS[:, place] for place in reversed(range(12))},
}


def _written(folder: Path, columns: dict[str, Any], ending: str = ".parquet") -> Path:
    path, table = folder / f"table{ending}", pa.table(columns)
    if ending == ".csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pyarrow.parquet.write_table(table, path)
    return path


def _lists() -> dict[str, Any]:
    return {"side": SIDES, "group": GROUPS, "embedding": list(ROWS)}


@pytest.mark.parametrize(
    ("columns", "ending"),
    [(WIDE, ".parquet"), (WIDE, ".csv"), (_lists(), ".parquet")],
    ids=["wide", "csv", "lists"],
)
def test_a_table_measures_what_its_arrays_do(tmp_path: Path, columns: dict[str, Any], ending: str) -> None:
    found = read_results_table(_written(tmp_path, columns, ending))
    numbers = {"007": 0, "7": 1, "ä": 2}
    codes = np.array([numbers[group] for group in GROUPS])
    expected = Results(codes[IMAGES], codes[SENTENCES], ROWS[IMAGES], ROWS[SENTENCES])
    assert found.images is not None
    np.testing.assert_allclose(found.images, ROWS[IMAGES], rtol=1e-6)
    assert PLAIN.report(found).model_dump() == PLAIN.report(expected).model_dump()


def test_names_and_languages(tmp_path: Path) -> None:
    given = {**WIDE, "name": list("abcdefg"), "language": ["", "de", None, "", "en", "", "de"]}
    for ending in (".parquet", ".csv"):
        found = read_results_table(_written(tmp_path, given, ending))
        assert (found.image_names, found.sentence_names) == (["a", "d", "f"], ["b", "c", "e", "g"])
        assert found.sentence_languages == ["de", "", "en", "de"]
        assert set(found.languages) == {"de", "en"}


def test_groups_in_integers_stay_integers(tmp_path: Path) -> None:
    found = read_results_table(_written(tmp_path, {**WIDE, "group": [5, 9, 5, 9, 2, 2, 9]}, ".csv"))
    assert found.image_groups.tolist() == [5, 9, 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"side": None}, "lacks 'side'"),
        ({"group": None}, "lacks 'group'"),
        ({"langauge": list("abcdefg")}, "has a column 'langauge'; expected the columns side, group"),
        ({"side": ["picture", *SIDES[1:]]}, "'side' must be 'image' or 'sentence', got 'picture'"),
        ({"side": ["image"] * 7}, "'sentences' is empty, of shape"),
        ({"group": [None, *GROUPS[1:]]}, "column 'group' has rows without a value"),
        ({"group": [0.5] * 7}, "'image_groups' must have one axis of integers or text, got float64"),
        ({"group": [[1], [1, 2], *[[1]] * 5]}, "column 'group' must hold texts or numbers, not list"),
        ({"side": [b"\xff"] * 7}, "column 'side' must hold texts or numbers, not binary"),
        ({"name": [{"a": 1}] * 7}, "column 'name' must hold texts or numbers, not struct"),
        ({"x3": None}, "must be x0 to x10, each once"),
        ({"x3": ["a"] * 7}, "column 'x3' must hold numbers"),
        ({"x3": [None, *[1.0] * 6]}, "column 'x3' has rows without a value"),
        ({"x3": [1.0, float("nan"), *[1.0] * 5]}, "'sentences': row 0 holds NaN"),
        ({"embedding": list(ROWS)}, "expected either the columns x0, x1, … or"),
        ({f"x{place}": None for place in range(12)}, "expected either the columns x0, x1, … or"),
        (
            {**{f"x{place}": None for place in range(12)}, "embedding": [[1.0], *[[1.0, 2.0]] * 6]},
            "lists of one length",
        ),
        (
            {**{f"x{place}": None for place in range(12)}, "embedding": [[1.0, None]] * 7},
            "'images': row 0 holds NaN",
        ),
    ],
)
def test_other_tables_are_refused_in_one_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    columns = {name: column for name, column in {**WIDE, **change}.items() if column is not None}
    with pytest.raises(DataError, match=message) as caught:
        read_results_table(_written(tmp_path, columns))
    assert "\n" not in str(caught.value)


def test_files_that_are_no_tables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_results_table(tmp_path / "none.csv")
    for ending in (".csv", ".parquet"):
        for content in (b"", b"\xff\xfe\x00bad", b"a,b\n1,2,3\n"):
            (tmp_path / f"bad{ending}").write_bytes(content)
            with pytest.raises(DataError) as caught:
                read_results_table(tmp_path / f"bad{ending}")
            assert "\n" not in str(caught.value)


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("side,group,x0,x0\nimage,1,2,3\nsentence,1,2,3\n")
    with pytest.raises(DataError, match="a column is there twice"):
        read_results_table(tmp_path / "t.csv")
