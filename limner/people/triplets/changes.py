"""Changes of one attribute of a generated person, and the sentences that ask for them."""

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from limner.people.attributes import (
    BAGS,
    CARRIED,
    HAIR_STYLES,
    HEADWEAR,
    LOWERS,
    PATTERNED,
    Identity,
    Thing,
    differing,
)
from limner.people.palette import COLOURS, HAIR_COLOURS, contrasts
from limner.people.phrases import (
    Speaker,
    hair_phrase,
    lower_phrase,
    shoes_phrase,
    upper_phrase,
)
from limner.people.tailor import DOG_COLOURS, JEANS_COLOURS, reads_well

_LENGTHS: Final = {"jeans": 3, "trousers": 3, "leggings": 3, "shorts": 1, "skirt": 2, "long skirt": 4}
"""Kinds of one number are too alike from afar to be the one change."""

_SHAPES: Final = {"handbag": "in the hand", "tote bag": "in the hand", "plastic bag": "in the hand"}
"""Bags of one shape are too alike to be the one change; a bag that is not named is its own shape."""

_WITHOUT_COLOUR: Final = ("phone", "bottle", "coffee cup")


@dataclass(frozen=True, slots=True)
class Change:
    """One person's change of one attribute.

    - `detail`: the field of `Identity` that differs, and the only one; `who`: the person with the change.
    - `needs_before`, `needs_after`: True if the detail must be seen in the reference or in the target picture, for the
      sentence to be true of both.
    """

    detail: str
    before: Identity
    who: Identity

    @property
    def needs_before(self) -> bool:
        """False for what is put on or taken up."""
        return getattr(self.before, self.detail) is not None

    @property
    def needs_after(self) -> bool:
        """False for what is taken off or put down, which no picture shows."""
        return getattr(self.who, self.detail) is not None or self.detail == "pattern"


def changes_of(who: Identity, rng: np.random.Generator) -> list[Change]:
    """A change of each attribute that this person can have, in a drawn order.

    Every change differs from the person in exactly one field of `Identity`.
    """
    found = []
    for number in rng.permutation(len(_VALUES)):
        detail, values = list(_VALUES.items())[int(number)]
        options = [value for value in values(who) if value != getattr(who, detail)]
        if not options:
            continue
        chosen: dict[str, Any] = {detail: options[int(rng.integers(len(options)))]}
        changed = dataclasses.replace(who, **chosen)
        if differing(who, changed) == {detail} and reads_well(changed):
            found.append(Change(detail, who, changed))
    return found


def _standing_out(against: Iterable[str | None], colours: Iterable[str] = COLOURS) -> list[str]:
    """Colours that are not taken for any of these."""
    others = [colour for colour in against if colour is not None]
    return [colour for colour in colours if all(contrasts(colour, other) for other in others)]


def _colour_of(thing: Thing | None) -> str | None:
    return None if thing is None else thing.colour


def _upper_colours(who: Identity) -> list[str]:
    return _standing_out(
        (who.upper_colour, who.lower_colour, who.inner, *map(_colour_of, (who.pattern, who.bag, who.worn)))
    )


def _lower_colours(who: Identity) -> list[str]:
    if who.lower is None:
        return []
    colours = JEANS_COLOURS if who.lower == "jeans" else tuple(COLOURS)
    return _standing_out((who.lower_colour, who.upper_colour), colours)


def _lowers(who: Identity) -> list[str]:
    if who.lower is None:
        return []
    return [
        kind
        for kind in dict.fromkeys(LOWERS[who.sex])
        if _LENGTHS[kind] != _LENGTHS[who.lower] and (kind != "jeans" or who.lower_colour in JEANS_COLOURS)
    ]


def _shoes_colours(who: Identity) -> list[str]:
    return _standing_out((who.shoes_colour,))


def _bags(who: Identity) -> list[Thing | None]:
    colours = _standing_out((who.upper_colour, _colour_of(who.bag)))
    if who.bag is None:
        return [Thing(kind, colour) for kind in dict.fromkeys(BAGS) for colour in colours]
    shape = _SHAPES.get(who.bag.kind, who.bag.kind)
    others = [kind for kind in dict.fromkeys(BAGS) if _SHAPES.get(kind, kind) != shape]
    recoloured = [Thing(who.bag.kind, colour) for colour in colours]
    # as often of another colour as of another kind, and taken off in a third
    return [*recoloured[:3], *(Thing(kind, who.bag.colour) for kind in others[:3]), *[None] * 3]


def _headwear(who: Identity) -> list[Thing | None]:
    if who.headwear is not None:
        recoloured = [Thing(who.headwear.kind, colour) for colour in _standing_out((who.headwear.colour,))]
        return [*recoloured[:3], *[None] * 3]
    if who.hair in ("bun", "curly"):
        return []
    colours = [colour for colour in COLOURS if colour != who.hair_colour]
    return [Thing(kind, colour) for kind in dict.fromkeys(HEADWEAR) for colour in colours]


def _carried(who: Identity) -> list[Thing | None]:
    def things(kind: str) -> list[Thing]:
        if kind in _WITHOUT_COLOUR:
            return [Thing(kind)]
        colours = DOG_COLOURS if kind == "dog" else tuple(COLOURS)
        return [Thing(kind, colour) for colour in _standing_out((who.upper_colour,), colours)]

    if who.carried is None:
        kinds = [kind for kind in dict.fromkeys(CARRIED) for _ in range(2)]
        return [thing for kind in kinds for thing in things(kind)[:2]]
    old = who.carried
    recoloured = [
        thing
        for thing in things(old.kind)
        if old.colour is not None and thing.colour is not None and contrasts(thing.colour, old.colour)
    ]
    return [*recoloured[:3], *[None] * 3]


def _patterns(who: Identity) -> list[Thing | None]:
    # a logo cannot be seen from behind, where it could not decide
    kinds = [kind for kind in PATTERNED[who.upper] if kind != "logo"]
    against = (who.upper_colour, who.lower_colour, _colour_of(who.bag), who.inner)
    if who.pattern is None:
        return [Thing(kind, colour) for kind in kinds for colour in _standing_out(against)]
    return [None]


def _hair(who: Identity) -> list[str]:
    if who.headwear is not None:
        return []
    return [style for style in dict.fromkeys(HAIR_STYLES[who.sex]) if style != who.hair]


def _hair_colours(who: Identity) -> list[str]:
    if who.headwear is not None or who.hair == "bald":
        return []
    # brown is taken for black or red in a dark picture
    return [colour for colour in HAIR_COLOURS if "brown" not in (colour, who.hair_colour)]


def _worn(who: Identity) -> list[Thing | None]:
    if who.worn is not None:
        return [None]
    scarves = [Thing("scarf", colour) for colour in _standing_out((who.upper_colour,))]
    return [*scarves, *[Thing("sunglasses")] * 3]


_VALUES: Final[dict[str, Callable[[Identity], "list[str] | list[Thing | None]"]]] = {
    "upper_colour": _upper_colours,
    "lower_colour": _lower_colours,
    "lower": _lowers,
    "shoes_colour": _shoes_colours,
    "bag": _bags,
    "headwear": _headwear,
    "carried": _carried,
    "pattern": _patterns,
    "hair": _hair,
    "hair_colour": _hair_colours,
    "worn": _worn,
}
"""Attribute → the other values that go with the rest of a person."""


def asked_for(change: Change, rng: np.random.Generator) -> str:
    """A sentence that asks for a change, in one of several wordings: "but with a red backpack"."""
    say = Speaker(rng)
    before, after = (getattr(who, change.detail) for who in (change.before, change.who))
    if isinstance(before, Thing) and after is None and change.detail != "pattern":
        gone = say.name(before.kind)
        return say.pick(
            f"but without the {gone}",
            f"the same without {say.article(before.kind, gone)}",
            f"but this time without {say.thing(before)}",
            f"no {gone} any more",
        )
    new = _phrase(say, change.who, change.detail)
    joined = "in" if change.detail in ("upper_colour", "lower_colour", "lower", "pattern") else "with"
    if isinstance(before, Thing) and isinstance(after, Thing) and say.chance(0.25):
        return f"with {new} instead of {say.thing(before)}"
    return say.pick(
        f"but {joined} {new}",
        f"the same person {joined} {new}",
        f"but now {joined} {new}",
        f"this time {joined} {new}",
    )


def _phrase(say: Speaker, who: Identity, detail: str) -> str:
    match detail:
        case "upper_colour":
            return upper_phrase(say, who, pattern=False, inner=False, plain=False)
        case "pattern":
            # stripes, dots and the like; without any, that it is plain
            return upper_phrase(say, who, pattern=True, inner=False, plain=True)
        case "lower_colour" | "lower":
            return lower_phrase(say, who)
        case "shoes_colour":
            return shoes_phrase(say, who)
        case "hair":
            return hair_phrase(say, who, style=True, colour=False)
        case "hair_colour":
            return hair_phrase(say, who, style=False, colour=True)
    thing: Thing = getattr(who, detail)
    return say.thing(thing)
