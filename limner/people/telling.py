"""The content of one sentence without its words: who is meant, which details it tells, and in which form.

The English sentence decides it by its draws (`limner.people.sentences`); a sentence of another language tells the
same and draws its own wordings.
"""

from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from limner.people.attributes import Identity, Thing

Form = Literal[
    "wearing", "in clothes", "starting with clothes", "listed", "clothes are", "load first", "moving in"
]
"""The kinds of sentences; English has a function of each name."""


@dataclass(frozen=True)
class Voice:
    """Draws one of several wordings from `rng`."""

    rng: np.random.Generator

    def pick(self, *options: str) -> str:
        """One of the wordings."""
        return options[int(self.rng.integers(len(options)))]

    def chance(self, share: float) -> bool:
        """True with a probability of `share`."""
        return bool(self.rng.random() < share)


@dataclass(frozen=True, slots=True)
class Telling:
    """The details of a person that a sentence tells.

    - `told`: details by the names of `Identity`; "hair" is told by its style, its colour or both.
    - `pattern`, `inner`, `plain`: those of the top that are told; plain says that it has no pattern.
    - `sex`: False where the person is only called a person.
    - `walking`: True if they walk, False if they stand; `moves`: True if the sentence says which.
    """

    who: Identity
    form: Form
    told: frozenset[str]
    sex: bool
    walking: bool
    hair_style: bool
    hair_colour: bool
    pattern: bool
    inner: bool
    plain: bool

    @property
    def things(self) -> dict[str, Thing]:
        """Headwear, bag and the like that the sentence tells, by the names of `Identity`."""
        found = {name: getattr(self.who, name) for name in ("headwear", "worn", "bag", "carried")}
        return {name: thing for name, thing in found.items() if name in self.told and thing is not None}

    @property
    def moves(self) -> bool:
        """True if the sentence says whether the person walks or stands."""
        load = {"bag", "carried"} & set(self.things)
        if self.form in ("in clothes", "starting with clothes"):
            return not load  # with a load, its verb is that of the sentence
        return self.form == "moving in" or (self.form == "load first" and bool(load))

    @property
    def shown_form(self) -> Form:
        """The form as it is said: without a load, none can come first."""
        return "wearing" if self.form == "load first" and not self.moves else self.form


T = TypeVar("T")


def shuffled(say: Voice, phrases: list[T]) -> list[T]:
    """The usual order (top, bottom, shoes, …) more often than another."""
    if say.chance(0.65):
        return phrases
    return [phrases[int(index)] for index in say.rng.permutation(len(phrases))]
