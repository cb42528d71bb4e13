"""The canvas that figures are drawn on: colour, soft shading, and a map of which detail each pixel shows.

Coordinates are pixels of the final picture, x to the right and y down. Colour is painted four times as fine in each
direction and reduced at the end; shading is a separate, blurred layer that each new part resets beneath itself, so
that cloth looks round without gradients. The map of parts is what makes the sentences honest: a detail is
mentioned only if enough of its own pixels are left after everything else has been drawn over it.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image, ImageDraw, ImageFilter

from limner.people.palette import RGB, darker

Points = Sequence[tuple[float, float]]

_FINE: Final = 4
_NEUTRAL: Final = 128


class Canvas:
    """An empty, transparent picture of `width` × `height` pixels."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._colour = Image.new("RGBA", (width * _FINE, height * _FINE), (0, 0, 0, 0))
        self._shade = Image.new("L", (width, height), _NEUTRAL)
        self._parts = Image.new("L", (width, height), 0)
        self._paint = ImageDraw.Draw(self._colour)
        self._shading = ImageDraw.Draw(self._shade)
        self._mapping = ImageDraw.Draw(self._parts)
        self._names: list[str] = [""]

    def fill(self, points: Points, colour: RGB, part: str = "", *, outline: float = 0.5) -> None:
        """A filled polygon of a new part, with a soft darker edge `outline` pixels wide (0: none)."""
        if len(points) < 3:
            return
        fine = [(x * _FINE, y * _FINE) for x, y in points]
        self._paint.polygon(fine, fill=(*colour, 255))
        if outline:
            self._paint.line(
                [*fine, fine[0]], fill=(*darker(colour, 0.42), 255), width=max(1, round(outline * _FINE))
            )
        self._shading.polygon(list(points), fill=_NEUTRAL)
        self._mapping.polygon(list(points), fill=self._index(part))

    def over(self, points: Points, colour: RGB, part: str | None = None) -> None:
        """A filled polygon upon the last part: keeps its shading and, without `part`, its name."""
        if len(points) < 3:
            return
        self._paint.polygon([(x * _FINE, y * _FINE) for x, y in points], fill=(*colour, 255))
        if part is not None:
            self._mapping.polygon(list(points), fill=self._index(part))

    def line(self, points: Points, colour: RGB, width: float, part: str | None = None) -> None:
        """A line `width` pixels wide."""
        if len(points) < 2:
            return
        fine = [(x * _FINE, y * _FINE) for x, y in points]
        self._paint.line(fine, fill=(*colour, 255), width=max(1, round(width * _FINE)), joint="curve")
        if part is not None:
            self._mapping.line(list(points), fill=self._index(part), width=max(1, round(width)))

    def shade(self, points: Points, amount: float) -> None:
        """Darken (negative) or lighten (positive) a polygon by `amount` (a share of the light, −1 to 1)."""
        if len(points) >= 3:
            self._shading.polygon(list(points), fill=round(_NEUTRAL * (1 + amount)))

    def paste(self, other: "Canvas") -> None:
        """Put another canvas of the same size in front; it hides what it covers and names no part."""
        cover = other._colour.getchannel("A")
        self._colour.paste(other._colour, (0, 0), cover)
        small = cover.reduce(_FINE).point(lambda value: 255 if value > 127 else 0)
        self._shade.paste(other._shade, (0, 0), small)
        self._parts.paste(0, (0, 0, self.width, self.height), small)

    def pixels(self) -> tuple[Float[np.ndarray, "height width 3"], Float[np.ndarray, "height width"]]:
        """Colour (0–255) and cover (0–1) of what was drawn."""
        small = np.asarray(self._colour.reduce(_FINE), dtype=np.float32)
        soft = self._shade.filter(ImageFilter.GaussianBlur(self.height / 160))
        light = np.asarray(soft, dtype=np.float32) / _NEUTRAL
        return np.clip(small[..., :3] * light[..., None], 0, 255), small[..., 3] / 255

    def parts(self) -> UInt8[np.ndarray, "height width"]:
        """Index into `part_names` of the detail that each pixel shows; 0 is none."""
        return np.asarray(self._parts, dtype=np.uint8)

    @property
    def part_names(self) -> list[str]:
        """Names by index; the first is empty."""
        return list(self._names)

    def _index(self, part: str) -> int:
        if part not in self._names:
            self._names.append(part)
        return self._names.index(part)


def ellipse(x: float, y: float, rx: float, ry: float, *, corners: int = 20) -> Points:
    """An ellipse's outline."""
    angles = np.linspace(0, 2 * np.pi, corners, endpoint=False)
    return [(x + rx * float(np.cos(a)), y + ry * float(np.sin(a))) for a in angles]


def box(x0: float, y0: float, x1: float, y1: float) -> Points:
    """An upright rectangle's outline."""
    return [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]


def rounded(x0: float, y0: float, x1: float, y1: float, radius: float) -> Points:
    """An upright rectangle's outline with round corners."""
    r = min(radius, abs(x1 - x0) / 2, abs(y1 - y0) / 2)
    corners = ((x1 - r, y1 - r, 0), (x0 + r, y1 - r, 90), (x0 + r, y0 + r, 180), (x1 - r, y0 + r, 270))
    return [
        (x + r * float(np.cos(np.radians(start + turn))), y + r * float(np.sin(np.radians(start + turn))))
        for x, y, start in corners
        for turn in (0, 30, 60, 90)
    ]
