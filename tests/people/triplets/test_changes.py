"""Every change is of exactly one attribute, and its sentence tells the new value."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limner.people.attributes import Thing, differing
from limner.people.cast import sample_people
from limner.people.phrases import NAMES
from limner.people.tailor import Tailor, reads_well
from limner.people.triplets.changes import asked_for, changes_of
from limner.people.triplets.draw import planned_changes


@given(st.integers(0, 10_000))
def test_exactly_one_attribute_differs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    who = Tailor(rng).dress()
    changes = changes_of(who, rng)
    assert len(changes) >= 4
    assert len({change.detail for change in changes}) == len(changes)
    for change in changes:
        assert differing(who, change.who) == {change.detail}
        assert change.before == who
        assert reads_well(change.who)


@given(st.integers(0, 10_000))
def test_the_sentence_tells_the_new_value(seed: int) -> None:
    rng = np.random.default_rng(seed)
    who = Tailor(rng).dress()
    for change in changes_of(who, rng):
        text = asked_for(change, rng)
        new = getattr(change.who, change.detail)
        old = getattr(who, change.detail)
        if isinstance(new, Thing) and change.detail != "pattern":
            assert any(name.split()[-1] in text for name in NAMES[new.kind]), text
            assert new.colour is None or new.colour.replace("grey", "gray") in text.replace("grey", "gray")
        elif new is None and isinstance(old, Thing) and change.detail != "pattern":
            assert any(name.split()[-1] in text for name in NAMES[old.kind]), text
            assert "without" in text or text.startswith("no "), text
        elif new is None:
            assert "plain" in text
        elif change.detail.endswith("colour"):
            assert new[:4].replace("grey", "gray") in text.replace("grey", "gray"), (new, text)


@pytest.mark.parametrize("seed", [0, 3])
def test_no_two_changes_make_the_same_person(seed: int) -> None:
    """Also not of near-twins, who have the same clothes but for one."""
    people = sample_people({"train": 60, "val": 20, "test": 20}, seed)
    planned = planned_changes(people, seed)
    made = [change.who for changes in planned.values() for change in changes]
    assert len(set(made) | {person.identity for person in people}) == len(made) + len(people)
    assert planned == planned_changes(people, seed)
    assert planned != planned_changes(people, seed + 1)
