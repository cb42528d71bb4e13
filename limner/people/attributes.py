"""Who somebody is: a combination of details that a sentence can name.

Skin, build and shades of colour are not nameable; they are drawn from a seed of their own.
"""

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, Literal


@dataclass(frozen=True, slots=True)
class Thing:
    """Something that is worn or carried: what it is and, where that is said, its colour's name."""

    kind: str
    colour: str | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """The nameable details of one person; colours are names of `limner.people.palette`.

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

    def seen(self, visible: Collection[str]) -> list[str]:
        """The kinds of what is worn and carried, where the details `visible` can be seen, e.g. "coat", "umbrella".

        Shoes are left out: four kinds that everybody wears would make half of all pairs share one.
        """
        kinds = {
            "upper": self.upper,
            "lower": self.lower,
            **{
                name: thing and thing.kind
                for name in ("headwear", "bag", "carried", "worn")
                for thing in (getattr(self, name),)
            },
        }
        return sorted(kind for name, kind in kinds.items() if kind and name in visible)


HAIR_STYLES: Final = {
    "man": ("short", "short", "short", "short", "bald", "curly", "long"),
    "woman": ("long", "long", "long", "ponytail", "ponytail", "bun", "short", "curly"),
}
UPPERS: Final = {
    "man": ("t-shirt", "t-shirt", "shirt", "sweater", "hoodie", "jacket", "jacket", "coat", "tank top"),
    "woman": (
        "t-shirt",
        "t-shirt",
        "shirt",
        "sweater",
        "hoodie",
        "jacket",
        "coat",
        "tank top",
        "dress",
        "dress",
    ),
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
PATTERNED: Final = {
    "t-shirt": PATTERNS,
    "shirt": ("stripes", "checks", "dots"),
    "sweater": ("stripes", "dots", "sleeves", "bottom half"),
    "hoodie": ("logo", "stripes", "sleeves", "bottom half"),
    "tank top": ("stripes", "dots", "logo"),
    "dress": ("stripes", "dots", "checks"),
    "jacket": ("sleeves", "bottom half"),
    "coat": ("checks",),
}
"""Patterns that each top comes with."""


def differing(first: Identity, second: Identity) -> set[str]:
    """Names of the fields in which two identities differ."""
    return {
        field.name
        for field in dataclasses.fields(Identity)
        if getattr(first, field.name) != getattr(second, field.name)
    }
