"""Sentences about a picture as values, so that a lie changes one slot and nothing else."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from limner.people.attributes import Identity, Thing
from limner.people.phrases import NAMES, UNCOUNTED, coloured, with_article

FORMS: Final = ("wears", "in", "with")
"""The kinds of sentences, see `Statement.text`."""

_PATTERNS: Final = {
    "stripes": "with {colour} stripes",
    "checks": "with {a_colour} check pattern",
    "dots": "with {colour} dots",
    "logo": "with {a_colour} logo on the chest",
    "sleeves": "with {colour} sleeves",
    "bottom half": "with {a_colour} lower half",
}
_VERBS: Final = {"dog": "leads", "suitcase": "pulls"}


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that a sentence names.

    - `name`: the field of `Identity` that it is; `kind`, `noun`: what it is and the word for it.
    - `colour`: "" where none is said; `pattern`: kind and second colour of the top's; `plain`: says that it has none.
    - `inner`: colour of the T-shirt underneath.
    - `number`: 0 = not said, else 1 ("a single …") or 2; `side`: "left" or "right" of the picture where it is said.
    """

    name: str
    kind: str
    noun: str
    colour: str = ""
    pattern: Thing | None = None
    plain: bool = False
    inner: str | None = None
    number: int = 0
    side: str = ""

    @property
    def text(self) -> str:
        """The noun phrase: "a red t-shirt with blue stripes", "two white handbags"."""
        words = coloured(self.colour, self.noun)
        if self.plain:
            words = f"plain {words}"
        match self.number:
            case 1:
                words = f"a single {words}"
            case 2:
                words = f"two {words}s"
            case _:
                words = words if self.kind in UNCOUNTED else with_article(words)
        if self.pattern is not None:
            second = self.pattern.colour or ""
            words += f" {_PATTERNS[self.pattern.kind].format(colour=second, a_colour=with_article(second))}"
        if self.inner is not None:
            words += f" over {with_article(f'{self.inner} t-shirt')}"
        if self.side:
            words += f" on the {self.side} of the picture"
        return words


@dataclass(frozen=True, slots=True)
class Statement:
    """The content of a sentence about a person.

    - `noun`: "man", "woman" or "person"; `form`: one of `FORMS`.
    - `hair`, `hair_colour`: style of `Identity` and colour, "" where they are not told.
    - `parts`: clothes and things in the order of the sentence.
    - `absence`: a thing and whether they are without it, in place of the hair; only in the form "wears".
    """

    noun: str
    form: str
    parts: tuple[Part, ...]
    hair: str = ""
    hair_colour: str = ""
    absence: tuple[str, bool] | None = None

    @property
    def text(self) -> str:
        """The sentence in English."""
        clothes = [part.text for part in self.parts if part.name not in ("bag", "carried")]
        load = [part for part in self.parts if part.name in ("bag", "carried")]
        carrying = " and ".join(
            f"{_VERBS.get(part.kind, 'carries' if part.name == 'bag' else 'holds')} {part.text}"
            for part in load
        )
        looks = self._looks()
        who = f"{self.noun} {looks}".rstrip()
        match self.form:
            case "wears":
                text = f"a {who} wears {_join(clothes)}"
                text += (", " if len(load) == 2 else " and ") + carrying if load else ""
            case "in":
                text = f"a {who} in {_join(clothes)}" + (f" {carrying}" if load else "")
            case _:
                things = [looks.removeprefix("with "), *clothes, *(part.text for part in load)]
                text = f"{self.noun} with {_join([thing for thing in things if thing])}"
        return text[0].upper() + text[1:] + "."

    def part(self, name: str) -> Part | None:
        """The part that is this field of `Identity`, None if the sentence does not tell it."""
        return next((part for part in self.parts if part.name == name), None)

    def with_part(self, new: Part) -> "Statement":
        """The same sentence with another part of that name."""
        return replace(self, parts=tuple(new if part.name == new.name else part for part in self.parts))

    def _looks(self) -> str:
        if self.absence is not None:
            words, missing = self.absence
            return f"{'without' if missing else 'with'} {words}"
        if not self.hair and not self.hair_colour:
            return ""
        tone = f"{self.hair_colour} " if self.hair_colour else ""
        match self.hair:
            case "":
                return f"with {tone}hair"
            case "bald":
                return "with a bald head"
            case "ponytail":
                return f"with {with_article(f'{tone}ponytail')}"
            case "bun":
                return f"with {tone}hair in a bun"
        return f"with {self.hair} {tone}hair"


def part_of(who: Identity, name: str, visible: frozenset[str], rng: np.random.Generator) -> Part | None:
    """The part that says what can be seen of a field of `Identity`; None for what somebody does not have."""
    value = getattr(who, name)
    if value is None:
        return None
    if isinstance(value, Thing):
        return Part(name, value.kind, word_for(value.kind, rng), value.colour or "")
    part = Part(name, value, word_for(value, rng), getattr(who, f"{name}_colour"))
    if name != "upper":
        return part
    return replace(
        part,
        pattern=who.pattern if "pattern" in visible else None,
        inner=who.inner if "inner" in visible else None,
    )


def word_for(kind: str, rng: np.random.Generator) -> str:
    """One of the words for a kind of thing."""
    names = NAMES[kind]
    return names[int(rng.integers(len(names)))]


def _join(phrases: list[str]) -> str:
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} and {phrases[-1]}"
