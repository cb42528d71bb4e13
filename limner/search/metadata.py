"""Read `--metadata FILE`: facts about images, from a CSV or JSON Lines file.

One image a row: `file` (its path, relative to the metadata file's folder or absolute), optionally
`identity` (whom or what it shows), and any further columns or keys.
"""

import json
import os
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, NoReturn

from limner.conditions import wrong_name
from limner.durable import from_json
from limner.errors import DataError
from limner.text_files import table_rows, text_lines

_LONGEST = 120  # characters of a value that an error repeats


def read_metadata(file: str | Path) -> dict[str, dict[str, Any]]:
    """Read facts by absolute path of the image, as `index_pictures` takes them.

    A name that ends in .jsonl means JSON Lines, one in .csv means CSV (names in the first row; parted
    by commas, semicolons or tabs).
    Empty CSV cells and JSON nulls are None, which takes a fact away; CSV values stay text; `identity` becomes text.

    Raises `DataError` in one line, with the number of the line, for whatever cannot be read that way, for a
    row without `file`, for a column `path` or one without a name, and for an image that comes twice.
    """
    file = Path(file)
    readers = {".csv": _csv_rows, ".jsonl": _json_rows}
    reader = readers.get(file.suffix.lower())
    if reader is None:
        raise DataError(f"{file}: expected a name that ends in .csv or .jsonl")
    pictures: dict[str, dict[str, Any]] = {}
    for line, row in reader(file):
        where = f"{file}, line {line}"
        values = {name: None if value == "" else value for name, value in row.items()}
        path = _picture(file, where, values.pop("file", None))
        for name in [name for name, value in values.items() if value is not None]:
            if wrong := wrong_name(name):
                raise DataError(f"{where}: {wrong}")
        if path in pictures:
            raise DataError(f"{where}: {path[:_LONGEST]!a} comes a second time; give one row a picture")
        if values.get("identity") is not None:
            values["identity"] = _identity(where, values["identity"])
        pictures[path] = values
    return pictures


def _picture(file: Path, where: str, name: object) -> str:
    if not isinstance(name, str):
        raise DataError(f"{where}: expected the picture's path under 'file', got {_shown(name)}")
    # the calls of `os` raise a bare ValueError for it
    if "\0" in name:
        raise DataError(f"{where}: the picture's path {_shown(name)} holds a zero byte")
    return os.path.abspath(file.parent / name)  # noqa: PTH100 - resolve() would follow links


def _identity(where: str, value: object) -> str:
    # bool is a subclass of int; a fraction is refused because 3.0 and 3 would be two identities
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise DataError(f"{where}: expected text or a whole number under 'identity', got {_shown(value)}")
    return str(value)


def _csv_rows(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    names: list[str] = []
    for line, cells in table_rows(file, ("file", "identity")):
        if not names:
            names = [name.strip() for name in cells]
            if "file" not in names:
                raise DataError(f"{file}: expected a column 'file' in the first row, got {_shown(names)}")
            if len(set(names)) < len(names):
                raise DataError(f"{file}: two columns have the same name in {_shown(names)}")
            continue
        # fewer values are fine: some programs leave out empty cells at the end of a row
        if len(cells) > len(names):
            raise DataError(f"{file}, line {line}: {len(cells)} values for {len(names)} columns")
        yield line, dict(zip_longest(names, cells))


def _json_rows(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(text_lines(file), start=1):
        if not line.strip():
            continue
        try:
            # Python also reads NaN and Infinity, which are no JSON and could not be written again
            row = from_json(line, parse_constant=_refuse)
            json.dumps(row, ensure_ascii=False).encode()  # half a surrogate pair is no text
        except ValueError:
            raise DataError(f"{file}, line {number}: not JSON: {_shown(line.strip())}") from None
        if not isinstance(row, dict):
            raise DataError(f"{file}, line {number}: expected a JSON object, got {_shown(row)}")
        yield number, row


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
