"""Embeddings as a table, a row an item: what `limner score` reads from `.parquet` and `.csv` besides `.npz`.

side          "image" or "sentence"
group         integers or text; images and sentences of one group match
name          text, optional: names for TREC files, of all items or of none
language      text, optional: the tag of a sentence's language; empty for images
x0, x1, …     a column of numbers for each dimension of the embedding; or, in Parquet alone,
embedding     a list of numbers

Rows of both sides may stand in any order, and keep it. Scores are no table: they come as an `.npz` or as a TREC run.
"""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from limner.errors import DataError
from limner.evaluation.arrays import Results, results_of
from limner.tables import require_pyarrow

ENDINGS = (".parquet", ".csv")
"""Endings of the files that are read as tables."""

_TEXTS = ("side", "name", "language")
_SIDES = ("image", "sentence")


def read_results_table(path: Path) -> Results:
    """Read such a table. Raises `DataError` for any other columns, for missing values, and as `read_results`.

    Raises `SettingsError` without pyarrow.
    """
    table = _read(path)
    columns = table.column_names
    wide = [name for name in columns if name[:1] == "x" and name[1:].isdecimal()]
    unknown = [name for name in columns if name not in (*_TEXTS, "group", "embedding", *wide)]
    missing = [name for name in ("side", "group") if name not in columns]
    # Refused, not left alone: a misspelt "langauge" would silently measure no languages.
    if unknown or missing:
        said = f"lacks '{missing[0]}'" if missing else f"has a column '{unknown[0][:40]}'"
        raise DataError(f"{path}: {said}; expected the columns side, group, name, language and x0, x1, …")
    if len(set(columns)) < len(columns):
        raise DataError(f"{path}: a column is there twice")
    for name in columns:
        # A list with a missing number is found below, where it has no number to convert.
        if name not in ("name", "language") and table.column(name).null_count:
            raise DataError(f"{path}: column '{name}' has rows without a value")
    for name in ("group", *_TEXTS):
        if name in columns and not _is_plain(table.column(name).type):
            raise DataError(
                f"{path}: column '{name}' must hold texts or numbers, not {table.column(name).type}"
            )
    sides = np.array(table.column("side").to_pylist(), dtype=str)
    if bad := sorted(set(sides.tolist()) - set(_SIDES)):
        raise DataError(f"{path}: 'side' must be 'image' or 'sentence', got {bad[0][:40]!r}")
    rows = _embeddings(path, table, wide)
    arrays: dict[str, Any] = {}
    for side, of_rows in zip(_SIDES, ("images", "sentences"), strict=True):
        chosen = sides == side
        arrays[of_rows] = rows[chosen]
        arrays[f"{side}_groups"] = np.array(table.column("group").to_pylist())[chosen]
        for name in ("name", "language"):
            texts = (
                np.array([text or "" for text in table.column(name).to_pylist()], str)
                if name in columns
                else None
            )
            # Images have no language.
            if texts is not None and texts[chosen].any() and (name, side) != ("language", "image"):
                arrays[f"{side}_{name}s"] = texts[chosen]
    return results_of(path, arrays, ", ".join(columns[:12]))


def _is_plain(kind: Any) -> bool:
    """True for texts and numbers, and False for lists, structs and bytes, of which NumPy makes no row an item."""
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return not (types.is_nested(kind) or types.is_binary(kind) or types.is_large_binary(kind))


def _embeddings(path: Path, table: Any, wide: list[str]) -> Float[np.ndarray, "items dim"]:
    if ("embedding" in table.column_names) == bool(wide):
        raise DataError(
            f"{path}: expected either the columns x0, x1, … or, in Parquet, a column 'embedding' of lists"
        )
    if not wide:
        lists = table.column("embedding").to_pylist()
        if not all(isinstance(row, list) for row in lists) or len({len(row) for row in lists}) > 1:
            raise DataError(f"{path}: 'embedding' must hold lists of one length")
        return _floats(path, "embedding", lists)
    if sorted(wide, key=lambda name: int(name[1:])) != [f"x{place}" for place in range(len(wide))]:
        raise DataError(f"{path}: the columns of the embedding must be x0 to x{len(wide) - 1}, each once")
    rows = [_floats(path, f"x{place}", table.column(f"x{place}").to_pylist()) for place in range(len(wide))]
    return np.stack(rows, axis=1)


def _floats(path: Path, name: str, values: list[Any]) -> np.ndarray:
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{path}: column '{name}' must hold numbers") from None


def _read(path: Path) -> Any:
    # CSV, too: a million numbers take Python a second, and those of 100,000 pictures gigabytes
    require_pyarrow(f"{path}: a table of embeddings")
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        if path.suffix == ".parquet":
            return pyarrow.parquet.read_table(path)
        # Names and tags may look like numbers or dates.
        options = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(_TEXTS, pa.string()))
        return pyarrow.csv.read_csv(path, convert_options=options)
    # pyarrow's own errors are of ValueError, OSError, KeyError and NotImplementedError
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        line = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise DataError(f"{path}: not a table in Parquet or CSV, or damaged ({line})") from None
