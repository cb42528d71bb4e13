"""A search is one value, whichever way it is asked for: by keyword arguments, over HTTP, or from the command line."""

import json
from datetime import datetime
from typing import Any, get_type_hints

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limner.client import _body
from limner.conditions import Condition, local_time
from limner.errors import SettingsError
from limner.requests import (
    SearchArguments,
    SearchOptions,
    SearchRequest,
    SentencesOptions,
    SentencesRequest,
    requests_of,
    where_strings,
)
from limner.server.routes_search import SearchBody, SentencesBody

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
KEYS = st.text("0123456789abcdef", min_size=32, max_size=32)
TIMES = st.one_of(
    st.none(), st.datetimes(), st.dates().map(str), st.datetimes().map(lambda time: f"{time.isoformat()}Z")
)
ASKED = st.fixed_dictionaries(
    {"text": TEXTS},
    optional={
        "image": st.binary(min_size=3, max_size=9),
        "text_weight": st.one_of(st.none(), st.floats(0, 1)),
        "k": st.integers(1, 99),
        "offset": st.one_of(st.none(), st.integers(0, 10_000)),
        "where": st.dictionaries(st.sampled_from(["camera", "place", "taken by"]), TEXTS, max_size=3),
        "after": TIMES,
        "before": TIMES,
        "marks": st.dictionaries(KEYS, st.just("maybe")),
        "group": st.sampled_from([None, "identity", "near"]),
        "rerank": st.sampled_from([None, 0, 3, "all"]),
        "explain": st.booleans(),
        "literal": st.booleans(),
        "words": st.sampled_from([None, True, False]),
    },
)


def has_time(asked: dict[str, Any]) -> bool:
    """False where no time is between "after" and "before", which is refused."""
    times = [asked.get(name) for name in ("after", "before")]
    first, last = (None if one is None else local_time(str(one)) for one in times)
    return first is None or last is None or first < last


ASKED = ASKED.filter(has_time)


def test_callers_and_type_checkers_know_every_field_of_a_request() -> None:
    """A field that is missing in the signatures could not be asked for by name."""
    fields = SearchRequest.model_fields.keys()
    assert get_type_hints(SearchArguments).keys() == fields - {"text"}
    assert get_type_hints(SearchOptions).keys() == fields - {"text", "image", "like"}
    assert SearchBody.model_fields.keys() == fields
    of_sentences = SentencesRequest.model_fields.keys()
    assert get_type_hints(SentencesOptions).keys() == of_sentences - {"text"}
    assert SentencesBody.model_fields.keys() == of_sentences


@given(ASKED)
def test_a_request_comes_through_http_as_it_was_asked(asked: dict[str, Any]) -> None:
    try:
        request = SearchRequest.parse(asked)
    except SettingsError:
        reranks = asked.get("explain") or asked.get("rerank") not in (None, 0)
        assert (asked.get("explain") and asked.get("rerank") == 0) or (asked.get("words") and reranks)
        return
    sent = json.loads(json.dumps(_body(request)))
    received = SearchRequest(**dict(SearchBody.model_validate(sent)))
    for name in SearchRequest.model_fields.keys() - {"after", "before", "marks"}:
        assert getattr(received, name) == getattr(request, name), name
    assert (received.period, received.marks or {}) == (request.period, request.marks or {})
    assert requests_of([asked["text"]], {**asked, "text": "another"}) == [request]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "give a text, a picture, or a picture of the store"),
        ({"image": b"x", "like": "y"}, "give one picture to search by: image or like"),
        ({"text": "a", "wehre": "camera=3"}, "unknown argument 'wehre'; did you mean 'where'?"),
        ({"text": "a", "zzzz": 3}, "unknown argument 'zzzz'; known here: text, image, like, "),
        ({"text": "a", "k": 0}, "k: expected at least 1, got 0"),
        ({"text": "a", "k": "5"}, "k: Input should be a valid integer, got '5'"),
        ({"text": "a", "text_weight": 1.5}, "text_weight: expected at most 1, got 1.5"),
        ({"text": "a", "text_weight": float("nan")}, "text_weight: "),
        ({"text": "a", "rerank": -1}, "rerank: expected at least 0 or 'all', got -1"),
        ({"text": "a", "group": "camera"}, "group: expected 'identity' or 'near', got 'camera'"),
        (
            {"text": "a", "marks": {"b": "good"}},
            "marks: expected 'right', 'wrong' or 'maybe' for 'b', got 'good'",
        ),
        ({"text": "a", "after": "soon"}, "after: expected a time in ISO 8601, e.g. 2026-11-20"),
        ({"text": "a", "where": "camera"}, "where: expected NAME=VALUE"),
        ({"text": "a", "explain": True, "rerank": 0}, "rerank: expected at least 1 or 'all' to explain"),
        ({"like": "a", "rerank": 3}, "a reranker reads a text, not a picture"),
        ({"text": "a", "marks": {"b": "right"}, "explain": True}, "marks: a reranker does not know them"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line_that_names_it(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        SearchRequest.parse(asked)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_numbers_of_numpy_and_json_are_numbers() -> None:
    asked = {"text": "a", "k": np.int64(3), "rerank": 2.0}
    assert SearchRequest.parse(asked) == SearchRequest(text="a", k=3, rerank=2)
    for wrong in (True, 1.5):
        with pytest.raises(SettingsError, match="k: Input should be a valid integer"):
            SearchRequest.parse({"text": "a", "k": wrong})


def test_a_request_is_a_value() -> None:
    image = bytearray(b"abcd")
    request = SearchRequest.parse({"image": image})
    image[:] = b"efgh"
    assert request.image == b"abcd"
    assert request.replace(text="a", k=3).k == 3
    with pytest.raises(SettingsError, match="k: expected at least 1"):
        request.replace(k=0)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@given(st.one_of(TEXTS, st.integers(-(2**63), 2**63), st.floats(allow_nan=False, allow_infinity=False)))
def test_a_mapping_means_its_value_whatever_is_in_it(value: object) -> None:
    [text] = where_strings({"name": value})
    assert Condition.parse(text).holds({"name": value})
    [either] = where_strings({"name": ["no such thing", value]})
    assert Condition.parse(either).holds({"name": value})
    assert value == "no such thing" or not Condition.parse(text).holds({"name": "no such thing"})


def test_conditions_in_every_form() -> None:
    assert where_strings("camera=3") == ["camera=3"]
    assert where_strings(("a<1", {"b": 2, "c": "x|y"})) == ["a<1", "b=2", 'c="x|y"']
    [taken] = where_strings({"taken": datetime(2026, 11, 20, 8)})
    assert Condition.parse(taken).holds({"taken": "2026-11-20T08:00:00"})
    for value in (None, [], {"a": 1}, object()):
        with pytest.raises(SettingsError, match="expected a text, a number or a list of them for 'name'"):
            where_strings({"name": value})


@pytest.mark.parametrize("name", ["a<b", "a=", "!a", "a~", ""])
def test_a_name_that_no_condition_can_spell_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=r"where: expected a name without"):
        where_strings({name: 3})
