"""The kinds of lies: each takes a true statement about a picture and changes one thing of it.

A false colour or kind is what another person of the set truly has there, drawn once and not until one fits. So a value
is as often true as false, and which sentence is the likelier one says nothing about which is true.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

import numpy as np

from limner.people.attributes import PATTERNED, Identity, Thing
from limner.people.lies.portraits import Portrait
from limner.people.lies.sentence import FORMS, Part, Statement, part_of, word_for
from limner.people.palette import contrasts
from limner.people.tailor import DOG_COLOURS, JEANS_COLOURS

KINDS: Final = {
    "attribute": "one colour, garment or thing is another",
    "binding": "two colours are exchanged",
    "negation": "with is without, or without is with",
    "count": "a single bag is two bags, or two are one",
    "left/right": "left of the picture is right, or right is left",
    "occlusion": "an attribute lie about what is seen of somebody whom an obstacle hides in part",
    "near-twins": "one sentence, two pictures that differ in one detail",
    "caption noise": "an attribute lie against a true sentence with typing errors and a word left out",
    "covered": "a lie about what is hidden, where nothing can be known",
}
"""Kind → what is false in it; the last is a control."""

CONTROLS: Final = ("covered",)
NOISY: Final = ("caption noise",)

# Symmetric: with "a shirt may be called a t-shirt" left out both ways.
_OTHERS: Final = {
    "upper": (
        *(("t-shirt", other) for other in ("coat", "hoodie", "sweater")),
        *(("shirt", other) for other in ("coat", "hoodie")),
        *(("tank top", other) for other in ("coat", "hoodie", "sweater", "jacket")),
        ("sweater", "coat"),
    ),
    "lower": (
        *(("shorts", other) for other in ("jeans", "trousers", "leggings", "long skirt")),
        *(("skirt", other) for other in ("jeans", "trousers", "leggings")),
        *(("long skirt", other) for other in ("jeans", "trousers", "leggings")),
    ),
    "shoes": (("sneakers", "boots"), ("sneakers", "sandals"), ("boots", "sandals")),
    "headwear": (("cap", "beanie"), ("cap", "hat"), ("beanie", "hat")),
    "bag": (
        ("backpack", "suitcase"),
        *(
            (big, other)
            for big in ("backpack", "suitcase")
            for other in ("handbag", "tote bag", "plastic bag")
        ),
    ),
    "carried": tuple(combinations(("phone", "bottle", "book", "coffee cup", "umbrella", "dog"), 2)),
    "worn": tuple(combinations(("glasses", "scarf", "tie", "belt"), 2)),
}
"""Field → kinds of which one is false where the other is true."""

_HAIR: Final = (
    *(("short", other) for other in ("long", "ponytail", "bun")),
    *(("bald", other) for other in ("long", "curly")),
    ("long", "bun"),
)
_PATTERNS: Final = (("stripes", "dots"), ("checks", "dots"), ("stripes", "sleeves"), ("dots", "sleeves"))

_TOLD: Final = 0.75
"""How often a detail that can be seen is told."""

_FIELDS: Final = ("upper", "lower", "shoes", "headwear", "worn", "bag", "carried")

_THINGS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "headwear": {"a hat": ("cap", "beanie", "hat")},
    "bag": {"a bag": ("backpack", "shoulder bag", "handbag", "tote bag", "plastic bag")},
    "carried": {"an umbrella": ("umbrella",), "a dog": ("dog",)},
    "worn": {"glasses": ("glasses", "sunglasses"), "a scarf": ("scarf",)},
}
"""Field → what people are with or without, and the kinds that it names."""


@dataclass(frozen=True)
class Lie:
    """A statement that is false of a picture, and what it is false about."""

    detail: str
    statement: Statement


def describe(
    portrait: Portrait,
    rng: np.random.Generator,
    *,
    must: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
) -> Statement:
    """A true statement about what can be seen, with the fields `must` told and those of `without` not."""
    who, visible = portrait.who, portrait.visible
    form = FORMS[int(rng.integers(len(FORMS)))]
    parts = []
    for name in _FIELDS:
        # Drawn for each, so that one detail more or less leaves the rest of the sentence as it is.
        told, part = rng.random() < _TOLD, part_of(who, name, visible, rng)
        if part is None or name not in visible or name in without:
            continue
        if told or name in must or name in ("upper", "lower"):
            parts.append(part)
    hair, tone = rng.random() < _TOLD, rng.random() < _TOLD
    noun = "person" if rng.random() < 0.14 else who.sex
    return Statement(
        noun,
        form,
        tuple(parts),
        hair=who.hair if "hair" in visible and (hair or "hair" in must) else "",
        hair_colour=who.hair_colour
        if "hair_colour" in visible and (tone or "hair_colour" in must) and who.hair != "bald"
        else "",
    )


def attribute_lies(
    portrait: Portrait, told: Statement, cast: Sequence[Identity], rng: np.random.Generator
) -> list[Lie]:
    """Lies about one value each: two colours at most, and one thing that is no colour.

    None is about man and woman: from behind nobody can tell for sure.
    """
    colours = [lie for part in told.parts if (lie := _other_colour(told, part, cast, rng))]
    others = [lie for part in told.parts if (lie := _other_kind(portrait, told, part, cast, rng))]
    others += [
        lie for lie in (_other_looks(portrait, told, cast, rng), _other_pattern(told, cast, rng)) if lie
    ]
    return [*_some(colours, 2, rng), *_some(others, 1, rng)]


def _some(lies: list[Lie], most: int, rng: np.random.Generator) -> list[Lie]:
    return [lies[int(place)] for place in rng.permutation(len(lies))[:most]]


def _donor(cast: Sequence[Identity], rng: np.random.Generator) -> Identity:
    return cast[int(rng.integers(len(cast)))]


def _colour_of(who: Identity, name: str) -> str | None:
    value = getattr(who, name)
    colour: str | None = value.colour if isinstance(value, Thing) else getattr(who, f"{name}_colour", None)
    return colour


def _another(part: Part, cast: Sequence[Identity], rng: np.random.Generator, seen: set[str]) -> str | None:
    """A colour that a part does not have: one of `seen` if its own is there, too, else one that is not.

    People wear few colours. If the false one were always new, a sentence that names one colour twice would be true.
    """
    if part.colour in seen:
        options = sorted(seen - {part.colour})
    else:
        colour = _colour_of(_donor(cast, rng), part.name)
        options = [colour] if colour and colour not in seen else []
    options = [colour for colour in options if contrasts(colour, part.colour) and _goes(part.kind, colour)]
    return options[int(rng.integers(len(options)))] if options else None


def _goes(kind: str, colour: str) -> bool:
    # Red jeans and blue dogs are lies that nobody needs the picture for.
    return {"jeans": JEANS_COLOURS, "dog": DOG_COLOURS}.get(kind, (colour,)).count(colour) > 0


def _other_colour(
    told: Statement, part: Part, cast: Sequence[Identity], rng: np.random.Generator
) -> Lie | None:
    if not part.colour:
        return None
    colour = _another(part, cast, rng, _colours(other for other in told.parts if other != part))
    # A red shirt with blue stripes is not wholly another than a blue one.
    if colour is None or colour in (part.inner, part.pattern and part.pattern.colour):
        return None
    return Lie(f"{part.name} colour", told.with_part(replace(part, colour=colour)))


def _colours(parts: Iterable[Part]) -> set[str]:
    """The colours that are said of some parts, patterns included."""
    found = set()
    for part in parts:
        found |= {part.colour, part.inner or "", (part.pattern and part.pattern.colour) or ""}
    return found - {""}


def _other_kind(
    portrait: Portrait, told: Statement, part: Part, cast: Sequence[Identity], rng: np.random.Generator
) -> Lie | None:
    donor = _donor(cast, rng)
    value = getattr(donor, part.name)
    kind = value.kind if isinstance(value, Thing) else value
    if kind is None or donor.sex != portrait.who.sex or not _apart(_OTHERS[part.name], part.kind, kind):
        return None
    # A T-shirt under an open jacket is there, and a pattern must be one that the other garment comes with.
    if (
        part.inner
        or portrait.who.inner
        or (part.pattern and part.pattern.kind not in PATTERNED.get(kind, ()))
    ):
        return None
    colour = part.colour
    if isinstance(value, Thing) and bool(value.colour) != bool(colour):
        # A phone has no colour: the other thing is as its owner has it.
        colour = value.colour or ""
    if colour and not _goes(kind, colour):
        return None
    # "Shoes" is a word for sneakers, and boots are shoes.
    noun = kind if part.name == "shoes" else word_for(kind, rng)
    return Lie(part.name, told.with_part(replace(part, kind=kind, noun=noun, colour=colour)))


def _other_looks(
    portrait: Portrait, told: Statement, cast: Sequence[Identity], rng: np.random.Generator
) -> Lie | None:
    donor = _donor(cast, rng)
    hair = donor.hair
    if not told.hair or donor.sex != portrait.who.sex or not _apart(_HAIR, told.hair, hair):
        return None
    tone = "" if "bald" in (hair, told.hair) else told.hair_colour
    return Lie("hair", replace(told, hair=hair, hair_colour=tone))


def _other_pattern(told: Statement, cast: Sequence[Identity], rng: np.random.Generator) -> Lie | None:
    part, other = told.part("upper"), _donor(cast, rng).pattern
    if part is None or part.pattern is None or other is None:
        return None
    if not _apart(_PATTERNS, part.pattern.kind, other.kind) or other.kind not in PATTERNED[part.kind]:
        return None
    return Lie("pattern", told.with_part(replace(part, pattern=Thing(other.kind, part.pattern.colour))))


def _apart(pairs: tuple[tuple[str, str], ...], first: str, second: str) -> bool:
    return (first, second) in pairs or (second, first) in pairs


def binding_lie(told: Statement, rng: np.random.Generator) -> Lie | None:
    """Two of the told colours exchanged."""
    found = [
        (first, second)
        for first, second in combinations([part for part in told.parts if part.colour], 2)
        if contrasts(first.colour, second.colour)
        and _goes(first.kind, second.colour)
        and _goes(second.kind, first.colour)
        # A red shirt with blue sleeves is not wholly another than a blue one.
        and not any(part.pattern or part.inner for part in (first, second))
    ]
    if not found:
        return None
    first, second = found[int(rng.integers(len(found)))]
    swapped = told.with_part(replace(first, colour=second.colour)).with_part(
        replace(second, colour=first.colour)
    )
    return Lie(f"{first.name} and {second.name}", swapped)


def negations(portrait: Portrait, rng: np.random.Generator) -> Iterator[tuple[Statement, Lie]]:
    """Somebody with a thing, somebody without one that they do not have, and the contrary."""
    who = portrait.who
    told = describe(portrait, rng, without=tuple(_THINGS))
    told = replace(told, form="wears", hair="", hair_colour="")
    found: dict[bool, list[tuple[str, str]]] = {True: [], False: []}
    for name, things in _THINGS.items():
        thing = getattr(who, name)
        # From behind nobody can say whether somebody wears glasses.
        if name == "worn" and not portrait.from_front:
            continue
        for words, kinds in things.items():
            if thing is None:
                found[True].append((name, words))
            elif name in portrait.visible and thing.kind in kinds:
                found[False].append((name, words))
    for missing, options in found.items():
        if options:
            name, words = options[int(rng.integers(len(options)))]
            true = replace(told, absence=(words, missing))
            yield true, Lie(words.split(" ")[-1], replace(told, absence=(words, not missing)))


def count_lie(portrait: Portrait, told: Statement) -> tuple[Statement, Lie] | None:
    """A single bag and two of them."""
    bag = told.part("bag")
    if not portrait.bags or bag is None:
        return None
    true = told.with_part(replace(bag, number=portrait.bags))
    return true, Lie("bags", told.with_part(replace(bag, number=3 - portrait.bags)))


def side_lie(portrait: Portrait, told: Statement) -> tuple[Statement, Lie] | None:
    """A bag or dog on the left of the picture, as the viewer has it, and on the right."""
    for name, kinds in (("bag", ("handbag", "plastic bag", "suitcase", "tote bag")), ("carried", ("dog",))):
        part = told.part(name)
        if (
            part is not None
            and part.kind in kinds
            and portrait.bags < 2
            and (side := portrait.sides.get(name))
        ):
            other = {"left": "right", "right": "left"}[side]
            return told.with_part(replace(part, side=side)), Lie(
                name, told.with_part(replace(part, side=other))
            )
    return None


def covered_lies(
    portrait: Portrait, told: Statement, cast: Sequence[Identity], rng: np.random.Generator
) -> Iterator[tuple[Statement, Lie]]:
    """Colours of what an obstacle hides wholly: the true one and another, of which nothing in the picture tells.

    People wear few colours, so both are of those that are seen elsewhere on them, or both are not.
    """
    visible, uncovered = portrait.visible, portrait.uncovered
    seen = _colours(
        part for name in _FIELDS if name in visible and (part := part_of(portrait.who, name, visible, rng))
    )
    for name in ("shoes", "lower", "bag"):
        if name not in uncovered or name in portrait.pixels:
            continue
        part = part_of(portrait.who, name, uncovered, rng)
        if part is None or not part.colour:
            continue
        if (colour := _another(part, cast, rng, seen)) is not None:
            true = replace(told, parts=_in_order((*told.parts, part)))
            yield true, Lie(f"{name} colour", true.with_part(replace(part, colour=colour)))


def _in_order(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    return tuple(sorted(parts, key=lambda part: _FIELDS.index(part.name)))
