"""Text files that users give: the encoding, the lines, and the separator of CSV, decided here for every such list.

UTF-8 with or without a byte order mark is read, and UTF-16 with its mark, which spreadsheets call "Unicode text".
Another encoding cannot be told for sure, so it is refused: a wrong guess would be other words.
"""

import csv
import io
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from limner.errors import DataError

SEPARATORS = (",", ";", "\t")
"""Commas; semicolons, of spreadsheets whose numbers have a comma; tabs."""

_WIDE = (b"\xff\xfe", b"\xfe\xff")
_STRAY = re.compile("[\udc80-\udcff]")
# Excel's own first line, for itself; some programs quote it
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?[ ,;\t]*(?:\r\n|\r|\n)', re.IGNORECASE)
# a line of more than separators, which some programs write for empty rows
_FILLED = re.compile(r'[^\r\n]*[^ ,;\t"\r\n][^\r\n]*')
_NEXT = "save it as UTF-8 (spreadsheets: “CSV UTF-8”)"


def read_text(file: Path, *, may_be_empty: bool = False) -> str:
    """The whole text of a file, line ends as they are.

    Raises `DataError` if it cannot be read, is empty, or is in another encoding, with the line that shows it.
    """
    with _opened(file) as stream:
        text = stream.read()
    if (stray := _STRAY.search(text)) is not None:
        _refuse(file, text.count("\n", 0, stray.start()) + 1, stray[0])
    if not text.strip() and not may_be_empty:
        raise DataError(f"{file}: the file is empty")
    return text


def text_lines(file: Path) -> Iterator[str]:
    """The lines of a file that may be larger than memory, without their ends. Raises as `read_text`, but for emptiness.

    Lines end at line breaks alone, not at every character that `splitlines` breaks at: those may stand in a sentence.
    """
    with _opened(file) as stream:
        for number, line in enumerate(stream, start=1):
            if (stray := _STRAY.search(line)) is not None:
                _refuse(file, number, stray[0])
            yield line.rstrip("\r\n")


def table_rows(file: Path, names: Collection[str]) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file that are not blank, with the number of the line where each ends; the header is the first.

    The cells are parted by what a first line `sep=` says, else by that of `SEPARATORS` which finds most of `names` in
    the header, then most cells. Raises `DataError`, also for what is no CSV.
    """
    text = read_text(file)
    marked = _SEPARATOR_LINE.match(text)
    if marked is not None:
        text = text[marked.end() :]
    header = _FILLED.search(text)
    if header is None:
        raise DataError(f"{file}: the file has no row")
    separator = _separator(header[0], names) if marked is None else marked[1]
    # `newline=""`, as csv asks for, keeps line breaks inside quotes; without `strict` a quote in the wrong place would
    # join the rows up to the next one without an error
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    before = 0 if marked is None else 1
    try:
        for cells in rows:
            # spreadsheets leave rows of separators at the end
            if any(cell.strip() for cell in cells):
                yield rows.line_num + before, cells
    except csv.Error as error:
        line = rows.line_num + before
        raise DataError(f"{file}: line {line}: CSV was expected, {error}; is a quote missing?") from None


def _separator(header: str, names: Collection[str]) -> str:
    def fitting(separator: str) -> tuple[int, int]:
        cells = [cell.strip(' "').lower() for cell in header.split(separator)]
        return len(set(cells) & set(names)), len(cells)

    # the first of equals: a comma where nothing parts the line
    return max(SEPARATORS, key=fitting)


@contextmanager
def _opened(file: Path) -> Iterator[TextIO]:
    try:
        with file.open("rb") as content:
            begin = content.peek(4)[:4]
            # UTF-16 without its mark, UTF-32, and what is no text
            if b"\0" in begin[:2] or begin[2:] == b"\0\0":
                raise DataError(f"{file}: text was expected, this is none or UTF-16 without a mark; {_NEXT}")
            wide = begin[:2] in _WIDE
            # surrogateescape: the line of a wrong byte can be named, while Python's error says where a block has it
            stream = io.TextIOWrapper(
                *(content, "utf-16" if wide else "utf-8-sig"),
                errors="strict" if wide else "surrogateescape",
                newline="",
            )
            yield stream
    except UnicodeDecodeError:
        raise DataError(f"{file}: begins like UTF-16 and is none; {_NEXT}") from None
    # a path with a NUL is a ValueError, which has no `strerror`
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f"{file}: cannot be read ({reason})") from None


def _refuse(file: Path, line: int, stray: str) -> None:
    raise DataError(
        f"{file}: line {line}: UTF-8 text was expected, got byte 0x{ord(stray) - 0xDC00:02x}; {_NEXT}"
    )
