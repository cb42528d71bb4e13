"""The languages of generated people: English sentences, and others that tell the same as each of them."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from limner.data.words import words
from limner.errors import SettingsError
from limner.people import chinese, german, vietnamese
from limner.people.sentences import words_of
from limner.people.telling import Telling, Voice

TELL: Final[dict[str, Callable[[Telling, Voice], str]]] = {
    "de": german.tell,
    "zh": chinese.tell,
    "vi": vietnamese.tell,
}
"""Language → what makes a sentence in it; English is where the others' content comes from."""

LANGUAGES: Final = ("en", *TELL)
"""Every language, in the order in which a picture has its sentences."""

_TRIALS: Final = 100

ENGLISH: Final = ("en",)
"""The languages of a set that names none."""


def chosen_languages(names: Iterable[str]) -> tuple[str, ...]:
    """The languages of such names, or of several with commas between them: each once, in the order of `LANGUAGES`.

    Raises `SettingsError` for another name, and for none.
    """
    given = [part.strip().lower() for name in names for part in name.split(",")]
    for name in given:
        if name not in LANGUAGES:
            near = difflib.get_close_matches(name, LANGUAGES, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(LANGUAGES)}"
            raise SettingsError(f"language: unknown name {name[:40]!r}; {hint}")
    if not given:
        raise SettingsError(f"language: at least one was expected, of {', '.join(LANGUAGES)}")
    return tuple(language for language in LANGUAGES if language in given)


def in_language(described: Mapping[str, Telling], language: str, seed: list[int]) -> list[str]:
    """The sentences of one view in a language, all different, in the order of the English ones.

    `described` has the English sentences with their content. Each language draws its wordings from `seed` and itself,
    so that its sentences do not depend on which other languages were asked for.
    """
    if language == "en":
        return list(described)
    say = Voice(np.random.default_rng([*seed, 3, LANGUAGES.index(language)]))
    found: list[str] = []
    for telling in described.values():
        # English sentences may tell the same in other words; so do these.
        for trial in range(2 * _TRIALS):
            # The form with most wordings, for the rare sentence of one detail that has no more of its own.
            sentence = TELL[language](telling if trial < _TRIALS else replace(telling, form="wearing"), say)
            if sentence not in found:
                break
        found.append(sentence)
    return found


def split_words(sentence: str, language: str) -> list[str]:
    """The words of a sentence as the set lists them; those of Chinese are what stands between punctuation marks."""
    return words_of(sentence) if language == "en" else words(sentence)
