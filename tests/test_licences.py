"""The licence of every installed dependency of limner and of its extras is on one list, offline.

`make check` runs this file. A new dependency with another licence, or with none in its metadata, fails here: read its
licence file, then give it a line in `ALLOWED`, `SPELLINGS` or `EXCEPTIONS`. `dev` tools are not looked at: limner does
not run on them.
"""

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]

ALLOWED = frozenset(
    {
        *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "CNRI-Python", "ISC"),
        *("MIT", "MIT-0", "MIT-CMU", "PSF-2.0", "Unlicense", "Zlib", "Apache-2.0 WITH LLVM-exception"),
    }
)
"""SPDX names of licences that ask for a notice at most: they suit a program under Apache-2.0."""

SPELLINGS = {
    "Apache": "Apache-2.0",
    "Apache 2": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache 2.0 License": "Apache-2.0",
    "Apache License": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "3-Clause BSD License": "BSD-3-Clause",
    # the classifier does not say which; both are allowed
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Python Software Foundation License": "PSF-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
"""Licences as older metadata spell them, by their SPDX names."""

EXCEPTIONS = {
    "certifi": (
        "MPL-2.0",
        "a list of certificates, used as it is; the licence binds changes of its own files alone",
    ),
    "gensim": (
        "LGPL-2.1-only",
        "the extra `vectors` alone; called as a library that a user can replace, nothing of it is held or changed here",
    ),
    "tqdm": (
        "MPL-2.0",
        "used as it is, by transformers and others; the licence binds changes of its own files alone",
    ),
}
"""Packages under other licences: the licence that is accepted of each, and why."""


def _dependencies() -> Iterator[Distribution]:
    """The installed distributions that limner and its extras need, directly or not, each once."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    waiting = [(Requirement(line), "") for line in project["dependencies"]]
    waiting += [(Requirement(line), "") for name, lines in extras.items() if name != "dev" for line in lines]
    seen: set[tuple[str, str]] = set()
    given: set[str] = set()
    while waiting:
        requirement, of_extra = waiting.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        wanted = {"", *requirement.extras}
        if name == "limner" or (requirement.marker and not requirement.marker.evaluate({"extra": of_extra})):
            continue
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue  # of an extra that is not installed here, or for another system
        if name not in given:
            given.add(name)
            yield found
        for extra in wanted:
            if (name, extra) not in seen:
                seen.add((name, extra))
                waiting += [(Requirement(line), extra) for line in found.requires or []]


def licences_of(found: Distribution) -> list[str]:
    """SPDX names of a distribution's licences, all of which hold; of a choice the allowed one; [] if it says none."""
    data = found.metadata
    if "License-Expression" in data:
        return _of_expression(data["License-Expression"])
    stated = [line for line in data.get_all("Classifier") or [] if line.startswith("License ::")]
    named = [line.rpartition(" :: ")[2] for line in stated]
    # "OSI Approved" alone says which kind, not which
    named = [name for name in named if name != "OSI Approved"]
    if not named:
        text = data["License"].strip() if "License" in data else ""
        # one line is a name, many are the licence's text
        named = _of_expression(text.removeprefix("OSI Approved :: ")) if text and "\n" not in text else []
    return [SPELLINGS.get(name, name) for name in named]


def _of_expression(expression: str) -> list[str]:
    parts = [part.strip(" ()") for part in re.split(r"\bAND\b", expression)]
    if len(parts) == 1 and " OR " in expression:
        choices = [part.strip(" ()") for part in expression.split(" OR ")]
        return [next((choice for choice in choices if choice in ALLOWED), expression)]
    # a choice within other conditions is rare and is left to be looked at by hand
    return [SPELLINGS.get(part, part) for part in parts]


def complaint(found: Distribution) -> str | None:
    """One line if a distribution's licence is not on the list."""
    name = re.sub(r"[-_.]+", "-", found.metadata["Name"]).lower()
    licences = licences_of(found)
    if not licences:
        return f"{name} {found.version}: its metadata name no licence"
    accepted = {EXCEPTIONS[name][0]} if name in EXCEPTIONS else set()
    wrong = [licence for licence in licences if licence not in ALLOWED | accepted]
    return f"{name} {found.version}: {', '.join(wrong)}" if wrong else None


def test_every_dependency_has_a_licence_on_the_list() -> None:
    found = list(_dependencies())
    names = {re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower() for one in found}
    # a direct one, one of an extra, and one that only another package asks for
    assert {"torch", "uvicorn", "pydantic-core"} <= names
    assert not [line for line in map(complaint, found) if line]


def test_exceptions_are_needed_and_have_a_reason() -> None:
    held = {re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower(): one for one in _dependencies()}
    for name, (licence, reason) in EXCEPTIONS.items():
        assert len(reason) > 20
        assert licence not in ALLOWED
        if name in held:
            assert licence in licences_of(held[name]), f"{name} is under {licences_of(held[name])} now"


class _Made(Distribution):
    """A distribution that is not installed."""

    def __init__(self, *lines: str) -> None:
        self.lines = lines

    def read_text(self, filename: str) -> str | None:
        head = "Metadata-Version: 2.4\nName: made\nVersion: 1\n"
        return head + "".join(f"{line}\n" for line in self.lines) if filename == "METADATA" else None

    def locate_file(self, path: object) -> Path:
        raise FileNotFoundError


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        (("License-Expression: MIT",), None),
        (("License-Expression: GPL-3.0-only OR MIT",), None),
        (("License-Expression: (GPL-3.0-only OR MIT)",), None),
        (("License-Expression: Apache-2.0 AND Apache-2.0 WITH LLVM-exception",), None),
        (("License-Expression: MIT AND GPL-3.0-only",), "GPL-3.0-only"),
        (("License-Expression: AGPL-3.0-only",), "AGPL-3.0-only"),
        (("License: MIT", "Classifier: License :: OSI Approved :: MIT License"), None),
        (
            ("License: MIT", "Classifier: License :: OSI Approved :: GNU Affero General Public License v3"),
            "Affero",
        ),
        (("License: OSI Approved :: Apache Software License",), None),
        (("License: Apache 2.0",), None),
        (("License: MIT AND AGPL-3.0-only",), "AGPL-3.0-only"),
        (("License: free for friends",), "free for friends"),
        (("License: MIT, with some lines", "        more of its text"), "no licence"),
        ((), "no licence"),
    ],
)
def test_licences_are_read_and_refused(lines: tuple[str, ...], wrong: str | None) -> None:
    found = complaint(_Made(*lines))
    assert (found is None) if wrong is None else (found is not None and wrong in found)


@given(
    st.lists(st.sampled_from(sorted(ALLOWED)), max_size=4),
    st.sampled_from(
        ["GPL-2.0-only", "AGPL-3.0-or-later", "LGPL-2.1-only", "SSPL-1.0", "LicenseRef-Proprietary"]
    ),
    st.integers(0, 4),
)
def test_one_licence_that_is_not_on_the_list_is_enough(allowed: list[str], other: str, place: int) -> None:
    expression = " AND ".join([*allowed[:place], other, *allowed[place:]])
    assert complaint(_Made(f"License-Expression: {expression}")) == f"made 1: {other}"
    if allowed:
        assert complaint(_Made(f"License-Expression: {' AND '.join(allowed)}")) is None
