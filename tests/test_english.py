"""Docstrings, comments, help texts and pages keep to plain English, as far as a test can see it (CONTRIBUTING.md)."""

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "limner").rglob("*.py"))
# The log keeps the words of its day, and CONTRIBUTING shows what not to write.
PAGES = sorted(
    page
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    if page.parent.name != "log" or page.name == "index.md"
)
UNPLAIN = {
    r"whose word on who": "an inverted clause",
    r"\b(is is|are are)\b": "an inverted clause",
    r"\bof before\b": "a clipped fragment; write 'old' or 'earlier'",
    r"\b(where|when|if) there (is|are) none\b": "a clipped fragment; write 'if the … has none'",
}
OLD_WORDS = r"\b(matchers?|judges?)\b"
"""Words that limner once had for rerankers and cross-encoders; a setting of that name stands in backticks."""


def _unplain(text: str) -> list[str]:
    return [
        f"{pattern!r} is {why}"
        for pattern, why in UNPLAIN.items()
        if re.search(pattern, text, flags=re.IGNORECASE)
    ]


def _strings(file: Path) -> Iterator[tuple[int, str]]:
    """Docstrings, also of fields, and all texts of a file with their lines."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def _comments(file: Path) -> Iterator[tuple[int, str]]:
    """Comments with their lines; lines that follow each other are one text, since a phrase may break between them."""
    last, text = 0, ""
    with file.open(encoding="utf-8") as lines:
        for token in tokenize.generate_tokens(lines.readline):
            if token.type == tokenize.COMMENT:
                line, more = token.start[0], token.string.lstrip("# ")
                if line == last + 1 and text:
                    text += f" {more}"
                else:
                    yield last, text
                    text = more
                last = line
    yield last, text


def _docstrings(file: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        body = getattr(node, "body", None)  # of a lambda or a conditional expression it is no list
        for statement in body if isinstance(body, list) else []:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                value = statement.value.value
                if isinstance(value, str):
                    yield statement.lineno, value


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_docstrings_say_what_a_thing_does_or_is(file: Path) -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{line}: {text.strip().splitlines()[0]}"
        for line, text in _docstrings(file)
        if re.match(r"\s*(What|Whether)\b", text)
    ]
    assert not wrong, "a docstring's first line begins with the thing, not with 'What' or 'Whether'"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_texts_are_plain(file: Path) -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{line}: {found}"
        for line, text in (*_strings(file), *_comments(file))
        for found in _unplain(text)
    ]
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_are_plain(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert not _unplain(text)
    if not text.startswith("<!-- Written by docs/generate.py"):
        assert not re.findall(OLD_WORDS, re.sub(r"`[^`]*`", "", text), flags=re.IGNORECASE)


def test_the_samples_are_found() -> None:
    """The sentences that the rule was made for."""
    for sample in (
        "Address of a reverse proxy, whose word on who the client is is believed.",
        "Random: tells it from another store; empty in stores of before.",
        "None where there is none.",
    ):
        assert _unplain(sample), sample
    commented = ROOT / "limner" / "durable.py"
    assert any("before the rename, or the name" in text for _, text in _comments(commented))
    assert not _unplain("None if the store has no sentences; this is not there to be found.")
