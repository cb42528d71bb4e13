"""Obstacles between the camera and the person: a pole, a bin, a bicycle, a hedge, a barrier."""

from collections.abc import Callable
from typing import Final

import numpy as np

from limner.people.canvas import Canvas, box, ellipse, rounded
from limner.people.palette import COLOURS, RGB, darker, lighter, mix, shade_of


def draw_obstacle(canvas: Canvas, name: str, rng: np.random.Generator) -> None:
    """One of `OBSTACLES` or `ACROSS` in front of everything drawn so far; its pixels show no detail of the person."""
    names = tuple(COLOURS)
    colour = mix(shade_of(COLOURS[names[int(rng.integers(len(names)))]], rng), (128, 128, 128), 0.12)
    (OBSTACLES | ACROSS)[name](canvas, colour, rng)


def _pole(canvas: Canvas, colour: RGB, rng: np.random.Generator) -> None:
    x, half = canvas.width * _beside(rng, 0.06, 0.30), canvas.width * rng.uniform(0.02, 0.04)
    grey = mix(colour, (120, 124, 128), 0.75)
    canvas.fill(box(x - half, -2.0, x + half, canvas.height * 0.97), grey)
    canvas.shade(box(x, -2.0, x + half, canvas.height * 0.97), -0.25)
    canvas.fill(ellipse(x, canvas.height * 0.97, half * 1.8, half * 0.7), darker(grey, 0.3))


def _bin(canvas: Canvas, colour: RGB, rng: np.random.Generator) -> None:
    x, wide = canvas.width * _beside(rng, 0.05, 0.30), canvas.width * rng.uniform(0.15, 0.2)
    top, low = canvas.height * rng.uniform(0.72, 0.8), canvas.height * 1.0
    canvas.fill([(x - wide, top), (x + wide, top), (x + wide * 0.85, low), (x - wide * 0.85, low)], colour)
    canvas.shade([(x, top), (x + wide, top), (x + wide * 0.85, low), (x, low)], -0.22)
    canvas.fill(
        rounded(x - wide * 1.06, top - wide * 0.2, x + wide * 1.06, top + wide * 0.12, 3.0),
        darker(colour, 0.35),
    )
    canvas.over(box(x - wide * 0.4, top + wide * 0.4, x + wide * 0.4, top + wide * 0.62), (30, 30, 32))


def _bicycle(canvas: Canvas, colour: RGB, rng: np.random.Generator) -> None:
    unit = float(canvas.height)
    middle, axle = canvas.width * _beside(rng, 0.08, 0.34), unit * rng.uniform(0.90, 0.93)
    r, gap = unit * 0.075, unit * 0.115
    left, right = (middle - gap, axle), (middle + gap, axle)
    for hub in (left, right):
        ring = ellipse(*hub, r, r, corners=28)
        canvas.line([*ring, ring[0]], (26, 26, 28), 1.6, "")
        for a in np.arange(0, np.pi, np.pi / 4):
            dx, dy = r * float(np.cos(a)), r * float(np.sin(a))
            canvas.line([(hub[0] - dx, hub[1] - dy), (hub[0] + dx, hub[1] + dy)], (150, 152, 156), 0.35)
    crank, saddle, head = (
        (middle - gap * 0.1, axle),
        (middle - gap * 0.35, axle - r * 1.35),
        (middle + gap * 0.72, axle - r * 1.4),
    )
    for start, end in (
        (left, crank),
        (crank, saddle),
        (saddle, left),
        (crank, head),
        (saddle, head),
        (head, right),
    ):
        canvas.line([start, end], colour, 1.7, "")
    canvas.fill(
        rounded(saddle[0] - r * 0.35, saddle[1] - r * 0.3, saddle[0] + r * 0.35, saddle[1] - r * 0.08, 2.0),
        (30, 30, 30),
    )
    canvas.line(
        [head, (head[0] - r * 0.05, head[1] - r * 0.35), (head[0] + r * 0.35, head[1] - r * 0.45)],
        (40, 40, 42),
        1.4,
        "",
    )


def _hedge(canvas: Canvas, colour: RGB, rng: np.random.Generator) -> None:
    green = mix((52, 104, 50), (120, 140, 60), rng.uniform(0, 1))
    left = rng.random() < 0.5
    for _ in range(26):
        x = canvas.width * rng.uniform(0, 0.5) if left else canvas.width * rng.uniform(0.5, 1.0)
        y = canvas.height * rng.uniform(0.86, 1.02)
        r = canvas.width * rng.uniform(0.05, 0.1)
        leaf = mix(green, (20, 44, 20), rng.uniform(0, 0.5))
        canvas.fill(ellipse(x, y, r, r * 0.8, corners=9), leaf, outline=0.0)
    for _ in range(6):
        x = canvas.width * (rng.uniform(0, 0.5) if left else rng.uniform(0.5, 1.0))
        canvas.over(
            ellipse(x, canvas.height * rng.uniform(0.86, 0.98), 1.6, 1.6, corners=7), lighter(colour, 0.1)
        )


def _barrier(canvas: Canvas, colour: RGB, rng: np.random.Generator) -> None:
    left = rng.random() < 0.5
    x0, x1 = (-2.0, canvas.width * 0.55) if left else (canvas.width * 0.45, canvas.width + 2.0)
    y = canvas.height * rng.uniform(0.70, 0.8)
    tall = canvas.height * 0.035
    for x in (x0 + 8, x1 - 8):
        canvas.fill(box(x - 1.6, y, x + 1.6, float(canvas.height)), (110, 112, 116))
    canvas.fill(box(x0, y, x1, y + tall), (236, 236, 234))
    for x in np.arange(x0, x1 - 4, 14):
        canvas.over([(x, y), (x + 6, y), (x + 9, y + tall), (x + 3, y + tall)], colour)


def _wall(canvas: Canvas, colour: RGB, rng: np.random.Generator) -> None:
    top, low = canvas.height * rng.uniform(0.66, 0.82), canvas.height + 2.0
    stone = mix(colour, (150, 140, 130), 0.7)
    canvas.fill(box(-2.0, top, canvas.width + 2.0, low), stone)
    course = canvas.height * 0.034
    for row, y in enumerate(np.arange(top + course, low, course)):
        canvas.line([(-2.0, y), (canvas.width + 2.0, y)], darker(stone, 0.25), 0.5)
        for x in np.arange(course * (1 + row % 2), canvas.width, course * 2):
            canvas.line([(x, y - course), (x, y)], darker(stone, 0.2), 0.4)
    canvas.fill(box(-2.0, top - course * 0.6, canvas.width + 2.0, top + course * 0.3), lighter(stone, 0.2))


def _beside(rng: np.random.Generator, near: float, far: float) -> float:
    return float(0.5 + rng.choice([-1, 1]) * rng.uniform(near, far))


OBSTACLES: Final[dict[str, Callable[[Canvas, RGB, np.random.Generator], None]]] = {
    "pole": _pole,
    "bin": _bin,
    "bicycle": _bicycle,
    "hedge": _hedge,
    "barrier": _barrier,
}
"""Name → how it is drawn."""

ACROSS: Final[dict[str, Callable[[Canvas, RGB, np.random.Generator], None]]] = {"wall": _wall}
"""Drawn only where it is asked for: it hides everybody's feet. Apart, since views by chance draw from `OBSTACLES`."""
