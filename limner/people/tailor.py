"""Dress somebody: one draw from the space of combinations, in colours that go with each other.

A tailor works with a few colours at a time. Everyone whom one tailor dresses wears the same colours in different
places, so that who wears which colours does not tell who is who; only what is in which colour does.
"""

from typing import Final, Literal

import numpy as np

from limner.people.attributes import (
    BAGS,
    CARRIED,
    HAIR_STYLES,
    HEADWEAR,
    LOWERS,
    PATTERNED,
    SHOES,
    UPPERS,
    WORN,
    Identity,
    Thing,
)
from limner.people.palette import COLOURS, HAIR_COLOURS, contrasts

JEANS_COLOURS: Final = ("blue", "black", "grey", "white")
DOG_COLOURS: Final = ("black", "white", "brown")

_COMMON: Final = np.array(
    [{"black": 4, "white": 3, "grey": 3, "blue": 3, "beige": 2, "brown": 2}.get(c, 1) for c in COLOURS],
    dtype=np.float64,
)
"""How often colours are worn: those of asphalt, plaster and sky more than others, as in any street."""

_COLOURS_EACH: Final = 3
_FINE_PRINT: Final = 62.0
"""Thin stripes mix in a blurred picture: their colours must differ in more than two blocks of cloth (CIELAB)."""


class Tailor:
    """Someone who dresses people in `colours` (names), all of them distinct side by side."""

    def __init__(self, rng: np.random.Generator, colours: tuple[str, ...] | None = None) -> None:
        self.rng = rng
        self.colours = colours or _few_colours(rng)

    def dress(self) -> Identity:
        """Anybody whose clothes can be told apart."""
        while True:
            who = self._dress()
            if reads_well(who):
                return who

    def _dress(self) -> Identity:
        rng = self.rng
        sex: Literal["man", "woman"] = "man" if rng.random() < 0.5 else "woman"
        upper, hair = self.pick(UPPERS[sex]), self.pick(HAIR_STYLES[sex])
        upper_colour = self.pick(self.colours)
        lower = None if upper == "dress" else self._lower(sex, upper_colour)
        lower_colour = None if lower is None else self.lower_colour(lower, upper_colour)
        return Identity(
            sex=sex,
            hair=hair,
            hair_colour=self.pick(tuple(HAIR_COLOURS)),
            beard=sex == "man" and rng.random() < 0.25,
            headwear=self.headwear() if rng.random() < 0.28 and hair not in ("bun", "curly") else None,
            upper=upper,
            upper_colour=upper_colour,
            pattern=self.pattern(upper, upper_colour) if rng.random() < 0.5 else None,
            inner=self.against(upper_colour) if upper in ("jacket", "coat") and rng.random() < 0.55 else None,
            lower=lower,
            lower_colour=lower_colour,
            shoes=self.pick(SHOES),
            shoes_colour=self.pick(self.colours),
            bag=self.bag(upper_colour) if rng.random() < 0.68 else None,
            carried=self._carried(upper_colour) if rng.random() < 0.38 else None,
            worn=self._worn(sex, upper, upper_colour) if rng.random() < 0.4 else None,
        )

    def widen(self) -> None:
        """Take one more colour in."""
        more = tuple(colour for colour in COLOURS if colour not in self.colours)
        if more:
            self.colours = (*self.colours, self.pick(more))

    def pick(self, options: tuple[str, ...]) -> str:
        """One of `options`."""
        return options[int(self.rng.integers(len(options)))]

    def against(self, colour: str, least: float | None = None) -> str:
        """A colour that stands out on `colour`; one of the tailor's own where there is one."""
        available = _standing_out(self.colours, colour, least)
        return self.pick(available or _standing_out(tuple(COLOURS), colour, least))

    def lower_colour(self, lower: str, upper_colour: str) -> str:
        """A colour for trousers or a skirt that is not taken for that of the top."""
        if lower != "jeans":
            return self.against(upper_colour)
        available = tuple(colour for colour in JEANS_COLOURS if colour in self.colours)
        return self.pick(
            _standing_out(available or JEANS_COLOURS, upper_colour)
            or _standing_out(JEANS_COLOURS, upper_colour)
        )

    def headwear(self) -> Thing:
        """Something on the head."""
        return Thing(self.pick(HEADWEAR), self.pick(self.colours))

    def pattern(self, upper: str, upper_colour: str) -> Thing:
        """A pattern for a top."""
        return Thing(self.pick(PATTERNED[upper]), self.against(upper_colour, _FINE_PRINT))

    def bag(self, upper_colour: str) -> Thing:
        """A bag that stands out on the top."""
        return Thing(self.pick(BAGS), self.against(upper_colour))

    def _lower(self, sex: Literal["man", "woman"], upper_colour: str) -> str:
        lower = self.pick(LOWERS[sex])
        if lower == "jeans" and not _standing_out(_both(JEANS_COLOURS, self.colours), upper_colour):
            return "trousers"
        return lower

    def _carried(self, upper_colour: str) -> Thing:
        kind = self.pick(CARRIED)
        match kind:
            case "phone" | "bottle" | "coffee cup":
                return Thing(kind)
            case "dog":
                return Thing(kind, self.pick(_both(DOG_COLOURS, self.colours) or DOG_COLOURS))
        return Thing(kind, self.against(upper_colour))

    def _worn(self, sex: str, upper: str, upper_colour: str) -> Thing | None:
        kind = self.pick(WORN)
        match kind:
            case "glasses" | "sunglasses":
                return Thing(kind)
            case "tie" if (sex, upper) != ("man", "shirt"):
                return None
            case "belt" if upper not in ("dress", "coat"):
                return None
        return Thing(kind, self.against(upper_colour))


def reads_well(who: Identity) -> bool:
    """True if top and bottom meet visibly: a white lower half over white trousers would look like one piece."""
    if who.pattern is None or who.pattern.kind != "bottom half" or who.lower_colour is None:
        return True
    return contrasts(who.pattern.colour or "", who.lower_colour)


def _few_colours(rng: np.random.Generator) -> tuple[str, ...]:
    while True:
        chosen: list[str] = []
        for index in rng.choice(len(COLOURS), len(COLOURS), replace=False, p=_COMMON / _COMMON.sum()):
            colour = tuple(COLOURS)[int(index)]
            if all(contrasts(colour, other, _FINE_PRINT) for other in chosen):
                chosen.append(colour)
        if len(chosen) >= _COLOURS_EACH:
            return tuple(chosen[:_COLOURS_EACH])


def _standing_out(colours: tuple[str, ...], against: str, least: float | None = None) -> tuple[str, ...]:
    return tuple(
        colour
        for colour in colours
        if (contrasts(colour, against) if least is None else contrasts(colour, against, least))
    )


def _both(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(colour for colour in first if colour in second)
