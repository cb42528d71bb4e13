"""Pieces of cloth and limbs: a band around a centre line that can be painted, shaded and patterned.

A place on a panel is (s, v): s from −1 at the left edge to 1 at the right, v from 0 at the top to 1 at the
end. On a round body s is the sine of the angle to the viewer, so what is printed at an angle θ of a trunk that
is turned by `yaw` appears at s = sin(θ + yaw), and not at all behind the horizon.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from jaxtyping import Float

from limner.people.attributes import Thing
from limner.people.canvas import Canvas, Points
from limner.people.palette import RGB

_HORIZON: Final = 90.0


@dataclass(frozen=True)
class Panel:
    """A band with `rows` cross-sections: `centre` points and `half` vectors from there to the right edge."""

    centre: Float[np.ndarray, "rows 2"]
    half: Float[np.ndarray, "rows 2"]
    yaw: float = 0.0

    def at(self, s: float, v: float) -> tuple[float, float]:
        """The point at (s, v)."""
        place = min(max(v, 0.0), 1.0) * (len(self.centre) - 1)
        row = min(int(place), len(self.centre) - 2)
        share = place - row
        centre = self.centre[row] * (1 - share) + self.centre[row + 1] * share
        half = self.half[row] * (1 - share) + self.half[row + 1] * share
        return float(centre[0] + s * half[0]), float(centre[1] + s * half[1])

    def outline(self) -> Points:
        """Down the right edge and up the left one."""
        right, left = self.centre + self.half, self.centre - self.half
        return [(float(x), float(y)) for x, y in (*right, *left[::-1])]

    def strip(self, s0: float, s1: float, v0: float = 0.0, v1: float = 1.0, rows: int = 7) -> Points:
        """The piece between two values of s and of v."""
        steps = np.linspace(v0, v1, rows)
        return [*(self.at(s1, float(v)) for v in steps), *(self.at(s0, float(v)) for v in steps[::-1])]

    def band(self, v0: float, v1: float, sag: float = 0.0) -> Points:
        """The piece between two heights from edge to edge; `sag` lowers its middle, as on a round body."""
        across = np.linspace(-1, 1, 7)
        lower = [sag * (1 - s * s) for s in across]
        top = [self.at(float(s), v0 + d) for s, d in zip(across, lower, strict=True)]
        end = [self.at(float(s), v1 + d) for s, d in zip(across, lower, strict=True)]
        return [*top, *end[::-1]]

    def sides(self, first: float, last: float) -> tuple[float, float] | None:
        """The s range of what lies between two angles around the body (degrees); None when it is all behind."""
        start, end = first + self.yaw, last + self.yaw
        turns = round((start + end) / 2 / 360) * 360
        start, end = max(start - turns, -_HORIZON), min(end - turns, _HORIZON)
        if end - start < 4:
            return None
        return float(np.sin(np.radians(start))), float(np.sin(np.radians(end)))

    def around(self, first: float, last: float, v0: float = 0.0, v1: float = 1.0) -> Points:
        """The visible piece between two angles around the body; empty when it is all behind."""
        sides = self.sides(first, last)
        return [] if sides is None else self.strip(*sides, v0, v1)

    def place(self, angle: float, v: float) -> tuple[float, float] | None:
        """The point at an angle around the body; None when it is behind."""
        turned = (angle + self.yaw + 180) % 360 - 180
        return self.at(float(np.sin(np.radians(turned))), v) if abs(turned) < 80 else None

    @property
    def length(self) -> float:
        """Length of the centre line in pixels."""
        return float(np.linalg.norm(np.diff(self.centre, axis=0), axis=1).sum())


def upright(rows: list[tuple[float, float, float]], yaw: float = 0.0) -> Panel:
    """A panel from (y, x of the centre, half width) rows, smoothed in between."""
    given = np.asarray(rows, dtype=np.float64)
    along = np.linspace(0, len(given) - 1, 4 * len(given))
    at = np.floor(along).clip(max=len(given) - 2).astype(int)
    share = along - at
    # A linear y and eased widths give a silhouette without corners at the given rows.
    eased = share * share * (3 - 2 * share)
    y = given[at, 0] * (1 - share) + given[at + 1, 0] * share
    x = given[at, 1] * (1 - share) + given[at + 1, 1] * share
    half = given[at, 2] * (1 - eased) + given[at + 1, 2] * eased
    even = np.linspace(y[0], y[-1], len(y))
    x, half = np.interp(even, y, x), np.interp(even, y, half)
    return Panel(np.stack([x, even], axis=1), np.stack([half, np.zeros_like(half)], axis=1), yaw)


def tube(points: Points, radii: list[float]) -> Panel:
    """A limb through `points` with a radius at each, rounded where it bends."""
    joints = np.asarray(points, dtype=np.float64)
    widths = np.asarray(radii, dtype=np.float64)
    centre: list[Float[np.ndarray, "2"]] = [joints[0]]
    radius: list[float] = [float(widths[0])]
    for index in range(1, len(joints)):
        before, here = joints[index - 1], joints[index]
        if index + 1 < len(joints):
            after = joints[index + 1]
            # A bend of three points instead of one keeps the outer side from pinching.
            centre += [
                here + (before - here) * 0.12,
                here * 0.9 + (before + after) * 0.05,
                here + (after - here) * 0.12,
            ]
            radius += [float(widths[index])] * 3
        else:
            centre.append(here)
            radius.append(float(widths[index]))
    line, radius = _evenly(np.stack(centre), radius)
    steps = np.gradient(line, axis=0)
    steps /= np.maximum(np.linalg.norm(steps, axis=1, keepdims=True), 1e-6)
    right = np.stack([steps[:, 1], -steps[:, 0]], axis=1)
    return Panel(line, right * np.asarray(radius)[:, None])


def _evenly(
    line: Float[np.ndarray, "rows 2"], radius: list[float]
) -> tuple[Float[np.ndarray, "even 2"], list[float]]:
    """The same line with equal steps, so that v counts length and patterns keep their pace."""
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(line, axis=0), axis=1))])
    steps = np.linspace(0, along[-1], 12)
    even = np.stack([np.interp(steps, along, line[:, 0]), np.interp(steps, along, line[:, 1])], axis=1)
    return even, [float(r) for r in np.interp(steps, along, radius)]


def rounded_shading(canvas: Canvas, panel: Panel, side: float, depth: float = 0.22) -> None:
    """Make a panel look round: dark towards the side away from the light (`side` −1 left, 1 right)."""
    dark, bright = -side, side
    canvas.shade(panel.strip(min(dark, dark * 0.35), max(dark, dark * 0.35)), -depth * 0.55)
    canvas.shade(panel.strip(min(dark, dark * 0.7), max(dark, dark * 0.7)), -depth)
    canvas.shade(panel.strip(min(bright * 0.25, bright * 0.7), max(bright * 0.25, bright * 0.7)), depth * 0.4)


def paint_pattern(
    canvas: Canvas, panel: Panel, pattern: Thing, colour: RGB, period: float, part: str
) -> None:
    """Stripes, checks or dots over a panel; `period` in pixels."""
    rows = max(2, round(panel.length / period))
    match pattern.kind:
        case "stripes":
            for row in range(rows):
                canvas.over(panel.band((row + 0.5) / rows, (row + 0.98) / rows, 0.25 / rows), colour, part)
        case "checks":
            for row in range(rows):
                canvas.over(panel.band((row + 0.5) / rows, (row + 0.8) / rows, 0.2 / rows), colour, part)
            for angle in np.arange(-180.0, 180.0, 30.0):
                canvas.over(panel.around(angle, angle + 9), colour, part)
        case "dots":
            for row, v in enumerate(np.linspace(0.5 / rows, 1 - 0.5 / rows, rows)):
                narrow = abs(float(panel.half[0, 0]) + float(panel.half[-1, 0])) < 3 * period
                for angle in (-40.0, 5.0) if narrow else np.arange(-180.0, 180.0, 36.0):
                    if narrow and (row + (angle > 0)) % 2:
                        continue
                    centre = panel.place(angle + 18 * (row % 2), float(v))
                    if centre is not None:
                        r = period * 0.24
                        spot = [(centre[0] + r * dx, centre[1] + r * dy) for dx, dy in _OCTAGON]
                        canvas.over(spot, colour, part)


_OCTAGON: Final = [(float(np.cos(a)), float(np.sin(a))) for a in np.arange(8) * np.pi / 4]


def hem(canvas: Canvas, panel: Panel, colour: RGB, v: float = 0.985, width: float = 0.6) -> None:
    """A seam across a panel."""
    line = [panel.at(float(s), v) for s in np.linspace(-0.95, 0.95, 5)]
    for start, end in pairwise(line):
        canvas.line([start, end], colour, width)
