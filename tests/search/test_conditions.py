import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limner.errors import SettingsError
from limner.search import conditions as module
from limner.search.conditions import Condition

FACTS = {
    "camera": 3,
    "height": "172",
    "tags": ["red", "long coat"],
    "taken": "2026-11-20T08:15:00",
    "path": "/cam 1/Gate/a.jpg",
    "flag": True,
    "odd": "a|b",
}


@pytest.mark.parametrize(
    "text",
    [
        *("camera=3", "camera=3.0", " camera = 2|3 ", "camera!=4", "camera>2", "camera<=3"),
        *("height>=99", "height<1000", "tags=red", "tags=long coat|x", "tags~*coat"),
        *("taken>=2026-11-20", "taken<2026-11-21", "path~*/gate/*", "path~/CAM*", "flag=true"),
        *('odd="a|b"', 'odd=x|"a|b"', "nothing!=1", "camera!=4|5"),
    ],
)
def test_met(text: str) -> None:
    assert Condition.parse(text).holds(FACTS)


@pytest.mark.parametrize(
    "text",
    [
        *("camera=4", "camera=33", "camera!=3", "camera!=2|3", "camera>3", "height<99", "tags=coat"),
        *("tags!=red", "taken<2026-11-20", "path~gate", "nothing=1", "nothing>0", "nothing~*"),
        *("odd=a|b", "camera=", "flag=1"),
    ],
)
def test_not_met(text: str) -> None:
    assert not Condition.parse(text).holds(FACTS)


@pytest.mark.parametrize("text", ["", "camera", "=3", " = ", "~x"])
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="NAME=VALUE"):
        Condition.parse(text)


@given(st.text(), st.dictionaries(st.text(), st.none() | st.text() | st.floats() | st.lists(st.integers())))
def test_any_text_is_read_or_refused(text: str, facts: dict[str, object]) -> None:
    try:
        condition = Condition.parse(text)
    except SettingsError:
        return
    assert condition.holds(facts) in (True, False)


def test_example_in_docstring() -> None:
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed
