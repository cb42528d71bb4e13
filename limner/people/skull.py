"""The head as an oval in space: where on the picture a place on it is.

A place on the head is (angle, height): degrees around from the nose, degrees above the ears' line.
"""

import numpy as np

from limner.people.body import Body
from limner.people.palette import HAIR_COLOURS, RGB, Wardrobe, mix

Point = tuple[float, float]

_WIDE, _DEEP, _HIGH = 0.050, 0.057, 0.071


class Head:
    """The head's oval in the picture."""

    def __init__(self, body: Body) -> None:
        size = body.build.head
        self.yaw, self.facing, self.heading = body.pose.yaw, body.facing, body.heading
        self.x, self.y = body.joint("head")
        self.rx = body.half_width(_WIDE * size, _DEEP * size)
        self.ry = _HIGH * size * body.unit

    def skull(self, angle: float, height: float, grow: float = 1.0) -> Point:
        """A point of the visible half at `angle` degrees on the picture's own scale (−90 left edge, 90 right)."""
        level = np.radians(height)
        across = np.sin(np.radians(angle))
        return (
            self.x + self.rx * grow * float(np.cos(level) * across),
            self.y - self.ry * grow * float(np.sin(level)),
        )

    def place(self, angle: float, height: float) -> Point | None:
        """The picture's place of a point of the head; None when it is behind."""
        turned = (angle + self.yaw + 180) % 360 - 180
        return self.skull(turned, height) if abs(turned) < 78 else None

    def cap(self, line: "HairLine", grow: float, top: float = 1.0) -> list[Point]:
        """Outline of what covers the head above a line; `grow` stands off the skull, `top` stretches it upward."""
        below = []
        for angle in np.linspace(-90, 90, 19):
            around = (float(angle) - self.yaw + 180) % 360 - 180
            below.append(self.skull(float(angle), line.at(abs(around)), grow))
        over = []
        first, last = (
            line.at(abs((90 - self.yaw + 180) % 360 - 180)),
            line.at(abs((-90 - self.yaw + 180) % 360 - 180)),
        )
        for turn in np.linspace(0, 1, 15):
            level = np.radians(first + turn * (180 - last - first))
            rise = top if np.sin(level) > 0 else 1.0
            over.append(
                (
                    self.x + self.rx * grow * float(np.cos(level)),
                    self.y - self.ry * grow * rise * float(np.sin(level)),
                )
            )
        return below + over


class HairLine:
    """Height of a hairline or brim around the head, from the forehead (0°) to the nape (180°)."""

    def __init__(self, *heights: float) -> None:
        self._heights = heights

    def at(self, around: float) -> float:
        """Its height at an angle from the nose, 0–180."""
        return float(np.interp(around, np.linspace(0, 180, len(self._heights)), self._heights))


def hair_colour(clothes: Wardrobe) -> RGB:
    """This person's shade of the hair colour."""
    reference = HAIR_COLOURS[clothes.who.hair_colour]
    return mix(reference, clothes.paint("brown"), 0.06)
