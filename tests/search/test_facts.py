import json
from typing import Any

import pyarrow as pa
import pytest

from limner.search.conditions import Condition
from limner.search.facts import Facts
from limner.search.query import Field

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
def facts() -> Facts:
    count = len(METADATA)
    return Facts(
        pa.table(
            {
                "metadata": [json.dumps(one) for one in METADATA],
                "path": [f"/{row}.png" for row in range(count)],
                "identity": ["007"] * count,
                "taken": pa.array([None] * count, pa.timestamp("us")),
            }
        )
    )


@pytest.mark.parametrize(
    "text", ["a=1", "a!=1", "a=true", "b=x", "b>0", "path~*3*", "identity=007", "taken!=2026-01-01", "z=1"]
)
def test_rows_that_meet_a_condition_are_those_of_a_plain_loop(facts: Facts, text: str) -> None:
    condition = Condition.parse(text)
    rows = [
        {**one, "path": f"/{row}.png", "identity": "007", "taken": None} for row, one in enumerate(METADATA)
    ]
    assert facts.meeting(condition).tolist() == [condition.holds(one) for one in rows]


def test_a_condition_is_evaluated_once(facts: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    condition = Condition.parse("a=1")
    first = facts.meeting(condition)
    monkeypatch.setattr(Condition, "test", lambda *_: pytest.fail("asked again"))
    assert facts.meeting(Condition.parse("a=1")) is first


def test_fields_are_those_of_the_metadata(facts: Facts) -> None:
    assert facts.fields() == [Field("a", ("1", "1.0"), "number"), Field("b", ("1", "x"), "text")]


def test_a_number_beyond_floats_is_one(facts: Facts) -> None:
    huge = Facts(pa.table({"metadata": [json.dumps({"a": 10**400})]}))
    assert huge.fields() == [Field("a", (str(10**400),), "number")]
    assert huge.meeting(Condition.parse("a>1")).tolist() == [True]
