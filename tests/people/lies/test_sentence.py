"""Sentences as values: one slot changed is one word changed."""

from dataclasses import replace

import numpy as np
import pytest

from limner.people.attributes import Thing
from limner.people.lies.noise import with_noise
from limner.people.lies.sentence import FORMS, Part, Statement

TOP = Part("upper", "t-shirt", "t-shirt", "red", pattern=Thing("checks", "orange"))
JEANS = Part("lower", "jeans", "jeans", "blue")
BAG = Part("bag", "handbag", "small handbag", "white")
DOG = Part("carried", "dog", "dog", "brown")


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        (
            Statement("man", "wears", (TOP, JEANS, BAG, DOG), hair="short", hair_colour="black"),
            "A man with short black hair wears a red t-shirt with an orange check pattern and blue jeans, carries a "
            "small white handbag and leads a brown dog.",
        ),
        (
            Statement("woman", "in", (JEANS, replace(BAG, number=2)), hair="bun"),
            "A woman with hair in a bun in blue jeans carries two small white handbags.",
        ),
        (
            Statement("person", "with", (JEANS, replace(BAG, number=1, side="left")), hair="ponytail"),
            "Person with a ponytail, blue jeans and a single small white handbag on the left of the picture.",
        ),
        (
            Statement("man", "wears", (replace(TOP, pattern=None, plain=True, inner="orange"),), hair="bald"),
            "A man with a bald head wears a plain red t-shirt over an orange t-shirt.",
        ),
        (
            Statement("man", "wears", (JEANS,), absence=("an umbrella", True)),
            "A man without an umbrella wears blue jeans.",
        ),
        (
            Statement("man", "in", (JEANS, replace(BAG, kind="suitcase", noun="suitcase"))),
            "A man in blue jeans pulls a white suitcase.",
        ),
        (Statement("woman", "in", (JEANS,), hair_colour="grey"), "A woman with grey hair in blue jeans."),
    ],
)
def test_sentences(statement: Statement, text: str) -> None:
    assert statement.text == text


def test_a_part_is_exchanged_in_its_place() -> None:
    for form in FORMS:
        told = Statement("man", form, (TOP, JEANS, BAG))
        lie = told.with_part(replace(JEANS, colour="black"))
        assert told.text.replace("blue", "black") == lie.text
        assert lie.part("lower") == replace(JEANS, colour="black")
        assert lie.part("worn") is None


def test_noise_is_small_and_spares_what_it_must() -> None:
    text = "A man with short black hair wears a red t-shirt, blue jeans and turquoise boots and holds a white handbag."
    for seed in range(60):
        noisy = with_noise(text, {"turquoise", "boots"}, np.random.default_rng(seed))
        before, after = text.split(), noisy.split()
        # one small word less, and an error for each ten words
        assert len(after) == len(before) - 1
        assert {"turquoise", "boots"} <= set(after)
        wrong = [word for word in after if word not in before]
        assert len(wrong) == 2
        assert after[0] == "A"
        assert noisy.endswith(".")
