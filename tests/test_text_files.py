"""Text files of users: encodings, lines, and what parts the cells of CSV."""

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limner.errors import DataError
from limner.text_files import read_text, table_rows, text_lines

ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be")
MARKS = {"utf-16-le": "\ufeff", "utf-16-be": "\ufeff"}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_marked_encodings_are_read_as_the_same_text(encoding: str, tmp_path: Path) -> None:
    text = "file,caption\r\nä.jpg,\u2028 ein Mann 😀\n\n"
    file = tmp_path / "a.csv"
    file.write_bytes((MARKS.get(encoding, "") + text).encode(encoding))
    assert read_text(file) == text
    assert list(text_lines(file)) == ["file,caption", "ä.jpg,\u2028 ein Mann 😀", ""]
    assert list(table_rows(file, ())) == [(1, ["file", "caption"]), (2, ["ä.jpg", "\u2028 ein Mann 😀"])]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"one\ntwo\r\ncaf\xe9\n", "line 3: UTF-8 text was expected, got byte 0xe9; save it as UTF-8"),
        # beyond the block in which a decoder finds it
        (b"x\n" * 9000 + b"\x80", "line 9001: UTF-8 text was expected, got byte 0x80"),
        # half a pair in UTF-8, which Python could write nowhere
        (b"a\n\xed\xa0\x80", "line 2: UTF-8 text was expected, got byte 0xed"),
        ("file".encode("utf-16-le"), "UTF-16 without a mark; save it as UTF-8"),
        ("file".encode("utf-16-be"), "UTF-16 without a mark; save it as UTF-8"),
        ("file".encode("utf-32"), "UTF-16 without a mark; save it as UTF-8"),
        (b"\xff\xfefil", "begins like UTF-16 and is none; save it as UTF-8"),
        (b"\xff\xfe\x3d\xd8a\0", "begins like UTF-16 and is none; save it as UTF-8"),
    ],
)
def test_other_encodings_are_one_line_with_the_next_step(content: bytes, says: str, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(content)
    for read in (read_text, lambda file: list(text_lines(file)), lambda file: list(table_rows(file, ()))):
        with pytest.raises(DataError, match=says) as error:
            read(file)
        assert str(error.value).startswith(f"{file}: ")
        assert "\n" not in str(error.value)


def test_what_holds_nothing_is_said(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    for content, says in (
        (b"", "is empty"),
        (b"\xef\xbb\xbf \n\t\n", "is empty"),
        (b";;\n;\n", "has no row"),
    ):
        file.write_bytes(content)
        with pytest.raises(DataError, match=says):
            list(table_rows(file, ()))
    for path in (tmp_path, tmp_path / "none", tmp_path / "a\0b"):
        with pytest.raises(DataError, match="cannot be read"):
            read_text(path)


CELLS = st.lists(st.text(st.characters(exclude_categories=("Cs", "Cc"))), min_size=2, max_size=2)


@given(
    st.lists(CELLS, max_size=4), st.sampled_from(",;\t"), st.sampled_from(("", "sep={}\n", '"SEP={}"\r\n'))
)
def test_any_separator_gives_the_same_cells(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], separator: str, begin: str
) -> None:
    table = [["file", "caption; a, b"], *(row for row in rows if "".join(row).strip())]
    text = io.StringIO()
    csv.writer(text, delimiter=separator).writerows(table)
    file = tmp_path_factory.mktemp("any") / "a.csv"
    file.write_text(begin.format(separator) + text.getvalue(), encoding="utf-8", newline="")
    found = list(table_rows(file, ("file",)))
    assert [cells for _, cells in found] == table
    first = 2 if begin else 1
    assert [line for line, _ in found] == list(range(first, first + len(table)))


def test_the_header_decides_by_the_names_that_are_expected(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    # a caption of more commas than the header has cells, and a name that holds semicolons
    file.write_text("File;Caption\na.jpg;one, two, three\n", encoding="utf-8")
    assert list(table_rows(file, ("file", "caption")))[1] == (2, ["a.jpg", "one, two, three"])
    file.write_text("file,caption,a;b;c;d\na.jpg,one;two,3\n", encoding="utf-8")
    assert list(table_rows(file, ("file", "caption")))[1] == (2, ["a.jpg", "one;two", "3"])
    file.write_text("sep=|\nfile|caption\na.jpg|x\n", encoding="utf-8")
    assert list(table_rows(file, ("file",)))[1] == (3, ["a.jpg", "x"])


def test_a_quote_in_the_wrong_place_is_named_by_its_line(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('sep=;\nfile;caption\na.jpg;"x" y\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"line 3: CSV was expected, .*; is a quote missing"):
        list(table_rows(file, ("file",)))
