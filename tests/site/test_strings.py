"""The page's strings: the same in every language, and each that is asked for."""

import re
from pathlib import Path

import pytest

from limner.site import write

PAGE = Path(write.__file__).parent / "page"


def strings(language: str) -> dict[str, set[str]]:
    """The values that each string takes, by its key."""
    text = (PAGE / f"strings-{language}.js").read_text(encoding="utf-8")
    parts = re.split(r"^  (\w+):", text, flags=re.MULTILINE)[1:]
    return {
        key: set(re.findall(r"\{(\w+)\}", value)) for key, value in zip(parts[::2], parts[1::2], strict=True)
    }


@pytest.mark.parametrize("language", ["de", "zh", "vi"])
def test_every_language_has_every_string(language: str) -> None:
    assert strings(language) == strings("en")


def test_every_string_that_is_asked_for_is_there() -> None:
    asked = re.findall(r'data-t(?:-[a-z-]+)?="(\w+)"', (PAGE / "index.html").read_text(encoding="utf-8"))
    script = (PAGE / "app.js").read_text(encoding="utf-8")
    asked += re.findall(r'\bt\(\s*"(\w+)"', script)
    # the facts of a picture are named in a list
    asked += re.findall(r'^    \["(\w+)", ', script, flags=re.MULTILINE)
    assert set(asked) == strings("en").keys()
