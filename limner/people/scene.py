"""Where people are seen: six kinds of place, each with clutter in colours that have nothing to do with the person."""

from collections.abc import Callable
from typing import Final

import numpy as np
from jaxtyping import Float
from PIL import Image, ImageDraw, ImageFilter

from limner.people.palette import COLOURS, RGB, darker, lighter, mix, shade_of

_FINE: Final = 2


class Place:
    """A background under construction; coordinates are shares of the width and height, 0–1."""

    def __init__(self, size: tuple[int, int], rng: np.random.Generator) -> None:
        self.height, self.width = size
        self.rng = rng
        self._image = Image.new("RGB", (self.width * _FINE, self.height * _FINE))
        self._draw = ImageDraw.Draw(self._image)

    def box(self, x0: float, y0: float, x1: float, y1: float, colour: RGB) -> None:
        """A filled rectangle."""
        if x1 > x0 and y1 > y0:
            self._draw.rectangle((*self._at(x0, y0), *self._at(x1, y1)), fill=colour)

    def shape(self, points: list[tuple[float, float]], colour: RGB) -> None:
        """A filled polygon."""
        self._draw.polygon([self._at(x, y) for x, y in points], fill=colour)

    def disc(self, x: float, y: float, r: float, colour: RGB, flat: float = 1.0) -> None:
        """A disc with radius `r` (share of the width), squeezed by `flat`."""
        cx, cy = self._at(x, y)
        rx = r * self.width * _FINE
        self._draw.ellipse((cx - rx, cy - rx * flat, cx + rx, cy + rx * flat), fill=colour)

    def line(self, x0: float, y0: float, x1: float, y1: float, colour: RGB, width: float = 1.0) -> None:
        """A line `width` final pixels wide."""
        self._draw.line(
            (*self._at(x0, y0), *self._at(x1, y1)), fill=colour, width=max(1, round(width * _FINE))
        )

    def some_colour(self) -> RGB:
        """A shade of any nameable colour, muted by distance."""
        names = tuple(COLOURS)
        return mix(
            shade_of(COLOURS[names[int(self.rng.integers(len(names)))]], self.rng), (150, 152, 156), 0.08
        )

    def dull(self, low: int = 95, high: int = 195) -> RGB:
        """A greyish colour of stone, plaster or tarmac."""
        level = self.rng.uniform(low, high)
        red, green, blue = np.clip(level + self.rng.uniform(-13, 13, 3), 0, 255)
        return round(float(red)), round(float(green)), round(float(blue))

    def between(self, low: float, high: float) -> float:
        """A random share."""
        return float(self.rng.uniform(low, high))

    def pixels(self, blur: float) -> Float[np.ndarray, "height width 3"]:
        """The picture, softened as by depth of field (`blur`: pixels at a height of 192)."""
        small = self._image.reduce(_FINE).filter(ImageFilter.GaussianBlur(blur * self.height / 192))
        return np.asarray(small, dtype=np.float32)

    def _at(self, x: float, y: float) -> tuple[float, float]:
        return x * self.width * _FINE, y * self.height * _FINE


def draw_place(
    name: str, size: tuple[int, int], rng: np.random.Generator
) -> Float[np.ndarray, "height width 3"]:
    """A background of `size` (height, width): one of `PLACES`. Values 0–255."""
    place = Place(size, rng)
    PLACES[name](place)
    return place.pixels(float(rng.uniform(0.5, 1.3)))


def _street(p: Place) -> None:
    line = p.between(0.52, 0.68)
    p.box(0.0, 0.0, 1.0, 1.0, lighter(p.dull(150, 200), 0.2))
    x = -p.between(0.0, 0.3)
    while x < 1:
        wide = p.between(0.3, 0.6)
        _building(p, x, p.between(-0.1, 0.15), x + wide, line)
        x += wide
    p.box(0.0, line, 1.0, 1.0, p.dull(95, 140))
    p.shape(
        [(0.0, line + 0.06), (1.0, line + 0.04), (1.0, line + 0.055), (0.0, line + 0.078)], p.dull(175, 205)
    )
    p.shape([(0.0, line + 0.078), (1.0, line + 0.055), (1.0, 1.0), (0.0, 1.0)], p.dull(140, 180))
    for _ in range(int(p.rng.integers(1, 3))):
        _car(p, p.between(-0.3, 0.9), line + 0.03)
    _passers_by(p, line + 0.05, 2)


def _wall(p: Place) -> None:
    floor = p.between(0.74, 0.86)
    base = p.dull(110, 200) if p.rng.random() < 0.25 else mix(p.some_colour(), p.dull(), 0.2)
    p.box(0.0, 0.0, 1.0, floor, base)
    if p.rng.random() < 0.6:
        rows = 16
        for row in range(rows):
            y = floor * row / rows
            p.line(0.0, y, 1.0, y, darker(base, 0.18), 0.6)
            for column in range(6):
                x = (column + 0.5 * (row % 2)) / 5
                p.line(x, y, x, y + floor / rows, darker(base, 0.18), 0.6)
    for _ in range(int(p.rng.integers(1, 4))):
        x, y = p.between(-0.1, 0.85), p.between(0.05, 0.45)
        wide, tall = p.between(0.14, 0.34), p.between(0.1, 0.2)
        p.box(x, y, x + wide, y + tall, p.some_colour())
        p.box(x + 0.02, y + 0.02, x + wide - 0.02, y + tall * 0.5, p.some_colour())
    p.box(0.0, floor, 1.0, 1.0, p.dull(110, 170))
    p.line(0.0, floor, 1.0, floor, darker(base, 0.4), 1.2)


def _park(p: Place) -> None:
    line = p.between(0.45, 0.6)
    p.box(0.0, 0.0, 1.0, line, (176, 204, 226))
    for _ in range(9):
        x, y = p.between(-0.1, 1.1), line - p.between(0.02, 0.35)
        green = mix((62, 112, 52), (140, 160, 70), p.between(0.0, 1.0))
        p.line(x, y, x, line + 0.04, (88, 66, 46), 3.0)
        for _ in range(4):
            p.disc(
                x + p.between(-0.1, 0.1),
                y + p.between(-0.05, 0.05),
                p.between(0.09, 0.2),
                mix(green, (30, 60, 30), p.between(0.0, 0.4)),
            )
    p.box(0.0, line, 1.0, 1.0, mix((96, 142, 66), (140, 150, 84), p.between(0.0, 1.0)))
    left = p.between(-0.3, 0.3)
    p.shape([(0.42, line), (0.55, line), (left + 1.1, 1.0), (left, 1.0)], p.dull(165, 200))
    for _ in range(14):
        p.disc(p.between(0.0, 1.0), p.between(line + 0.03, 1.0), 0.012, p.some_colour())
    for _ in range(int(p.rng.integers(0, 3))):
        _flower_bed(p, p.between(-0.2, 0.8), line + p.between(0.06, 0.3), p.some_colour())
    if p.rng.random() < 0.6:
        x = p.between(-0.1, 0.8)
        colour = p.some_colour()
        p.box(x, line + 0.02, x + 0.4, line + 0.035, colour)
        p.box(x, line + 0.06, x + 0.4, line + 0.075, colour)
        p.box(x + 0.03, line + 0.02, x + 0.05, line + 0.12, (60, 60, 60))
        p.box(x + 0.35, line + 0.02, x + 0.37, line + 0.12, (60, 60, 60))
    _passers_by(p, line + 0.06, 2)


def _flower_bed(p: Place, x: float, y: float, colour: RGB) -> None:
    p.disc(x + 0.2, y, 0.24, (70, 104, 52), 0.3)
    for _ in range(26):
        p.disc(
            x + p.between(0.0, 0.4), y + p.between(-0.025, 0.02), 0.022, darker(colour, p.between(0.0, 0.2))
        )


def _shop(p: Place) -> None:
    floor = p.between(0.72, 0.82)
    front = p.some_colour()
    p.box(
        0.0, 0.0, 1.0, 1.0, p.dull(120, 190) if p.rng.random() < 0.4 else mix(p.some_colour(), p.dull(), 0.2)
    )
    p.box(0.0, 0.02, 1.0, 0.14, front)
    for index in range(int(p.rng.integers(4, 8))):
        p.box(
            0.1 + index * 0.1,
            0.055,
            0.16 + index * 0.1,
            0.105,
            lighter(front, 0.75) if sum(front) < 500 else darker(front, 0.7),
        )
    if p.rng.random() < 0.55:
        first, second = p.some_colour(), (236, 236, 232)
        for index in range(8):
            p.box(index / 8, 0.14, (index + 1) / 8, 0.2, first if index % 2 else second)
    left = p.between(-0.2, 0.1)
    for start in (left, left + 0.62):
        p.box(start, 0.22, start + 0.55, floor - 0.06, (74, 84, 92))
        p.box(start + 0.02, 0.235, start + 0.53, floor - 0.075, (190, 202, 206))
        for _ in range(7):
            x, y = start + p.between(0.05, 0.42), p.between(0.3, floor - 0.2)
            p.box(x, y, x + p.between(0.05, 0.13), y + p.between(0.04, 0.12), p.some_colour())
        p.shape(
            [
                (start + 0.1, 0.235),
                (start + 0.2, 0.235),
                (start + 0.08, floor - 0.08),
                (start + 0.02, floor - 0.08),
            ],
            (214, 224, 228),
        )
    p.box(0.0, floor, 1.0, 1.0, p.dull(135, 185))
    for x in np.linspace(-0.4, 1.4, 7):
        p.line(0.5 + (float(x) - 0.5) * 0.6, floor, float(x), 1.0, p.dull(110, 130), 0.6)


def _corridor(p: Place) -> None:
    far, x = p.between(0.42, 0.55), p.between(0.35, 0.65)
    wall = (
        lighter(p.dull(150, 210), 0.1)
        if p.rng.random() < 0.4
        else mix(p.some_colour(), p.dull(150, 210), 0.35)
    )
    p.box(0.0, 0.0, 1.0, 1.0, wall)
    p.shape([(0.0, 0.0), (1.0, 0.0), (x + 0.12, far - 0.18), (x - 0.12, far - 0.18)], lighter(wall, 0.4))
    p.shape([(x - 0.12, far), (x + 0.12, far), (1.2, 1.0), (-0.2, 1.0)], p.dull(100, 170))
    p.shape(
        [(0.0, 0.0), (x - 0.12, far - 0.18), (x - 0.12, far), (0.0, 0.93), (-0.2, 1.0)], darker(wall, 0.08)
    )
    p.box(x - 0.12, far - 0.18, x + 0.12, far, p.dull(90, 190))
    for share in (0.2, 0.45, 0.75):
        p.line(
            x - 0.06 * share - 0.02,
            (far - 0.18) * (1 - share),
            x + 0.06 * share + 0.02,
            (far - 0.18) * (1 - share),
            (250, 250, 244),
            2.0,
        )
    stripe = p.some_colour()
    p.shape([(0.0, 0.5), (x - 0.12, far - 0.06), (x - 0.12, far - 0.045), (0.0, 0.55)], stripe)
    p.shape([(1.0, 0.5), (x + 0.12, far - 0.06), (x + 0.12, far - 0.045), (1.0, 0.55)], stripe)
    for side in (0.02, 0.84):
        colour = p.some_colour()
        p.box(side, p.between(0.2, 0.3), side + 0.15, p.between(0.74, 0.8), colour)
        p.box(side + 0.03, 0.33, side + 0.12, 0.45, lighter(colour, 0.5))


def _crossing(p: Place) -> None:
    line = p.between(0.38, 0.5)
    p.box(0.0, 0.0, 1.0, line, lighter(p.dull(140, 190), 0.15))
    for start in (-0.1, 0.35, 0.75):
        _building(p, start, p.between(-0.1, 0.1), start + p.between(0.3, 0.45), line)
    road = p.dull(84, 118)
    p.box(0.0, line, 1.0, 1.0, road)
    for index in range(5):
        y = line + 0.12 + (1 - line) * 0.17 * index
        p.shape([(-0.1, y + 0.02), (1.1, y), (1.1, y + 0.05), (-0.1, y + 0.075)], p.dull(205, 228))
    for _ in range(2):
        _car(p, p.between(-0.3, 0.8), line + 0.06)
    if p.rng.random() < 0.6:
        x = p.between(0.05, 0.95)
        p.line(x, 0.1, x, line + 0.1, (70, 74, 78), 2.0)
        p.box(x - 0.04, 0.08, x + 0.04, 0.2, (40, 42, 44))
        p.disc(
            x,
            0.11 if p.rng.random() < 0.5 else 0.17,
            0.026,
            (220, 50, 44) if p.rng.random() < 0.5 else (60, 190, 90),
        )
    _passers_by(p, line + 0.03, 3)


def _building(p: Place, x0: float, y0: float, x1: float, y1: float) -> None:
    colour = p.dull(105, 205) if p.rng.random() < 0.35 else mix(p.some_colour(), p.dull(), 0.28)
    p.box(x0, y0, x1, y1, colour)
    glass = mix((70, 90, 110), (190, 210, 220), p.between(0.0, 1.0))
    columns, rows = int(p.rng.integers(2, 5)), int(p.rng.integers(3, 6))
    for row in range(rows):
        for column in range(columns):
            x = x0 + (x1 - x0) * (column + 0.25) / columns
            y = y0 + (y1 - y0) * (row + 0.25) / rows
            p.box(x, y, x + (x1 - x0) * 0.5 / columns, y + (y1 - y0) * 0.5 / rows, glass)


def _car(p: Place, x: float, y: float) -> None:
    colour, wide = p.some_colour(), p.between(0.5, 0.75)
    tall = 0.085
    p.shape(
        [
            (x + wide * 0.2, y - tall),
            (x + wide * 0.7, y - tall),
            (x + wide * 0.86, y - tall * 0.4),
            (x + wide * 0.08, y - tall * 0.4),
        ],
        darker(colour, 0.15),
    )
    p.shape(
        [
            (x + wide * 0.24, y - tall * 0.92),
            (x + wide * 0.67, y - tall * 0.92),
            (x + wide * 0.78, y - tall * 0.45),
            (x + wide * 0.16, y - tall * 0.45),
        ],
        (92, 108, 120),
    )
    p.box(x, y - tall * 0.45, x + wide, y + tall * 0.25, colour)
    for share in (0.2, 0.8):
        p.disc(x + wide * share, y + tall * 0.28, 0.052, (30, 30, 32))
        p.disc(x + wide * share, y + tall * 0.28, 0.024, (140, 142, 146))


def _passers_by(p: Place, line: float, most: int) -> None:
    for _ in range(int(p.rng.integers(0, most + 1))):
        x, tall = p.between(0.0, 1.0), p.between(0.11, 0.19)
        top = line - tall * 0.8
        skin = mix((236, 196, 164), (110, 76, 54), p.between(0.0, 1.0))
        p.box(x - tall * 0.13, top + tall * 0.55, x + tall * 0.17, top + tall, p.some_colour())
        p.box(x - tall * 0.2, top + tall * 0.17, x + tall * 0.24, top + tall * 0.58, p.some_colour())
        p.disc(x + 0.004, top + tall * 0.08, tall * 0.15, skin)


PLACES: Final[dict[str, Callable[[Place], None]]] = {
    "street": _street,
    "wall": _wall,
    "park": _park,
    "shop": _shop,
    "corridor": _corridor,
    "crossing": _crossing,
}
"""Name → how it is drawn."""
