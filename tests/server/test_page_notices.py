"""What the page says in place of results, by its own module run in Node: no browser is needed."""

import json
import shutil
import subprocess
from typing import Any

import pytest

from limner.server.page import FOLDER

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="no node is installed")

_SCRIPT = """
globalThis.document = {
  createElement: () => ({
    children: [], setAttribute() {}, addEventListener() {},
    append(...more) { this.children.push(...more); },
  }),
};
const texts = (one) => typeof one === "string" ? [one] : one.children.flatMap(texts);
const notices = await import(process.argv[1]);
const language = await import(process.argv[1].replace("notices", "language"));
await language.setLanguage(process.argv[3]);
console.log(JSON.stringify(texts(eval(process.argv[2]))));
"""
"""Prints the texts of the element that an expression makes."""


def _texts(expression: str, language: str = "en") -> Any:
    module = (FOLDER / "notices.js").as_uri()
    command = ["node", "--input-type=module", "-e", _SCRIPT, "--", module, expression, language]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_examples_are_those_of_the_store_or_none() -> None:
    own = ["a red coat", "blue shoes"]
    with_own = _texts(f"notices.welcome([], {json.dumps(own)}, {{}})")
    assert with_own[:3] == ["For example", *own]
    without = _texts("notices.welcome([], [], {})")
    assert len(without) == 1
    assert without[0].startswith("You can also drop")


def test_no_good_match_names_the_threshold_of_the_answer() -> None:
    said = " ".join(_texts("notices.noGoodMatch({hits: [{probability: 0.2}], threshold: 0.4})"))
    assert "reaches 20%" in said
    assert "would have 40% or more" in said


def test_an_answer_says_what_was_not_understood() -> None:
    answer = {"total": 9, "matching": 9, "hits": [{"probability": None}], "good": False, "threshold": 0.5}
    told = {"unknown": ["not", "zx"], "turned": ["not"], "language": "Spanish or Italian"}
    said = " ".join(_about({**answer, **told}))
    assert "does not know “not”, and searched without" in said
    assert "Spanish, Italian" in said
    # the words are said once, and a probability that nobody has computed is not
    assert "zx" not in said
    assert "reaches" not in said
    assert "left out: zx" in " ".join(_about({**answer, "good": None, "unknown": ["zx"]}))


def test_a_field_that_no_picture_has_is_named() -> None:
    answer = {"total": 9, "matching": 0, "hits": [], "good": None, "absent": {"camra": "camera", "x": None}}
    assert "camra (camera?), x" in " ".join(_about(answer))


def test_a_page_in_a_language_that_the_model_does_not_read_says_so() -> None:
    assert _all("notices.reads(['English', 'Chinese'])", "en") == []
    assert _all("notices.reads([])", "de") == []
    assert any(
        "Das Modell liest Englisch, Chinesisch." in one
        for one in _all("notices.reads(['English', 'Chinese'])", "de")
    )


def _about(answer: dict[str, Any]) -> Any:
    return _all(f"notices.aboutAnswer({json.dumps(answer)}, () => {{}})", "en")


def _all(expression: str, language: str) -> Any:
    return _texts(f"({{ children: {expression} }})", language)
