"""The people of a set: who is there, in which split, and which of them are near-twins.

A third of each split are near-twins: pairs that differ in exactly one detail, which is one field of `Identity` or the
swap of the colours above and below the waist. All identities of a set are distinct, and apart from near-twins no
two share sex, clothes, their colours and kind of bag.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from limner.people.attributes import PATTERNED, Identity, Thing
from limner.people.palette import contrasts
from limner.people.tailor import DOG_COLOURS, JEANS_COLOURS, Tailor, reads_well

_PER_TAILOR: Final = 34
"""Identities that share their few colours; see `limner.people.tailor` for why they do."""

_TWIN_DETAILS: Final = {
    "swapped colours": 6,
    "upper_colour": 1,
    "lower_colour": 2,
    "shoes_colour": 2,
    "bag": 4,
    "pattern": 3,
    "hair": 2,
    "hair_colour": 1,
    "headwear": 3,
    "lower": 2,
    "carried": 3,
}
"""The detail in which twins differ → how often it is tried."""

_OTHER_LOWER: Final = {
    "jeans": "shorts",
    "trousers": "shorts",
    "shorts": "trousers",
    "skirt": "trousers",
    "long skirt": "shorts",
    "leggings": "skirt",
}
_OTHER_HAIR_COLOUR: Final = {"black": "blond", "blond": "black", "grey": "red", "red": "grey"}
# A tote and a handbag are too alike from afar to be the one detail that decides.
_OTHER_BAG: Final = {"backpack": "suitcase", "handbag": "suitcase"}


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


def sample_people(counts: dict[str, int], seed: int) -> list[Person]:
    """The people of a set: `counts` of each split, ids from 1 in the order of the splits.

    Deterministic in `counts` and `seed`.
    """
    rng = np.random.default_rng([seed, 0])
    register = _Register()
    people: list[Person] = []
    for split, count in counts.items():
        chosen: list[tuple[Identity, int | None, str | None]] = []
        tailor = Tailor(rng)
        pairs = round(count / 6)
        while len(chosen) < count:
            if len(chosen) // _PER_TAILOR != (len(chosen) - 1) // _PER_TAILOR:
                tailor = Tailor(rng)
            first = register.newcomer(tailor)
            # Pairs are spread evenly, so that every tailor's colours are met among twins and others.
            have = sum(twin is not None for _, twin, _ in chosen) // 2
            if have < pairs and have * count <= pairs * len(chosen) and len(chosen) + 2 <= count:
                second, detail = register.twin_of(first, tailor)
                at = len(chosen)
                chosen += [(first, at + 1, detail), (second, at, detail)]
            else:
                chosen.append((first, None, None))
        order = [int(old) for old in rng.permutation(len(chosen))]
        number = {old: len(people) + new + 1 for new, old in enumerate(order)}
        looks = [int(seed) for seed in rng.integers(2**31, size=len(chosen))]
        for old in order:
            identity, twin, differs_in = chosen[old]
            same = old if twin is None else min(old, twin)
            partner = None if twin is None else number[twin]
            people.append(Person(number[old], split, identity, partner, differs_in, looks[same]))
    return people


class _Register:
    """Who is there already."""

    def __init__(self) -> None:
        self._taken: set[Identity] = set()
        self._outlines: set[tuple[object, ...]] = set()

    def newcomer(self, tailor: Tailor) -> Identity:
        """Someone whose clothes, their colours and kind of bag nobody else has."""
        while True:
            who = tailor.dress()
            bag = who.bag.kind if who.bag else None
            outline = (who.sex, who.upper, who.upper_colour, who.lower, who.lower_colour, bag)
            if outline not in self._outlines and who not in self._taken:
                self._outlines.add(outline)
                self._taken.add(who)
                return who
            # A small palette can be used up.
            tailor.widen()

    def twin_of(self, who: Identity, tailor: Tailor) -> tuple[Identity, str]:
        """Someone who differs from `who` in one detail, and its name."""
        names = list(_TWIN_DETAILS)
        weights = np.array(list(_TWIN_DETAILS.values()), dtype=np.float64)
        while True:
            detail = names[int(tailor.rng.choice(len(names), p=weights / weights.sum()))]
            twin = dataclasses.replace(who, **_change(who, detail, tailor))
            if twin not in self._taken and reads_well(twin):
                self._taken.add(twin)
                return twin, detail


def _change(who: Identity, detail: str, tailor: Tailor) -> dict[str, Any]:
    """Another value for one detail that still goes with the rest; empty when this person has no such detail."""
    match detail:
        case "swapped colours" if _can_swap(who):
            return {"upper_colour": who.lower_colour, "lower_colour": who.upper_colour}
        case "upper_colour":
            colour = tailor.against(who.upper_colour)
            if contrasts(colour, who.upper_colour) and _goes_with(colour, (who.lower_colour, *_on_top(who))):
                return {"upper_colour": colour}
        case "lower_colour" if who.lower is not None and who.lower_colour is not None:
            colour = tailor.lower_colour(who.lower, who.upper_colour)
            if contrasts(colour, who.lower_colour):
                return {"lower_colour": colour}
        case "shoes_colour":
            return {"shoes_colour": tailor.against(who.shoes_colour)}
        case "bag" if who.bag is not None and who.bag.colour is not None:
            colour = tailor.against(who.bag.colour)
            if contrasts(colour, who.upper_colour):
                return {"bag": Thing(who.bag.kind, colour)}
            return {"bag": Thing(_OTHER_BAG.get(who.bag.kind, "backpack"), who.bag.colour)}
        case "pattern":
            fresh = tailor.pattern(who.upper, who.upper_colour)
            second = who.pattern.colour if who.pattern else fresh.colour
            old = who.pattern.kind if who.pattern else None
            # A logo cannot be seen from behind, where it could not decide.
            if "logo" not in (old, fresh.kind) and fresh.kind != old and fresh.kind in PATTERNED[who.upper]:
                return {"pattern": Thing(fresh.kind, second)}
        case "hair" if who.headwear is None:
            return {"hair": "short" if who.hair != "short" else "long" if who.sex == "woman" else "bald"}
        case "hair_colour" if who.headwear is None and who.hair != "bald" and who.hair_colour != "brown":
            return {"hair_colour": _OTHER_HAIR_COLOUR[who.hair_colour]}
        case "headwear" if who.headwear is not None and who.headwear.colour is not None:
            return {"headwear": Thing(who.headwear.kind, tailor.against(who.headwear.colour))}
        case "lower" if who.lower is not None and (who.lower != "jeans" or who.lower_colour != "blue"):
            return {"lower": _OTHER_LOWER[who.lower]}
        case "carried" if (
            who.carried is not None and who.carried.colour is not None and who.carried.kind != "book"
        ):
            if who.carried.kind == "dog":
                colour = tailor.pick(tuple(c for c in DOG_COLOURS if c != who.carried.colour))
            else:
                colour = tailor.against(who.carried.colour)
            if contrasts(colour, who.carried.colour):
                return {"carried": Thing(who.carried.kind, colour)}
    return {}


def _can_swap(who: Identity) -> bool:
    if who.lower is None or who.lower_colour is None:
        return False
    if who.lower == "jeans" and who.upper_colour not in JEANS_COLOURS:
        return False
    return _goes_with(who.lower_colour, _on_top(who))


def _on_top(who: Identity) -> tuple[str | None, ...]:
    """Colours seen against the top."""
    things = tuple(thing.colour for thing in (who.pattern, who.bag) if thing is not None)
    return (*things, who.inner)


def _goes_with(colour: str, others: tuple[str | None, ...]) -> bool:
    return all(other is None or contrasts(colour, other) for other in others)
