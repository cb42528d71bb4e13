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
console.log(JSON.stringify(texts(eval(process.argv[2]))));
"""
"""Prints the texts of the element that an expression makes."""


def _texts(expression: str) -> Any:
    module = (FOLDER / "notices.js").as_uri()
    command = ["node", "--input-type=module", "-e", _SCRIPT, "--", module, expression]
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
