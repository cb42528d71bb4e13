"""Read `--metadata FILE`: facts about images, from a CSV or JSON Lines file.

One image a row: `file` (its path, relative to the metadata file's folder or absolute), optionally
`identity` (whom or what it shows), and any further columns or keys.
"""

import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from limner.durable import from_json
from limner.errors import DataError

_LONGEST = 120  # characters of a value that an error repeats


def read_metadata(file: str | Path) -> dict[str, dict[str, Any]]:
    """Read facts by absolute path of the image, as `index_pictures` takes them.

    A name that ends in .jsonl means JSON Lines, one in .csv means CSV (UTF-8, names in the first row).
    Empty CSV cells and JSON nulls are left out; CSV values stay text; `identity` becomes text.

    Raises `DataError` in one line, with the number of the line, for whatever cannot be read that way, for a
    row without `file`, for a column `path`, and for an image that comes twice.
    """
    file = Path(file)
    readers = {".csv": _csv_rows, ".jsonl": _json_rows}
    reader = readers.get(file.suffix.lower())
    if reader is None:
        raise DataError(f"{file}: expected a name that ends in .csv or .jsonl")
    pictures: dict[str, dict[str, Any]] = {}
    try:
        for line, row in reader(file):
            where = f"{file}, line {line}"
            values = {name: value for name, value in row.items() if value not in (None, "")}
            # in conditions `path` means the image's own, so nobody could ask for this column
            if "path" in values:
                raise DataError(f"{where}: 'path' is the picture's own in conditions; give it another name")
            path = _picture(file, where, values.pop("file", None))
            if path in pictures:
                raise DataError(f"{where}: {path[:_LONGEST]!a} comes a second time; give one row a picture")
            if "identity" in values:
                values["identity"] = _identity(where, values["identity"])
            pictures[path] = values
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise DataError(f"{file}: not UTF-8 text; save it as UTF-8") from None
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
    # utf-8-sig: spreadsheet programs begin the file with a byte order mark, which would belong to the first name.
    # newline="": the csv module itself reads line ends, those in quotes too.
    with file.open(encoding="utf-8-sig", newline="") as text:
        # without strict a quote in the wrong place joins the rows up to the next one, without an error
        rows = csv.reader(text, strict=True)
        try:
            names = [name.strip() for name in next(rows, [])]
            if "file" not in names:
                raise DataError(f"{file}: expected a column 'file' in the first row, got {_shown(names)}")
            if len(set(names)) < len(names):
                raise DataError(f"{file}: two columns have the same name in {_shown(names)}")
            for row in rows:
                # fewer values are fine: some programs leave out empty cells at the end of a row
                if len(row) > len(names):
                    raise DataError(
                        f"{file}, line {rows.line_num}: {len(row)} values for {len(names)} columns"
                    )
                if any(row):
                    yield rows.line_num, dict(zip(names, row, strict=False))
        except csv.Error as error:
            raise DataError(f"{file}, line {rows.line_num}: not CSV ({error})") from None


def _json_rows(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with file.open(encoding="utf-8-sig") as text:
        for number, line in enumerate(text, start=1):
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
