"""Who is who: identities as combinations of nameable details, and near-twins that differ in exactly one.

A detail is one field of `Identity`, or the swap of the colours above and below the waist. All identities of a
set are distinct; apart from near-twins any two differ in several details. Skin, build and shades of colour are
not nameable and vary freely (twins share them).
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from limner.data.people.palette import COLOURS, HAIR_COLOURS, contrasts


@dataclass(frozen=True, slots=True)
class Thing:
    """Something that is worn or carried: what it is and, where that is said, its colour's name."""

    kind: str
    colour: str | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """The nameable details of one person; colours are names of `limner.data.people.palette`.

    - `hair`: one of `HAIR_STYLES`; `headwear` covers the top of it.
    - `upper`: one of `UPPERS`; a dress covers the lower body as well, then `lower` is None.
    - `pattern`: kind (one of `PATTERNS`) and its second colour; None is plain.
    - `inner`: colour of the T-shirt under an open jacket or coat; None when closed.
    - `bag`, `carried`, `worn`: at most one of each, see `BAGS`, `CARRIED`, `WORN`.
    """

    sex: Literal["man", "woman"]
    hair: str
    hair_colour: str
    beard: bool
    headwear: Thing | None
    upper: str
    upper_colour: str
    pattern: Thing | None
    inner: str | None
    lower: str | None
    lower_colour: str | None
    shoes: str
    shoes_colour: str
    bag: Thing | None
    carried: Thing | None
    worn: Thing | None

    def as_json(self) -> dict[str, Any]:
        """The details as JSON values."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, slots=True)
class Person:
    """One identity of a set.

    - `number`: its id, from 1; `split`: "train", "val" or "test".
    - `twin`: id of its near-twin, which is in the same split; None for most.
    - `detail`: the one detail that tells the twins apart: a field of `Identity` or "swapped colours".
    - `looks`: seed of what no sentence names (skin, build, shades); twins share it.
    """

    number: int
    split: str
    identity: Identity
    twin: int | None
    detail: str | None
    looks: int


HAIR_STYLES: Final = {
    "man": ("short", "short", "short", "short", "bald", "curly", "long"),
    "woman": ("long", "long", "long", "ponytail", "ponytail", "bun", "short", "curly"),
}
UPPERS: Final = {
    "man": ("t-shirt", "t-shirt", "shirt", "sweater", "hoodie", "jacket", "jacket", "coat", "tank top"),
    "woman": ("t-shirt", "t-shirt", "shirt", "sweater", "hoodie", "jacket", "coat", "tank top", "dress", "dress"),
}
LOWERS: Final = {
    "man": ("jeans", "jeans", "trousers", "trousers", "shorts"),
    "woman": ("jeans", "trousers", "leggings", "shorts", "skirt", "skirt", "long skirt"),
}
PATTERNS: Final = ("stripes", "checks", "dots", "logo", "sleeves", "bottom half")
SHOES: Final = ("sneakers", "sneakers", "shoes", "boots", "sandals")
BAGS: Final = ("backpack", "backpack", "shoulder bag", "handbag", "suitcase", "tote bag", "plastic bag")
CARRIED: Final = ("phone", "bottle", "book", "coffee cup", "umbrella", "umbrella", "dog")
WORN: Final = ("glasses", "sunglasses", "scarf", "tie", "belt")
HEADWEAR: Final = ("cap", "cap", "beanie", "hat")

_JEANS_COLOURS: Final = ("blue", "blue", "black", "grey", "white")
_SHOE_COLOURS: Final = ("black", "white", "brown", "red", "grey", "blue", "green", "pink", "yellow", "orange")
_DOG_COLOURS: Final = ("black", "white", "brown")
_PATTERNED: Final = {
    "t-shirt": PATTERNS,
    "shirt": ("stripes", "checks", "dots"),
    "sweater": ("stripes", "dots", "sleeves", "bottom half"),
    "hoodie": ("logo", "stripes", "sleeves", "bottom half"),
    "tank top": ("stripes", "dots", "logo"),
    "dress": ("stripes", "dots", "checks"),
    "jacket": ("sleeves", "bottom half"),
    "coat": ("checks",),
}
_TWIN_DETAILS: Final = (
    ("swapped colours", 4),
    ("upper_colour", 2),
    ("lower_colour", 2),
    ("shoes_colour", 2),
    ("bag", 4),
    ("pattern", 3),
    ("hair", 2),
    ("hair_colour", 1),
    ("headwear", 3),
    ("lower", 2),
    ("carried", 2),
)


def sample_people(counts: dict[str, int], seed: int) -> list[Person]:
    """The people of a set: `counts` of each split, ids from 1 in the order of the splits.

    A third of each split are near-twins. Deterministic in `counts` and `seed`.
    """
    rng = np.random.default_rng([seed, 0])
    taken: set[Identity] = set()
    outlines: set[tuple[object, ...]] = set()
    people: list[Person] = []
    for split, count in counts.items():
        chosen: list[tuple[Identity, int | None, str | None]] = []
        for _ in range(round(count / 6)):
            first = _fresh(rng, taken, outlines)
            second, detail = _twin_of(first, rng, taken)
            at = len(chosen)
            chosen += [(first, at + 1, detail), (second, at, detail)]
        while len(chosen) < count:
            chosen.append((_fresh(rng, taken, outlines), None, None))
        order = rng.permutation(len(chosen))
        number = {int(old): len(people) + new + 1 for new, old in enumerate(order)}
        looks = {old: int(rng.integers(2**31)) for old in range(len(chosen))}
        for old in map(int, order):
            identity, twin, detail = chosen[old]
            same = old if twin is None else min(old, twin)
            people.append(
                Person(
                    number[old], split, identity, None if twin is None else number[twin], detail, looks[same]
                )
            )
    return people


def differing(first: Identity, second: Identity) -> set[str]:
    """Names of the fields in which two identities differ."""
    return {
        field.name
        for field in dataclasses.fields(Identity)
        if getattr(first, field.name) != getattr(second, field.name)
    }


def _fresh(
    rng: np.random.Generator, taken: set[Identity], outlines: set[tuple[object, ...]]
) -> Identity:
    """An identity that shares its clothes and bag with nobody before it, so that it is told apart easily."""
    while True:
        who = _sample(rng)
        outline = (who.sex, who.upper, who.upper_colour, who.lower, who.lower_colour, who.bag and who.bag.kind)
        if outline not in outlines and who not in taken:
            outlines.add(outline)
            taken.add(who)
            return who


def _sample(rng: np.random.Generator) -> Identity:
    sex: Literal["man", "woman"] = "man" if rng.random() < 0.5 else "woman"
    upper = _pick(rng, UPPERS[sex])
    upper_colour = _pick(rng, tuple(COLOURS))
    lower = None if upper == "dress" else _pick(rng, LOWERS[sex])
    lower_colour = None if lower is None else _lower_colour(rng, lower, upper_colour)
    hair = _pick(rng, HAIR_STYLES[sex])
    against = upper_colour
    return Identity(
        sex=sex,
        hair=hair,
        hair_colour=_pick(rng, tuple(HAIR_COLOURS)),
        beard=sex == "man" and rng.random() < 0.25,
        headwear=_headwear(rng) if rng.random() < 0.28 and hair not in ("bun", "curly") else None,
        upper=upper,
        upper_colour=upper_colour,
        pattern=_pattern(rng, upper, upper_colour) if rng.random() < 0.5 else None,
        inner=_contrasting(rng, upper_colour) if upper in ("jacket", "coat") and rng.random() < 0.55 else None,
        lower=lower,
        lower_colour=lower_colour,
        shoes=_pick(rng, SHOES),
        shoes_colour=_pick(rng, _SHOE_COLOURS),
        bag=_bag(rng, against) if rng.random() < 0.68 else None,
        carried=_carried(rng, against) if rng.random() < 0.38 else None,
        worn=_worn(rng, sex, upper, upper_colour) if rng.random() < 0.4 else None,
    )


def _twin_of(who: Identity, rng: np.random.Generator, taken: set[Identity]) -> tuple[Identity, str]:
    names = [name for name, _ in _TWIN_DETAILS]
    weights = np.array([weight for _, weight in _TWIN_DETAILS], dtype=np.float64)
    while True:
        detail = names[int(rng.choice(len(names), p=weights / weights.sum()))]
        changes = _change(who, detail, rng)
        twin = dataclasses.replace(who, **changes) if changes else who
        if twin not in taken:
            taken.add(twin)
            return twin, detail


def _change(who: Identity, detail: str, rng: np.random.Generator) -> dict[str, Any]:
    """Another value for one detail that still goes with the rest; empty when this person has no such detail."""
    match detail:
        case "swapped colours" if _can_swap(who):
            return {"upper_colour": who.lower_colour, "lower_colour": who.upper_colour}
        case "upper_colour":
            colour = _pick(rng, tuple(COLOURS))
            clash = (who.lower_colour, who.pattern and who.pattern.colour, who.inner, who.bag and who.bag.colour)
            if contrasts(colour, who.upper_colour) and all(
                other is None or contrasts(colour, other) for other in clash
            ):
                return {"upper_colour": colour}
        case "lower_colour" if who.lower is not None and who.lower_colour is not None:
            colour = _lower_colour(rng, who.lower, who.upper_colour)
            if contrasts(colour, who.lower_colour):
                return {"lower_colour": colour}
        case "shoes_colour":
            colour = _pick(rng, _SHOE_COLOURS)
            if contrasts(colour, who.shoes_colour):
                return {"shoes_colour": colour}
        case "bag" if who.bag is not None:
            return {"bag": _other_bag(who.bag, who.upper_colour, rng)}
        case "pattern":
            options = [kind for kind in _PATTERNED[who.upper] if kind != "logo"]
            colour = who.pattern.colour if who.pattern else _contrasting(rng, who.upper_colour)
            kind = _pick(rng, tuple(options))
            if who.pattern is None or (who.pattern.kind != "logo" and who.pattern.kind != kind):
                return {"pattern": Thing(kind, colour)}
        case "hair" if who.headwear is None:
            return {"hair": "short" if who.hair != "short" else "long" if who.sex == "woman" else "bald"}
        case "hair_colour" if who.headwear is None and who.hair != "bald" and who.hair_colour != "brown":
            return {"hair_colour": {"black": "blond", "blond": "black", "grey": "red", "red": "grey"}[who.hair_colour]}
        case "headwear" if who.headwear is not None and who.headwear.colour is not None:
            other = _headwear(rng)
            if other.colour is not None and contrasts(other.colour, who.headwear.colour):
                return {"headwear": Thing(who.headwear.kind, other.colour)}
            if other.kind != who.headwear.kind:
                return {"headwear": Thing(other.kind, who.headwear.colour)}
        case "lower" if who.lower is not None:
            to = {"jeans": "shorts", "trousers": "shorts", "shorts": "trousers", "skirt": "trousers"}
            to |= {"long skirt": "shorts", "leggings": "skirt"}
            return {"lower": to[who.lower]}
        case "carried" if who.carried is not None and who.carried.kind in ("umbrella", "dog"):
            colours = tuple(COLOURS) if who.carried.kind == "umbrella" else _DOG_COLOURS
            colour = _pick(rng, colours)
            if who.carried.colour is not None and contrasts(colour, who.carried.colour):
                return {"carried": Thing(who.carried.kind, colour)}
    return {}


def _can_swap(who: Identity) -> bool:
    if who.lower is None or who.lower_colour is None:
        return False
    if who.lower == "jeans" and who.upper_colour not in _JEANS_COLOURS:
        return False
    second = (who.pattern and who.pattern.colour, who.inner)
    return all(colour is None or contrasts(colour, who.lower_colour) for colour in second)


def _other_bag(bag: Thing, upper_colour: str, rng: np.random.Generator) -> Thing:
    other = _bag(rng, upper_colour)
    if bag.colour is not None and other.colour is not None and contrasts(bag.colour, other.colour):
        return Thing(bag.kind, other.colour)
    # A tote and a handbag are too alike from afar to be the one detail that decides.
    kinds = {"backpack": "suitcase", "tote bag": "backpack", "handbag": "suitcase"}
    return Thing(kinds.get(bag.kind, "backpack"), bag.colour)


def _bag(rng: np.random.Generator, upper_colour: str) -> Thing:
    return Thing(_pick(rng, BAGS), _contrasting(rng, upper_colour))


def _carried(rng: np.random.Generator, upper_colour: str) -> Thing:
    kind = _pick(rng, CARRIED)
    match kind:
        case "phone" | "bottle" | "coffee cup":
            return Thing(kind)
        case "dog":
            return Thing(kind, _pick(rng, _DOG_COLOURS))
    return Thing(kind, _contrasting(rng, upper_colour))


def _worn(rng: np.random.Generator, sex: str, upper: str, upper_colour: str) -> Thing | None:
    kind = _pick(rng, WORN)
    match kind:
        case "glasses" | "sunglasses":
            return Thing(kind)
        case "tie":
            return Thing(kind, _contrasting(rng, upper_colour)) if (sex, upper) == ("man", "shirt") else None
        case "belt":
            return Thing(kind, _contrasting(rng, upper_colour)) if upper in ("dress", "coat") else None
    return Thing(kind, _contrasting(rng, upper_colour))


def _headwear(rng: np.random.Generator) -> Thing:
    return Thing(_pick(rng, HEADWEAR), _pick(rng, tuple(COLOURS)))


def _pattern(rng: np.random.Generator, upper: str, upper_colour: str) -> Thing:
    return Thing(_pick(rng, _PATTERNED[upper]), _contrasting(rng, upper_colour))


def _lower_colour(rng: np.random.Generator, lower: str, upper_colour: str) -> str:
    colours = _JEANS_COLOURS if lower == "jeans" else tuple(COLOURS)
    return _pick(rng, tuple(colour for colour in colours if contrasts(colour, upper_colour)))


def _contrasting(rng: np.random.Generator, colour: str) -> str:
    return _pick(rng, tuple(other for other in COLOURS if contrasts(other, colour)))


def _pick(rng: np.random.Generator, options: tuple[str, ...]) -> str:
    return options[int(rng.integers(len(options)))]
