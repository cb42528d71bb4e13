"""Parquet shards with pictures in them, as datasets of the Hugging Face hub are published.

    train-00000-of-00002.parquet    columns image {bytes, path}, caption1, caption2, …

The column of pictures holds the bytes of an encoded picture, or a struct with `bytes` and `path`. The other columns are
read as `shards` says; columns that JSON has no form for (dates, vectors of floats, further pictures) are left out. A
picture is unpacked into a file of the cache once, see `unpacking`.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limner.data.readers.parsing import shown
from limner.data.readers.shards import plain_values, read_shards, shard_files
from limner.data.readers.unpacking import Sample
from limner.data.records import Dataset
from limner.errors import DataError
from limner.tables import require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

ENDINGS = (".parquet",)

_PICTURE_NAMES = ("image", "img", "picture", "photo", "jpg", "png")
"""Which column holds the pictures if several hold bytes."""

# Pictures of a batch are in memory together; rows of half a megabyte are usual.
_BATCH = 64


def read_parquet(path: Path, source: str) -> Dataset:
    """Read the shards of a folder, those of a pattern, or one file.

    Raises `DataError` for shards that are missing or no Parquet, without a column of pictures or of captions, and for
    rows without a picture, naming the shard and the row; `SettingsError` without pyarrow.
    """
    files = shard_files(path, ENDINGS, "a Parquet file")
    column = _same_column(files)
    return read_shards(path, files, source, partial(_samples, column=column), f"parquet {column}")


def _same_column(files: list[Path]) -> str:
    """The column of pictures, which all shards must have."""
    columns = {file: _picture_column(file) for file in files}
    for file, column in columns.items():
        if column != columns[files[0]]:
            raise DataError(
                f"{file}: pictures in the column '{columns[files[0]]}' were expected as in {files[0].name}, "
                f"got '{column}'"
            )
    return columns[files[0]]


def _picture_column(file: Path) -> str:
    with _opened(file) as shard:
        fields = list(shard.schema_arrow)
    held: list[str] = [field.name for field in fields if _holds_pictures(field.type)]
    if len(held) == 1:
        return held[0]
    # Masks and crops may stand beside the picture.
    for name in _PICTURE_NAMES:
        if name in held:
            return name
    names = ", ".join(held or [field.name for field in fields])
    raise DataError(
        f"{file}: one column of pictures was expected (bytes, or a struct of bytes and path), "
        + (
            f"found several: {shown(names)}; call one of them image"
            if held
            else f"columns here: {shown(names)}"
        )
    )


def _samples(file: Path, column: str) -> Iterator[Sample]:
    with _opened(file) as shard:
        fields = [field for field in shard.schema_arrow if field.name == column or _is_plain(field.type)]
        row = 0
        for batch in _batches(file, shard, [field.name for field in fields]):
            for values in batch:
                place = f"row {row}"
                name, content = _picture(file, place, values.pop(column))
                yield Sample(place, name, content, plain_values(values.items()))
                row += 1


def _picture(file: Path, place: str, value: Any) -> tuple[str, bytes]:
    name, content = (value.get("path"), value.get("bytes")) if isinstance(value, dict) else (None, value)
    if not isinstance(content, bytes) or not content:
        # `datasets` saves a path alone where a set was made of files and they were not embedded.
        beside = f"; only the path {shown(name)} is there" if name else ""
        raise DataError(f"{file}: {place}: the bytes of a picture were expected, they are missing{beside}")
    return str(name or ""), content


def _batches(file: Path, shard: "pq.ParquetFile", columns: list[str]) -> Iterator[list[dict[str, Any]]]:
    batches = shard.iter_batches(batch_size=_BATCH, columns=columns)
    while True:
        try:
            batch = next(batches, None)
            rows = None if batch is None else batch.to_pylist()
        # ArrowException covers damaged pages; text that is no UTF-8 is a UnicodeDecodeError, a ValueError.
        except (OSError, ValueError, MemoryError) as error:
            raise _unreadable(file, error) from None
        if rows is None:
            return
        yield rows


def _opened(file: Path) -> "pq.ParquetFile":
    require_pyarrow(f"{file}: a Parquet file")
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(file)
    # pyarrow's ArrowInvalid is a ValueError, its other errors are OSErrors.
    except (OSError, ValueError) as error:
        raise _unreadable(file, error) from None


def _unreadable(file: Path, error: BaseException) -> DataError:
    reason = " ".join(str(error).split())[:120] or type(error).__name__
    return DataError(f"{file}: a Parquet file was expected, it cannot be read ({reason})")


def _holds_pictures(of: "pa.DataType") -> bool:
    import pyarrow.types as types

    if types.is_struct(of):
        return any(field.name == "bytes" and _is_binary(field.type) for field in of)
    return _is_binary(of)


def _is_binary(of: "pa.DataType") -> bool:
    import pyarrow.types as types

    return bool(types.is_binary(of) or types.is_large_binary(of))


def _is_plain(of: "pa.DataType") -> bool:
    """True for text, numbers and truth values, and lists and structs of them; not for vectors of floats."""
    import pyarrow.types as types

    if types.is_dictionary(of):
        return _is_plain(of.value_type)
    if types.is_list(of) or types.is_large_list(of):
        return _is_plain(of.value_type) and not types.is_floating(of.value_type)
    if types.is_struct(of):
        return all(_is_plain(field.type) for field in of)
    is_text = types.is_string(of) or types.is_large_string(of)
    is_number = types.is_integer(of) or types.is_floating(of) or types.is_boolean(of)
    return bool(is_text or is_number or types.is_null(of))
