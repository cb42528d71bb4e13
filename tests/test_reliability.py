"""docs/reliability.md names tests that exist, and long runs with their day and code."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reliability.md"


def _section(title: str, text: str) -> str:
    return text.split(f"\n## {title}\n")[1].split("\n## ")[0]


def _rows(text: str) -> list[list[str]]:
    """The cells of every table's rows, without heads and rules."""
    found, head = [], True
    for line in text.splitlines():
        if not line.startswith("|"):
            head = True
        elif set(line) <= set("|-"):
            head = False
        elif not head:
            found.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return found


def named_tests(text: str) -> list[tuple[str, Path]]:
    """The tests that a text links: name and file."""
    return [
        (name, ROOT / path) for name, path in re.findall(r"\[(test_\w+)\]\(\.\./(tests/[\w/]+\.py)\)", text)
    ]


def functions_in(file: Path) -> set[str]:
    """The names of all functions of a file."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def missing(text: str) -> list[str]:
    """The tests that a text links and that are not there."""
    return [
        f"{name} in {file.relative_to(ROOT)}"
        for name, file in named_tests(text)
        if not file.is_file() or name not in functions_in(file)
    ]


def test_every_test_that_is_named_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert not missing(text)
    # no link to a test of another form slips through
    assert len(named_tests(text)) == len(re.findall(r"\]\(\.\./tests/", text)) >= 50


@pytest.mark.parametrize(
    "row", _rows(_section("Promises", PAGE.read_text(encoding="utf-8"))), ids=lambda row: row[0]
)
def test_every_promise_has_a_test(row: list[str]) -> None:
    promise, tests, runs = (*row, "")[:3]
    assert promise
    assert named_tests(tests)
    # what follows the comma: letters of the long runs, numbers of the torture run
    known = {
        row[0].partition(",")[0] for row in _rows(_section("Long runs", PAGE.read_text(encoding="utf-8")))
    }
    assert {run for run in runs.strip("| ").split(", ") if run} <= known


def test_every_long_run_has_its_day_its_code_and_its_place_in_the_log() -> None:
    runs, torture = _section("Long runs", PAGE.read_text(encoding="utf-8")).split("### The torture run")
    assert len(_rows(runs)) >= 4
    for run, day, code, machine, happened in _rows(runs):
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", day), run
        assert re.search(r"[0-9a-f]{7}", code), run
        assert machine
        assert f"(log/{day}.md#" in happened
    for number, _, *figures in _rows(torture):
        # a run that was made says when and of which code, one that was not says nothing
        assert set(figures) == {"–"} or "–" not in figures[3:], number


def test_a_test_that_is_gone_would_be_found() -> None:
    gone = "[test_nobody_wrote](../tests/test_reliability.py), [test_x](../tests/test_no_file.py)"
    assert missing(gone) == [
        "test_nobody_wrote in tests/test_reliability.py",
        "test_x in tests/test_no_file.py",
    ]
