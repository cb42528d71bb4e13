"""Every example in a docstring gives what it says."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import limner

ROOT = Path(limner.__file__).parent
FILES = [file for file in sorted(ROOT.rglob("*.py")) if ">>> " in file.read_text(encoding="utf-8")]
# their examples speak of matches that tests/evaluation/test_measures.py hands in
ELSEWHERE = {"evaluation/measures.py"}


@pytest.mark.parametrize("file", sorted({str(file.relative_to(ROOT)) for file in FILES} - ELSEWHERE))
def test_examples_in_docstrings(file: str) -> None:
    module = import_module("limner." + file.removesuffix(".py").replace("/", "."))
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed
