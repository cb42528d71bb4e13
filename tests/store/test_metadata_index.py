import json
from typing import Any

import numpy as np
import pytest

from limner.conditions import Condition
from limner.store.metadata_index import MetadataIndex
from limner.wire import MetadataField

METADATA: list[dict[str, Any]] = [
    {"a": 1},
    {"a": True},
    {"a": 1.0, "b": [1, "x"]},
    {"a": "1"},
    {"a": {"c": 2}},
    {"path": "own"},
    {},
]


@pytest.fixture
def facts() -> MetadataIndex:
    count = len(METADATA)
    own = {
        "path": [f"/{row}.png" for row in range(count)],
        "identity": ["007"] * count,
        "taken": np.full(count, np.datetime64("NaT", "us")),
    }
    return MetadataIndex([json.dumps(one) for one in METADATA], own)


@pytest.mark.parametrize(
    "text", ["a=1", "a!=1", "a=true", "b=x", "b>0", "path~*3*", "identity=007", "taken!=2026-01-01", "z=1"]
)
def test_rows_that_meet_a_condition_are_those_of_a_plain_loop(facts: MetadataIndex, text: str) -> None:
    condition = Condition.parse(text)
    rows = [
        {**one, "path": f"/{row}.png", "identity": "007", "taken": None} for row, one in enumerate(METADATA)
    ]
    assert facts.meeting(condition).tolist() == [condition.holds(one) for one in rows]


def test_a_condition_is_evaluated_once(facts: MetadataIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    condition = Condition.parse("a=1")
    first = facts.meeting(condition)
    monkeypatch.setattr(Condition, "test", lambda *_: pytest.fail("asked again"))
    assert facts.meeting(Condition.parse("a=1")) is first


def test_fields_are_those_of_the_metadata(facts: MetadataIndex) -> None:
    assert facts.fields() == [
        MetadataField(name="a", values=("1", "1.0"), kind="number"),
        MetadataField(name="b", values=("1", "x"), kind="text"),
    ]


def test_a_number_beyond_floats_is_one(facts: MetadataIndex) -> None:
    huge = MetadataIndex([json.dumps({"a": 10**400})], {})
    assert huge.fields() == [MetadataField(name="a", values=(str(10**400),), kind="number")]
    assert huge.meeting(Condition.parse("a>1")).tolist() == [True]
