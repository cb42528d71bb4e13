"""Readers of vectors and facts from files of other programs, as `limner store export` writes them.

    FILE.parquet, DATASET.lance   columns `path` and `vector`, and any of `identity`, `taken`, `taken_from`,
                                  `metadata` (JSON)
    FILE.jsonl                    points of Qdrant: `vector`, and `path` and the others under `payload`
    FOLDER                        vectors.faiss, a flat index by inner product, and rows.parquet with its rows in order

Other columns are left alone: a file's digest and size are taken from the file itself. Nothing in the files is run.
"""

import json
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from limner.errors import DataError
from limner.search.store_export import INDEX, ROWS, flat_header
from limner.store.lance_tables import lancedb
from limner.tables import require_pyarrow
from limner.text_files import text_lines

if TYPE_CHECKING:
    import pyarrow as pa

_FACTS = ("id", "path", "identity", "taken", "taken_from", "metadata")


@dataclass(frozen=True, eq=False)
class VectorRows:
    """Rows of such a file: the pictures' paths as they stand there, their vectors, and the facts and key of each."""

    paths: tuple[str, ...]
    vectors: Float[np.ndarray, "images dim"]
    facts: tuple[dict[str, Any], ...]
    keys: tuple[str | None, ...]


def reader_of(path: Path) -> Callable[[Path], VectorRows] | None:
    """The reader of a file or folder by its name; None for a name of none of these formats."""
    if path.suffix == ".lance":
        return read_lance
    if path.is_dir():
        return read_faiss
    return {".parquet": read_parquet, ".jsonl": read_points}.get(path.suffix)


def read_parquet(path: Path) -> VectorRows:
    """Read a Parquet file. Raises `DataError`, and `SettingsError` without pyarrow."""
    return _of_table(path, _parquet(path, (*_FACTS, "vector")))


def read_lance(path: Path) -> VectorRows:
    """Read a Lance dataset. Raises `DataError`."""
    if not path.is_dir():
        raise DataError(f"{path}: no such folder")
    library = lancedb()
    try:
        table = library.connect(str(path.absolute().parent)).open_table(path.stem)
        there = [name for name in (*_FACTS, "vector") if name in table.schema.names]
        rows = table.search().select(there).to_arrow()
    # LanceDB has no error of its own: which one a damaged file raises depends on where it is damaged
    except Exception as error:
        raise DataError(f"{path}: not a Lance dataset, or damaged ({_first_line(error)})") from None
    return _of_table(path, rows)


def read_faiss(path: Path) -> VectorRows:
    """Read a folder of a flat index and its rows. Raises `DataError`, also for another kind of index."""
    rows, index = _parquet(path / ROWS, _FACTS), path / INDEX
    try:
        size = index.stat().st_size
        with index.open("rb") as file:
            header = file.read(len(flat_header(0, 0)))
            # the width stands after the name; all else follows from it and from the number of rows
            dim = struct.unpack_from("<i", header, 4)[0] if header[:4] == b"IxFI" else 0
            if dim < 1 or header != flat_header(len(rows), dim):
                raise DataError(
                    f"{index}: expected an IndexFlatIP of {len(rows)} rows, as many as {ROWS} has; other indices "
                    "hold no whole vectors, or compare by another measure"
                )
            if size != len(header) + 4 * dim * len(rows):
                raise DataError(f"{index}: cut off, or longer than its {len(rows)} rows of width {dim}")
            vectors = np.fromfile(file, "<f4", dim * len(rows)).reshape(-1, dim)
    except OSError as error:
        raise DataError(f"{index}: cannot be read ({error.strerror})") from None
    return _of_table(path / ROWS, rows, vectors)


def read_points(path: Path) -> VectorRows:
    """Read points of Qdrant, one a line. Raises `DataError`, which names the line."""
    paths, vectors, facts = list[str](), list[np.ndarray](), list[dict[str, Any]]()
    keys = list[str | None]()
    for number, line in enumerate(text_lines(path), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            point = json.loads(line)
            payload = point["payload"]
            vector = np.array(point["vector"], np.float32)
            if vector.ndim != 1 or not isinstance(payload, dict):
                raise ValueError
        # RecursionError: brackets nested thousands deep
        except (ValueError, TypeError, KeyError, RecursionError):
            raise DataError(
                f"{where}: expected a point: an object with 'vector', one list of numbers, and 'payload'"
            ) from None
        if vectors and len(vector) != len(vectors[0]):
            raise DataError(f"{where}: {len(vector)} numbers, the first point has {len(vectors[0])}")
        paths.append(_path_of(where, payload))
        vectors.append(vector)
        facts.append(_facts_of(where, payload))
        keys.append(_key_of(point))
    if not vectors:
        raise DataError(f"{path}: holds no point")
    return VectorRows(tuple(paths), np.stack(vectors), tuple(facts), tuple(keys))


def _parquet(path: Path, columns: tuple[str, ...]) -> "pa.Table":
    require_pyarrow(f"{path}: a Parquet file")
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # not a path to read_table, which takes a folder for a data set of partitions
        with path.open("rb") as opened:
            file = pq.ParquetFile(opened)
            return file.read([name for name in columns if name in file.schema_arrow.names])
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or _first_line(error)
        raise DataError(f"{path}: cannot be read as Parquet ({reason})") from None


def _of_table(path: Path, rows: "pa.Table", vectors: np.ndarray | None = None) -> VectorRows:
    for name in ("path", *([] if vectors is not None else ["vector"])):
        if name not in rows.schema.names:
            raise DataError(
                f"{path}: lacks the column '{name}'; expected 'path' and 'vector', a row a picture"
            )
    if not len(rows):
        raise DataError(f"{path}: holds no row")
    if vectors is None:
        vectors = _matrix(path, rows["vector"])
        rows = rows.drop_columns(["vector"])
    facts = rows.to_pylist()
    named = [(f"{path}, row {number}", values) for number, values in enumerate(facts, start=1)]
    return VectorRows(
        tuple(_path_of(where, values) for where, values in named),
        vectors,
        tuple(_facts_of(where, values) for where, values in named),
        tuple(map(_key_of, facts)),
    )


def _matrix(path: Path, column: "pa.ChunkedArray") -> np.ndarray:
    import pyarrow as pa

    kind = column.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not is_list or not pa.types.is_floating(kind.value_type):
        raise DataError(f"{path}: 'vector' must hold lists of floats, got {kind}")
    try:
        # Arrow would leave such a row out, and all after it would be those of other pictures
        if column.null_count:
            raise ValueError
        # the first row's width, which all others must have: an Arrow list may be of any length
        width = len(column[0])
        rows = column.cast(pa.list_(kind.value_type, width)).combine_chunks()
        matrix: np.ndarray = rows.flatten().to_numpy().reshape(-1, width)
        return matrix
    except (pa.ArrowException, TypeError, ValueError):
        raise DataError(f"{path}: 'vector' must have one list of the same length in each row") from None


def _path_of(where: str, values: Mapping[str, Any]) -> str:
    path = values.get("path")
    if not isinstance(path, str) or "\0" in path:
        raise DataError(f"{where}: expected the picture's path under 'path', got {ascii(path)[:40]}")
    return path


def _key_of(values: Mapping[str, Any]) -> str | None:
    """The key that a store of limner gave, also as Qdrant writes it; other programs give others."""
    key = str(values.get("id")).replace("-", "")
    return key if re.fullmatch("[0-9a-f]{32}", key) else None


def _facts_of(where: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Identity, time and metadata as `limner.search.index.told_by` takes them."""
    metadata = values.get("metadata") or {}
    if isinstance(metadata, str):
        try:
            metadata = json.loads(metadata)
        except (ValueError, RecursionError):
            raise DataError(f"{where}: 'metadata' is not JSON") from None
    if not isinstance(metadata, dict):
        raise DataError(f"{where}: expected an object under 'metadata', got {ascii(metadata)[:40]}")
    known = {name: values[name] for name in ("identity", "taken") if values.get(name) is not None}
    # a time that another store has read is read from the picture here, too, and follows it
    if values.get("taken_from") == "file":
        known.pop("taken", None)
    return {**metadata, **known}


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]
