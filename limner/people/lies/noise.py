"""Caption noise: what a hurried writer does to a sentence without changing what it says."""

import re
from typing import Final

import numpy as np

_SLIPS: Final = 10
"""One typing error for so many words, and one at least."""

_DROPPABLE: Final = ("a", "an", "the", "and", "with", "in", "wears", "carries")


def with_noise(sentence: str, keep: set[str], rng: np.random.Generator) -> str:
    """A sentence with typing errors and one small word left out.

    A typing error exchanges two neighbouring letters within a word of four letters or more, leaves one out or doubles
    it; first letters stay. The words `keep`, in lower case, stay as they are. The word that is left out is an article,
    "and", "with", "in", "wears" or "carries".
    """
    words = sentence.rstrip(".").split(" ")
    places = [
        place
        for place, word in enumerate(words)
        if len(re.sub("[^a-z]", "", word)) >= 4
        and word.lower().strip(",") not in keep
        and word.lower() not in _DROPPABLE
    ]
    slips = max(1, round(len(words) / _SLIPS))
    for place in rng.permutation(places)[:slips]:
        words[int(place)] = _mistyped(words[int(place)], rng)
    small = [place for place, word in enumerate(words) if place and word in _DROPPABLE]
    if small:
        del words[small[int(rng.integers(len(small)))]]
    return " ".join(words) + "."


def _mistyped(word: str, rng: np.random.Generator) -> str:
    """The word with one typing error, which is always another word."""
    letters = [at for at in range(1, len(word) - 1) if word[at].isalpha() and word[at + 1].isalpha()]
    at = letters[int(rng.integers(len(letters)))]
    first, second, rest = word[at], word[at + 1], word[at + 2 :]
    match int(rng.integers(3)):
        case 0 if first != second:
            return word[:at] + second + first + rest
        case 1:
            return word[:at] + second + rest
    return word[: at + 1] + first + second + rest
