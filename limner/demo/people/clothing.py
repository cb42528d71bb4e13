"""What one person's wardrobe looks like: actual shades of the named colours, skin, sleeves, and the light on it."""

from typing import Final

from limner.demo.people.attributes import Identity
from limner.demo.people.palette import RGB

_LONG_SLEEVED: Final = ("sweater", "hoodie", "jacket", "coat")
_EITHER: Final = ("shirt", "dress")


class Wardrobe:
    """The shades of one person's colours and how they are lit.

    - `shades`: this person's RGB of every named colour.
    - `side`: where the light comes from, -1 left, 1 right.
    - `warm`: whether a shirt or dress, which come in both forms, has long sleeves.
    """

    def __init__(self, who: Identity, skin: RGB, shades: dict[str, RGB], side: float, *, warm: bool) -> None:
        self.who, self.skin, self.shades, self.side = who, skin, shades, side
        self.long_sleeves = who.upper in _LONG_SLEEVED or (who.upper in _EITHER and warm)

    def paint(self, name: str | None) -> RGB:
        """This person's shade of a named colour."""
        return self.shades[name or "grey"]
