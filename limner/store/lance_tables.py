"""LanceDB's tables as a store uses them: how they are reached, read and kept small, and what their errors mean.

LanceDB is an extra, `limner[lance]`, and imported when a store needs it: that takes more than a second.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from limner.errors import DataError, LimnerError, SettingsError, StoreError, install_hint
from limner.store.entry import PictureRow
from limner.store.path import StorePath, cause_of, endpoint, reached
from limner.store.rows import SentenceRow
from limner.store.sound import damaged

CACHED = 32 * 2**20
"""Bytes of LanceDB's metadata that are kept in memory. A commit leaves 26 KB there, and LanceDB's own limit is 1 GB."""

KEYS = {"pictures": "id", "contents": "number", "sentences": "id"}
"""The tables, and the column that each is looked up by."""

_KEPT = timedelta(days=1)
"""Age of versions that compacting releases: no reader of one is left by then."""
AT_ONCE = timedelta(milliseconds=1)  # LanceDB warns of less, which is what `scrub` is there for

_BLOCK = 8192  # vectors that are read at once
_LARGE = 256  # region features, of 200 KB each, that are read at once
_LOOKED_UP = 4096  # keys in one condition
_FILES = 64  # files beside the square root of the rows from which joining them pays for readers
_NEWS = 8  # files below which nothing is joined
_LARGEST = 2**20  # rows from which LanceDB leaves a file as it is


def lancedb() -> Any:
    """Import LanceDB. Raises `SettingsError` without it."""
    try:
        import lancedb
        import pyarrow  # noqa: F401 - the other half of the extra
    except ImportError:
        raise SettingsError(f"stores on S3 and tables of Lance need more: {install_hint('lance')}") from None
    return lancedb


def connected(folder: StorePath) -> Any:
    """Connect to the tables of a folder; what is kept in memory is this connection's own."""
    library = lancedb()
    session = library.Session(index_cache_size_bytes=CACHED, metadata_cache_size_bytes=CACHED)
    return library.connect(str(folder), storage_options=storage_options(folder), session=session)


def storage_options(place: StorePath) -> dict[str, str] | None:
    """Options for LanceDB with an object storage that is not Amazon's own."""
    url = endpoint()
    if isinstance(place, Path) or not url:
        return None
    # LanceDB refuses plain HTTP unless told; test servers and those behind a private network have no TLS
    return {"endpoint": url, "allow_http": str(url.startswith("http:")).lower()}


def expect_rows(folder: StorePath, table: Any, count: int) -> None:
    """Raise `StoreError` if another process has written into a table: LanceDB lets rows of two writers into one."""
    if int(table.count_rows()) != count:
        raise taken_over(folder)


def join_files(table: Any, name: str) -> None:
    """Join small files, and look rows up by an index from then on. Optimizing the table again makes no new version."""
    version = None
    # LanceDB joins files that the index has with others only in the call after the one that takes these into it
    while table.version != version:
        version = table.version
        table.optimize(cleanup_older_than=_KEPT)
        if not table.list_indices() and table.count_rows():
            from lancedb.index import BTree  # an extra

            table.create_index(KEYS[name], config=BTree())


def write_anew(table: Any) -> None:
    """Write all rows into new files.

    LanceDB keeps deleted rows of a file as long as they are few, and their keys in the file of the transaction.
    """
    import pyarrow as pa  # an extra

    table.add(pa.RecordBatchReader.from_batches(table.schema, scan(table)), mode="overwrite")


def pays(stats: dict[str, Any]) -> bool:
    """Decide by LanceDB's statistics: rows are written again about once for each doubling of a table."""
    rows, files = stats["num_rows"], stats["fragment_stats"]
    small, largest = files["num_small_fragments"], files["lengths"]["max"]
    many = small >= _FILES + isqrt(min(rows, _LARGEST))
    # of a table of several large files nobody can tell how many rows have come since
    return bool(many or (rows < _LARGEST and small >= _NEWS and rows >= 2 * largest))


def scan(
    table: Any, columns: Sequence[str] | None = None, key: str = "", keys: Sequence[Any] | None = None
) -> Iterator[Any]:
    """Batches of a table's rows, of all or of some keys."""
    names = list(columns) if columns else table.schema.names
    size = _LARGE if {"thumbnail", "regions"}.intersection(names) else _BLOCK
    for condition in [None] if keys is None else conditions(key, keys):
        query = table.search().select(names)
        yield from (query if condition is None else query.where(condition)).to_batches(batch_size=size)


def conditions(column: str, keys: Sequence[Any]) -> Iterator[str]:
    """SQL that is true for rows of some keys, a part of them after the other."""
    once = list(dict.fromkeys(keys))
    for start in range(0, len(once), _LOOKED_UP):
        some = once[start : start + _LOOKED_UP]
        # paths may hold quotes
        quoted = (str(one) if isinstance(one, int) else "'" + one.replace("'", "''") + "'" for one in some)
        yield f"{column} IN ({', '.join(quoted)})"


def to_arrow(name: str, rows: Sequence[tuple[Any, ...]]) -> Any:
    """Rows as a table of Arrow."""
    import pyarrow as pa  # an extra

    text, whole, content = pa.string(), pa.int64(), pa.large_binary()
    facts = (*4 * (text,), *4 * (whole,), text, text, *3 * (whole,), *3 * (content,))
    columns = {
        "pictures": zip(PictureRow._fields, facts, strict=True),
        "contents": zip(("number", "vector", "thumbnail", "regions"), (whole, *3 * (content,)), strict=True),
        "sentences": zip(
            (*SentenceRow._fields, "vector"), (text, text, text, whole, content, content), strict=True
        ),
    }[name]
    arrays = {
        column: pa.array(values, kind)
        for (column, kind), values in zip(columns, zip(*rows, strict=True), strict=True)
    }
    if "vector" in arrays:
        matrix = np.frombuffer(b"".join(arrays["vector"].to_pylist()), "<f4").reshape(len(rows), -1)
        arrays["vector"] = pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), matrix.shape[1])
    return pa.table(arrays)


def values_of(batch: Any) -> Iterable[tuple[Any, ...]]:
    """Rows of a batch as plain values."""
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def matrix_of(batch: Any) -> Float[np.ndarray, "rows dim"]:
    """The vectors of a batch."""
    column = batch.column("vector")
    matrix: Float[np.ndarray, "rows dim"] = column.flatten().to_numpy().reshape(-1, column.type.list_size)
    return matrix


def twice() -> DataError:
    """The error for two rows of one key."""
    return DataError("a picture or sentence was given twice in one commit")


def taken_over(folder: StorePath) -> StoreError:
    """The error of a writer that another one has not waited for."""
    return StoreError(f"{folder}: another process has taken over the writing; index again")


@contextmanager
def told(folder: StorePath, doing: str = "read") -> Iterator[None]:
    """Turn errors of LanceDB and of the storage into a `StoreError` with the next step."""
    try:
        with reached(folder, doing):
            yield
    except LimnerError:
        raise
    # LanceDB has no error of its own; a ValueError of a write would be a mistake of ours
    except (RuntimeError, ValueError) as error:
        if doing == "written" and isinstance(error, ValueError):
            raise
        said = str(error).splitlines()[0][:160]
        number = re.search(r"\(os error (\d+)\)", str(error))
        trouble, advice = cause_of(int(number[1]) if number else None)
        if re.search(r"Generic \w+ error|error sending request", str(error)):
            trouble, advice = "disk", f"; the endpoint is {endpoint() or 'that of AWS'}"
        if trouble == "other" and doing == "read":
            raise damaged(folder, said) from None
        raise StoreError(f"{folder}: cannot be {doing} ({said}){advice}", trouble) from None
