"""Hair of every length, hoods that lie behind it, and what is worn upon it."""

from typing import Final

import numpy as np

from limner.people.body import Body
from limner.people.canvas import Canvas, ellipse
from limner.people.palette import Wardrobe, darker, lighter
from limner.people.panel import tube
from limner.people.skull import HairLine, Head, hair_colour

_SHORT: Final = HairLine(44.0, 40.0, 14.0, -18.0, -34.0, -38.0)
_FULL: Final = HairLine(42.0, 34.0, -30.0, -50.0, -60.0, -64.0)


def draw_behind_head(canvas: Canvas, body: Body, clothes: Wardrobe) -> None:
    """Long hair and a hood where the head and trunk hide most of it (seen from the front)."""
    if clothes.who.hair == "long" and body.facing > -0.5:
        _draw_long_hair(canvas, body, clothes, front=True)
    if clothes.who.upper == "hoodie" and body.facing > -0.3:
        x, y = body.joint("neck")
        colour = darker(clothes.paint(clothes.who.upper_colour), 0.2)
        shift = -0.03 * body.unit * body.heading
        canvas.fill(
            ellipse(x + shift, y - 0.012 * body.unit, 0.068 * body.unit, 0.034 * body.unit), colour, "upper"
        )


def draw_over_back(canvas: Canvas, body: Body, clothes: Wardrobe) -> None:
    """Hood, long hair or ponytail upon the back, seen from behind or from the side."""
    who, unit = clothes.who, body.unit
    head = Head(body)
    if who.upper == "hoodie" and body.facing < 0.2:
        x, y = body.joint("neck")
        colour = clothes.paint(who.upper_colour)
        x -= 0.045 * unit * body.heading
        wide = (0.07 if body.facing < -0.5 else 0.045) * unit
        canvas.fill(
            [
                (x - wide, y - 0.01 * unit),
                (x + wide, y - 0.01 * unit),
                (x + wide * 0.75, y + 0.05 * unit),
                (x, y + 0.088 * unit),
                (x - wide * 0.75, y + 0.05 * unit),
            ],
            colour,
            "upper",
        )
        canvas.shade(ellipse(x, y + 0.012 * unit, wide * 0.7, 0.022 * unit), -0.3)
    if who.hair == "long" and body.facing < 0.2:
        _draw_long_hair(canvas, body, clothes, front=False)
    if who.hair == "ponytail":
        colour = hair_colour(clothes)
        back = -1.0 * head.rx
        root = (head.x + back * head.heading * 1.02, head.y - head.ry * (0.28 if head.facing < 0.3 else 0.6))
        if head.facing < 0.6:
            sway = -0.035 * unit * head.heading
            tail = tube(
                [
                    root,
                    (root[0] + sway * 1.3, root[1] + 0.06 * unit),
                    (root[0] + sway * 0.9, root[1] + 0.155 * unit),
                ],
                [0.017 * unit, 0.026 * unit, 0.008 * unit],
            )
            canvas.fill(tail.outline(), colour, "hair style")
            canvas.shade(tail.strip(-0.2, 0.3), 0.15)
            canvas.over(ellipse(*root, 0.014 * unit, 0.014 * unit), darker(colour, 0.4))


def draw_hair(canvas: Canvas, body: Body, head: Head, clothes: Wardrobe) -> None:
    """Hair upon the head, without what hangs down from it."""
    who, colour, side = clothes.who, hair_colour(clothes), clothes.side
    if who.hair == "bald":
        if not who.headwear:
            canvas.shade(
                ellipse(
                    head.x + side * head.rx * 0.3, head.y - head.ry * 0.6, head.rx * 0.35, head.ry * 0.18
                ),
                0.2,
            )
        canvas.fill(
            ellipse(head.x, head.y - head.ry * 0.85, 0.4, 0.4), clothes.skin, "hair style", outline=0.0
        )
        crown = [head.skull(a, 40.0) for a in (-60.0, 0.0, 60.0)] + [head.skull(0.0, 80.0)]
        canvas.over(crown, clothes.skin, "hair style")
        return
    part = "hair style" if who.hair in ("short", "curly") else "hair"
    line = _SHORT if who.hair in ("short", "curly") else _FULL
    grow = {"short": 1.06, "curly": 1.1}.get(who.hair, 1.08)
    if who.hair == "curly" and not who.headwear:
        for a in np.linspace(-95, 95, 9):
            turned = np.radians(float(a))
            x, y = (
                head.x + head.rx * 1.12 * float(np.sin(turned)),
                head.y - head.ry * (0.22 + 0.86 * float(np.cos(turned))),
            )
            canvas.fill(ellipse(x, y, head.rx * 0.36, head.ry * 0.27, corners=12), colour, part)
    if who.hair == "bun" and head.facing >= -0.4:
        x = head.x - head.rx * 0.75 * head.heading
        y = head.y - head.ry * (1.16 if head.facing > -0.4 else 0.9)
        canvas.fill(ellipse(x, y, head.rx * 0.46, head.ry * 0.34), colour, "hair style")
        canvas.shade(
            ellipse(x + side * head.rx * 0.1, y - head.ry * 0.08, head.rx * 0.2, head.ry * 0.12), 0.2
        )
    cap = head.cap(line, grow, 1.07 if who.hair == "short" else 1.02)
    canvas.fill(cap, colour, part)
    bright = [
        (head.x + side * head.rx * 0.38 + head.rx * 0.3 * dx, head.y - head.ry * 0.74 + head.ry * 0.16 * dy)
        for dx, dy in ((-1.0, 0.0), (0.0, -1.0), (1.0, 0.0), (0.0, 1.0))
    ]
    canvas.shade(bright, 0.3 if sum(colour) < 200 else 0.16)
    if who.hair == "bun" and head.facing < -0.4:
        canvas.fill(
            ellipse(head.x, head.y - head.ry * 0.72, head.rx * 0.48, head.ry * 0.36),
            colour,
            "hair style",
            outline=0.7,
        )


def _draw_long_hair(canvas: Canvas, body: Body, clothes: Wardrobe, *, front: bool) -> None:
    unit, colour, head = body.unit, hair_colour(clothes), Head(body)
    back = -head.heading
    middle = head.x + back * head.rx * (0.32 if front or head.facing > -0.5 else 0.1)
    wide = head.rx * (1.32 if abs(head.heading) < 0.8 else 0.86)
    low = head.y + 0.205 * unit
    fall = tube(
        [
            (middle, head.y - head.ry * 0.75),
            (middle, head.y - head.ry * 0.35),
            (middle + back * 0.012 * unit, head.y + 0.08 * unit),
            (middle + back * 0.02 * unit, low),
        ],
        [wide * 0.2, wide * 0.8, wide, wide * 0.74],
    )
    canvas.fill(fall.outline(), colour, "hair style")
    canvas.shade(fall.strip(-1.0, -0.6), -0.2)
    for s in (-0.35, 0.1, 0.5):
        canvas.line([fall.at(s, v) for v in (0.3, 0.65, 0.98)], darker(colour, 0.22), 0.5)


def draw_headwear(canvas: Canvas, head: Head, clothes: Wardrobe) -> None:
    """Cap, beanie or hat."""
    worn = clothes.who.headwear
    if worn is None:
        return
    colour, side = clothes.paint(worn.colour), clothes.side
    match worn.kind:
        case "cap":
            canvas.fill(head.cap(HairLine(34.0, 32.0, 22.0, 16.0, 12.0, 10.0), 1.1), colour, "headwear")
            canvas.shade(
                [
                    head.skull(-side * 90, 25.0, 1.1),
                    head.skull(-side * 90, 60.0, 1.1),
                    head.skull(-side * 35, 80.0, 1.1),
                    head.skull(-side * 35, 25.0, 1.1),
                ],
                -0.2,
            )
            if head.facing > -0.55:
                reach = head.heading
                x, y = head.x + head.rx * (0.2 + 0.85 * abs(reach)) * reach, head.y - head.ry * 0.5
                flat = 0.2 + 0.14 * max(head.facing, 0)
                canvas.fill(
                    ellipse(x, y, head.rx * (1.0 - 0.2 * abs(reach)), head.ry * flat * 0.8),
                    darker(colour, 0.16),
                    "headwear",
                )
        case "beanie":
            canvas.fill(head.cap(HairLine(26.0, 24.0, 12.0, 2.0, -6.0, -8.0), 1.12, 1.1), colour, "headwear")
            fold = [head.skull(a, 20.0, 1.15) for a in np.linspace(-90, 90, 9)]
            upper = [head.skull(a, 42.0, 1.17) for a in np.linspace(90, -90, 9)]
            canvas.over(fold + upper, darker(colour, 0.14))
            canvas.fill(
                ellipse(head.x, head.y - head.ry * 1.26, head.rx * 0.32, head.ry * 0.22),
                lighter(colour, 0.15),
                "headwear",
            )
        case "hat":
            crown = [
                head.skull(-90.0, 28.0, 1.04),
                (head.x - head.rx * 0.78, head.y - head.ry * 1.32),
                (head.x, head.y - head.ry * 1.42),
                (head.x + head.rx * 0.78, head.y - head.ry * 1.32),
                head.skull(90.0, 28.0, 1.04),
            ]
            canvas.fill(crown, colour, "headwear")
            band = [
                head.skull(-90.0, 30.0, 1.05),
                head.skull(-86.0, 48.0, 1.1),
                head.skull(86.0, 48.0, 1.1),
                head.skull(90.0, 30.0, 1.05),
            ]
            canvas.over(band, darker(colour, 0.45) if sum(colour) > 200 else lighter(colour, 0.4))
            canvas.fill(
                ellipse(head.x, head.y - head.ry * 0.5, head.rx * 1.85, head.ry * 0.24), colour, "headwear"
            )
            canvas.shade(
                ellipse(
                    head.x - side * head.rx * 0.8, head.y - head.ry * 0.46, head.rx * 0.8, head.ry * 0.12
                ),
                -0.2,
            )


def draw_side_locks(canvas: Canvas, body: Body, clothes: Wardrobe) -> None:
    """The part of long hair that falls before the shoulders, seen from the front."""
    if clothes.who.hair != "long" or body.facing < 0.3:
        return
    head, colour, unit = Head(body), hair_colour(clothes), body.unit
    for sign in (-1.0, 1.0):
        x = head.x + sign * head.rx * 0.98 - 0.1 * head.rx * head.heading
        lock = tube(
            [
                (x, head.y - head.ry * 0.3),
                (x + sign * 0.006 * unit, head.y + 0.07 * unit),
                (x + sign * 0.004 * unit, head.y + 0.165 * unit),
            ],
            [0.012 * unit, 0.019 * unit, 0.007 * unit],
        )
        canvas.fill(lock.outline(), colour, "hair style", outline=0.3)
