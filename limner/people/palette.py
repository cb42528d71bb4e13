"""The colours that pictures are painted in and sentences name, and one person's shades of them.

Thirteen names, chosen so far apart that no shade of one can fairly be called by the name of another: a
sentence that says "red" is then false of every orange or pink thing. Each identity gets its own slight shade.
"""

from functools import cache
from typing import Final

import numpy as np
from jaxtyping import Float

from limner.people.attributes import Identity

RGB = tuple[int, int, int]

COLOURS: Final[dict[str, RGB]] = {
    "black": (30, 30, 34),
    "white": (240, 240, 238),
    "grey": (134, 137, 141),
    "red": (201, 32, 38),
    "orange": (242, 124, 22),
    "yellow": (244, 214, 48),
    "green": (40, 138, 62),
    "turquoise": (52, 192, 190),
    "blue": (28, 86, 200),
    "purple": (136, 40, 140),
    "pink": (246, 148, 188),
    "brown": (112, 68, 36),
    "beige": (216, 194, 152),
}
"""Colour name → reference RGB."""

HAIR_COLOURS: Final[dict[str, RGB]] = {
    "black": (30, 26, 26),
    "brown": (96, 58, 32),
    "blond": (226, 188, 104),
    "grey": (158, 158, 160),
    "red": (178, 74, 28),
}
"""Hair colour name → reference RGB; "red" is that of hair."""

SKINS: Final[tuple[RGB, ...]] = (
    (246, 212, 184),
    (232, 190, 156),
    (208, 160, 122),
    (168, 118, 82),
    (122, 82, 56),
    (92, 60, 44),
)
"""Skin tones from light to dark; sentences do not mention them."""

_SHADE_STEP: Final = 9.0
_CONTRAST: Final = 46.0


def shade_of(reference: RGB, rng: np.random.Generator) -> RGB:
    """A slight shade of a reference colour: about ±4 % of the range a channel, mostly common to all three."""
    common = rng.uniform(-_SHADE_STEP, _SHADE_STEP)
    per_channel = rng.uniform(-_SHADE_STEP / 2, _SHADE_STEP / 2, size=3)
    return _clip(np.asarray(reference, dtype=np.float64) + common + per_channel)


def mix(first: RGB, second: RGB, share: float) -> RGB:
    """`first` with `share` (0–1) of `second` in it."""
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    return _clip(a + (b - a) * share)


def darker(colour: RGB, share: float) -> RGB:
    """`colour` with `share` (0–1) of its light taken away."""
    return mix(colour, (0, 0, 0), share)


def lighter(colour: RGB, share: float) -> RGB:
    """`colour` moved by `share` (0–1) towards white."""
    return mix(colour, (255, 255, 255), share)


@cache
def contrasts(first: str, second: str, least: float = _CONTRAST) -> bool:
    """True if two named colours stay distinct when small, blurred and side by side (CIELAB distance > `least`)."""
    return float(np.linalg.norm(to_lab(COLOURS[first]) - to_lab(COLOURS[second]))) > least


def to_lab(colour: RGB) -> Float[np.ndarray, "3"]:
    """CIELAB (D65) of an sRGB colour: lightness 0–100, the two colour axes about ±100."""
    scaled = np.asarray(colour, dtype=np.float64) / 255
    linear = np.where(scaled > 0.04045, ((scaled + 0.055) / 1.055) ** 2.4, scaled / 12.92)
    xyz = (
        np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
        @ linear
        / np.array([0.9505, 1.0, 1.089])
    )
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


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


def _clip(values: Float[np.ndarray, "3"]) -> RGB:
    red, green, blue = (round(float(value)) for value in np.clip(values, 0, 255))
    return red, green, blue
