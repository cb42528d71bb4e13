"""The values of each query, which intervals and paired tests are made of, and the file that holds them.

A file is a table in CSV, or in Parquet by its ending (`limner[parquet]`), a row a query:

direction    "image_to_text" or "text_to_image"; absent in others' files that have one direction
query        name of the query, once in each direction
cluster      what belongs together, e.g. the image or identity that a sentence describes; absent = each query by itself
first_rank   rank of the first true match, from 1
precision    arithmetic of the model, "fp32" or "bf16"; absent where it is not known, as of embeddings of others
R@1, mAP, …  a column a measure by its name: shares from 0 to 1, ranks from 1
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from limner.errors import DataError
from limner.evaluation.array_files import expect_no_folder
from limner.tables import require_pyarrow
from limner.text_files import table_rows

_TEXTS = ("direction", "query", "cluster", "precision")
_KEYS = (*_TEXTS, "first_rank")

UNKNOWN = "unknown"
"""The arithmetic of a file that does not say it."""


@dataclass(frozen=True, eq=False)
class QueryValues:
    """The values of the queries of one direction that have a true match.

    - `places`: position of each query among the images or sentences that were ranked.
    - `clusters`: group code of each; queries of one group (an image's sentences, a person's pictures) are not
      independent of each other.
    - `folds`: number of the fold in which each was ranked; a measure is the mean over folds.
    - `first_ranks`: rank of the first true match, from 1.
    - `values`: by the measure's name, a share from 0 to 1 or a rank.
    - `names`: names of all images or sentences, which `places` count; empty = they have none.
    """

    places: Int[np.ndarray, " queries"]
    clusters: Int[np.ndarray, " queries"]
    folds: Int[np.ndarray, " queries"]
    first_ranks: Int[np.ndarray, " queries"]
    values: Mapping[str, Float[np.ndarray, " queries"]]
    names: Sequence[str] = ()

    @classmethod
    def joined(cls, parts: Sequence["QueryValues"]) -> "QueryValues":
        """The queries of several folds, which are numbered by their place in the sequence."""
        return cls(
            np.concatenate([part.places for part in parts]),
            np.concatenate([part.clusters for part in parts]),
            np.repeat(np.arange(len(parts)), [len(part.places) for part in parts]),
            np.concatenate([part.first_ranks for part in parts]),
            {name: np.concatenate([part.values[name] for part in parts]) for name in parts[0].values},
        )


@dataclass(frozen=True, eq=False)
class NamedValues:
    """The queries of one direction of a file, in the order of their names.

    `names` are unique; `clusters` are numbered from 0; `values` are by the column's name; `precisions` are the
    arithmetics that they were computed in, `UNKNOWN` among them where a file does not say.
    """

    names: tuple[str, ...]
    clusters: Int[np.ndarray, " queries"]
    values: Mapping[str, Float[np.ndarray, " queries"]]
    precisions: frozenset[str] = frozenset({UNKNOWN})


def write_queries(path: Path, directions: Mapping[str, QueryValues], precision: str | None = None) -> None:
    """Write the queries of each direction, in the order of the images and sentences; those without a match are absent.

    `precision` is the arithmetic that embedded them, if that is known. The ending of `path` chooses the form. Raises
    `DataError` for another ending and for names that are there twice, `SettingsError` for Parquet without pyarrow,
    `OSError` where the system refuses.
    """
    tables = []
    for direction, queries in directions.items():
        order = np.argsort(queries.places)
        places = queries.places[order].tolist()
        names = [queries.names[place] for place in places] if queries.names else list(map(str, places))
        if len(set(names)) < len(names):
            raise DataError(f"{path}: two queries of {direction} have one name; give each its own")
        columns: dict[str, Any] = {
            "direction": [direction] * len(order),
            "query": names,
            "cluster": [str(code) for code in queries.clusters[order]],
            "first_rank": queries.first_ranks[order].tolist(),
            **({} if precision is None else {"precision": [precision] * len(order)}),
            **{name: values[order].tolist() for name, values in queries.values.items()},
        }
        tables.append(columns)
    names = list(dict.fromkeys(name for table in tables for name in table))
    # Under some protocols each direction has measures of its own: the other's rows have none.
    _write(
        path,
        {
            name: [value for table in tables for value in table.get(name, [None] * len(table["query"]))]
            for name in names
        },
    )


def read_queries(path: Path) -> dict[str, NamedValues]:
    """Read such a file, ours or somebody else's, by direction; "as given" is a file without directions.

    Columns of other texts are left alone. Raises `DataError` for a file that is missing or damaged, without queries or
    values, for a query that is there twice, for values that are missing or not finite, and for another text among
    numbers; `SettingsError` for Parquet without pyarrow.
    """
    columns = _read(path)
    if not (count := len(columns.get("query", ()))):
        raise DataError(f"{path}: expected a row a query and a column 'query' with their names")
    numbers = {name: np.array(column, np.float64) for name, column in columns.items() if name not in _KEYS}
    if not numbers:
        raise DataError(f"{path}: no column of numbers; expected one a measure, e.g. 'R@1'")
    directions = columns.get("direction") or ["as given"] * count
    found = {}
    for direction in dict.fromkeys(directions):
        rows = np.array([row for row, of_row in enumerate(directions) if of_row == direction])
        names = [str(columns["query"][row]) for row in rows]
        order = np.argsort(names)
        rows = rows[order]
        names = [names[place] for place in order]
        if twice := next((name for name, after in pairwise(names) if name == after), None):
            raise DataError(f"{path}: query '{twice}' is there twice in {direction}")
        clusters = [str(columns["cluster"][row]) for row in rows] if "cluster" in columns else names
        values = {name: column[rows] for name, column in numbers.items()}
        # A measure of the other direction alone is empty here.
        values = {name: column for name, column in values.items() if not np.isnan(column).all()}
        for name, column in values.items():
            if not np.isfinite(column).all():
                raise DataError(f"{path}: '{name}' has queries of {direction} without a finite value")
        said = columns.get("precision") or [None] * count
        found[str(direction)] = NamedValues(
            tuple(names),
            np.unique(clusters, return_inverse=True)[1],
            values,
            frozenset(said[row] or UNKNOWN for row in rows),
        )
    return found


def mean_of(files: Sequence[Path]) -> dict[str, NamedValues]:
    """The mean over several files of the same queries, e.g. of a recipe's seeds, by direction and measure.

    Raises `DataError` as `read_queries`, and for files whose queries are others.
    """
    parts = [read_queries(path) for path in files]
    directions = [name for name in parts[0] if all(name in part for part in parts)]
    if not directions:
        raise DataError(f"{files[0]} and {files[1]} have no direction in common")
    merged = {}
    for direction in directions:
        first = parts[0][direction]
        for path, part in zip(files, parts, strict=True):
            expect_same(first, part[direction], files[0], path)
        names = [name for name in first.values if all(name in part[direction].values for part in parts)]
        values = {name: np.mean([part[direction].values[name] for part in parts], axis=0) for name in names}
        precisions = frozenset[str]().union(*(part[direction].precisions for part in parts))
        merged[direction] = NamedValues(first.names, first.clusters, values, precisions)
    return merged


def expect_same(first: NamedValues, other: NamedValues, path: Path, other_path: Path) -> None:
    """Raise `DataError` unless both hold the same queries."""
    if first.names != other.names:
        lone = sorted(set(first.names) ^ set(other.names))[0]
        raise DataError(
            f"{path} and {other_path} are of different queries, e.g. '{lone}' is in one alone; only values of the same "
            "queries can be paired"
        )


def expect_writable(path: Path) -> None:
    """Raise what `write_queries` would for the path: for another ending, no such folder, or Parquet without pyarrow."""
    if path.suffix not in _ENDINGS:
        raise DataError(f"{path}: expected a name that ends in {' or '.join(_ENDINGS)}")
    if path.suffix == ".parquet":
        require_pyarrow(f"{path}: a Parquet file")
    if not path.parent.is_dir():
        raise DataError(f"{path.parent}: there is no such folder to write to")


_ENDINGS = (".parquet", ".csv")


_MISSING = ("", "NA", "N/A", "NULL", "null")
"""How programs write in CSV that there is no value."""


def _write(path: Path, columns: Mapping[str, list[Any]]) -> None:
    expect_writable(path)
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet

        pyarrow.parquet.write_table(pa.table(columns), path)
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(columns)
        table.writerows(zip(*columns.values(), strict=True))


def _read(path: Path) -> dict[str, list[Any]]:
    """The columns that say of which queries a table is, and those of numbers, which may lack some."""
    expect_no_folder(path, "a file of --per-query")
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.suffix != ".csv":
        require_pyarrow(f"{path}: a Parquet file")
    try:
        return _of_csv(path) if path.suffix == ".csv" else _of_parquet(path)
    except (OSError, ValueError, KeyError) as error:
        line = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise DataError(f"{path}: not a table of queries in Parquet or CSV, or damaged ({line})") from None


def _of_parquet(path: Path) -> dict[str, list[Any]]:
    import pyarrow as pa
    import pyarrow.parquet
    from pyarrow import types

    kinds = (types.is_floating, types.is_integer, types.is_boolean)
    texts = (types.is_string, types.is_large_string)
    try:
        table = pyarrow.parquet.read_table(path)
        lines = [f"row {row}" for row in range(1, 1 + len(table))]
        columns: dict[str, list[Any]] = {}
        for field in table.schema:
            cells = table.column(field.name).to_pylist()
            if field.name in _KEYS or any(holds(field.type) for holds in kinds):
                columns[field.name] = cells
            # what one wrong cell makes of a column of numbers in other programs
            elif any(holds(field.type) for holds in texts):
                found = _numbers(path, field.name, lines, [text or "" for text in cells])
                columns.update({} if found is None else {field.name: found})
        return columns
    # some are of ValueError or KeyError as well, and some of nothing else
    except pa.ArrowException as error:
        raise ValueError(str(error)) from None


def _of_csv(path: Path) -> dict[str, list[Any]]:
    rows = table_rows(path, _KEYS)
    _, names = next(rows)
    if len(set(names)) < len(names):
        raise ValueError("a column twice")
    cells: list[list[str]] = [[] for _ in names]
    lines = []
    for line, row in rows:
        if len(row) != len(names):
            raise ValueError(f"line {line}: {len(row)} values, not {len(names)}")
        lines.append(f"line {line}")
        for column, text in zip(cells, row, strict=True):
            column.append(text)
    columns: dict[str, list[Any]] = dict(zip(names, cells, strict=True))
    numbers = {
        name: _numbers(path, name, lines, texts) for name, texts in columns.items() if name not in _KEYS
    }
    known = {name: column for name, column in columns.items() if name in _KEYS}
    return {**known, **{name: column for name, column in numbers.items() if column is not None}}


def _numbers(path: Path, name: str, lines: Sequence[str], texts: list[str]) -> list[float | None] | None:
    """The numbers of a column; None for one that holds nothing, or mostly something else."""
    found = [None if text in _MISSING else _number(text) for text in texts]
    wrong = [row for row, value in enumerate(found) if isinstance(value, str)]
    filled = sum(value is not None for value in found)
    # a note is left alone, a measure is not left out for a few wrong cells
    if not filled or 2 * len(wrong) > filled:
        return None
    if wrong:
        raise DataError(f"{path}: {lines[wrong[0]]}: '{name}' is a number, not '{texts[wrong[0]][:40]}'")
    return [value for value in found if not isinstance(value, str)]


def _number(text: str) -> float | str:
    truths = {"true": 1.0, "false": 0.0}
    try:
        return truths[text.lower()] if text.lower() in truths else float(text)
    except ValueError:
        return text
