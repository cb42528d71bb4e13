"""Kinds of words, and the phrases that they form."""

import pytest

from limner.data.word_kinds import KINDS, kind_of, others_of_kind, phrases_of


def test_a_word_has_one_kind() -> None:
    words = [word for members in KINDS.values() for word in members]
    assert len(words) == len(set(words))
    assert all(word not in others_of_kind(word) for word in words)
    assert "grey" not in others_of_kind("gray")
    assert kind_of("xylophone") is None
    assert others_of_kind("xylophone") == ()


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("a woman in a long red coat", "a|woman|in|a|long red coat"),
        ("black and white shoes and a red bag", "black and white shoes|and|a|red bag"),
        ("a grey t shirt is red", "a|grey t shirt|is|red"),
        ("dressed in black with boots", "dressed|in|black|with|boots"),
        ("red and", "red|and"),
        ("", ""),
    ],
)
def test_a_colour_stands_with_its_noun(text: str, phrases: str) -> None:
    words = text.split()
    assert "|".join(" ".join(words[start:stop]) for start, stop in phrases_of(words)) == phrases
