"""Names that the pages put in backticks exist in the code: classes, their attributes, and settings."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page for page in (ROOT / "docs").glob("*.md") if "Written by docs/generate.py" not in page.read_text()
)
SETTINGS = ("model", "images", "vocabulary", "losses", "optimiser", "schedule", "reranker_pairs", "stages")
"""First names of the paths of settings, as `--set` and the pages write them."""
# Of Python, and a folder of pictures.
FOREIGN = {"OSError", "Images"}


@cache
def _defined() -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Classes, everything that a class or module defines, and the texts that settings have as values."""
    classes, names, values = set(), set(), set()
    for file in (ROOT / "limner").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                classes.add(node.name)
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(node.name)
            elif isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names.add(node.target.id)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                values.add(node.value)
    return frozenset(classes), frozenset(names), frozenset(values)


def _quoted(page: Path) -> list[str]:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_classes_and_their_attributes_exist(page: Path) -> None:
    classes, names, _ = _defined()
    wrong = []
    for quoted in _quoted(page):
        # `TextLSTM`, `HGAN.pool_images`; not SHOUTED placeholders and units
        if found := re.fullmatch(r"([A-Z][A-Za-z\d]*[a-z][A-Za-z\d]*)((?:\.\w+)*)", quoted):
            name, attributes = found[1], found[2].split(".")[1:]
            if attributes[-1:] == ["txt"]:
                continue
            if name not in classes | FOREIGN or not names.issuperset(attributes):
                wrong.append(quoted)
    assert not wrong, "these are not in limner any more; write their new names"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_settings_exist(page: Path) -> None:
    _, names, values = _defined()
    wrong = []
    for quoted in _quoted(page):
        path = re.sub(r"^--set |=.*$", "", quoted)
        first, *rest = path.split(".")
        if first not in SETTINGS or not rest or not re.fullmatch(r"[\w.…-]+", path):
            continue
        # stages and losses are addressed by their names, which are values
        known = names | values | {"…", "STAGE", "NAME", "0"}
        if not known.issuperset(filter(None, rest)):
            wrong.append(quoted)
    assert not wrong, "no setting has this name any more; see docs/settings.md"
