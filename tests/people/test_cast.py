from hypothesis import given, settings
from hypothesis import strategies as st

from limner.people.attributes import differing
from limner.people.cast import sample_people
from limner.people.palette import COLOURS, contrasts


@given(train=st.integers(0, 120), val=st.integers(0, 30), test=st.integers(0, 40), seed=st.integers(0, 2**32))
@settings(max_examples=12)
def test_numbers_splits_and_distinct_identities(train: int, val: int, test: int, seed: int) -> None:
    counts = {"train": train, "val": val, "test": test}
    people = sample_people(counts, seed)
    assert [person.number for person in people] == list(range(1, train + val + test + 1))
    assert {split: sum(person.split == split for person in people) for split in counts} == counts
    assert len({person.identity for person in people}) == len(people)
    assert people == sample_people(counts, seed)


def test_twins_differ_in_exactly_one_detail() -> None:
    people = sample_people({"train": 300, "val": 60, "test": 90}, 1)
    by_number = {person.number: person for person in people}
    twins = [person for person in people if person.twin is not None]
    assert 0.25 < len(twins) / len(people) < 0.4
    for person in twins:
        twin = by_number[person.twin or 0]
        assert (twin.twin, twin.split, twin.detail) == (person.number, person.split, person.detail)
        assert twin.looks == person.looks
        first, second = person.identity, twin.identity
        if person.detail == "swapped colours":
            assert differing(first, second) == {"upper_colour", "lower_colour"}
            assert (first.upper_colour, first.lower_colour) == (second.lower_colour, second.upper_colour)
        else:
            assert differing(first, second) == {person.detail}
    assert {"swapped colours", "bag", "pattern", "shoes_colour"} <= {person.detail for person in twins}


def test_a_twins_bag_or_hat_differs_in_kind_or_colour_not_in_both() -> None:
    people = sample_people({"train": 400}, 2)
    by_number = {person.number: person for person in people}
    for person in people:
        if person.twin is not None and person.detail in ("bag", "headwear", "carried"):
            first = getattr(person.identity, person.detail)
            second = getattr(by_number[person.twin].identity, person.detail)
            assert (first.kind == second.kind) != (first.colour == second.colour)


def test_top_and_bottom_never_share_a_colour_that_could_be_mistaken() -> None:
    for person in sample_people({"train": 300}, 3):
        who = person.identity
        assert who.upper_colour in COLOURS
        if who.lower_colour is not None:
            assert contrasts(who.upper_colour, who.lower_colour)
            if who.pattern is not None and who.pattern.kind == "bottom half":
                assert who.pattern.colour != who.lower_colour


def test_seeds_give_other_people() -> None:
    assert sample_people({"train": 20}, 0) != sample_people({"train": 20}, 1)
