"""Head, face, glasses, collar and scarf."""

from typing import Final

import numpy as np

from limner.people.body import Body
from limner.people.canvas import Canvas, ellipse
from limner.people.hair import draw_hair, draw_headwear
from limner.people.palette import Wardrobe, darker
from limner.people.panel import tube
from limner.people.skull import HairLine, Head, Point, hair_colour

_BEARD: Final = HairLine(-26.0, -22.0, 0.0, 0.0, 0.0, 0.0)


def draw_head(canvas: Canvas, body: Body, clothes: Wardrobe) -> None:
    """Head, face, hair, headwear, glasses, scarf, and what hangs down behind when seen from the back."""
    who, unit = clothes.who, body.unit
    head = Head(body)
    neck_x, neck_y = body.joint("neck")
    neck = tube(
        [(head.x, head.y + head.ry * 0.6), (neck_x, neck_y + 0.012 * unit)], [0.026 * unit, 0.032 * unit]
    )
    canvas.fill(neck.outline(), clothes.skin, "neck", outline=0.0)
    canvas.shade(neck.outline(), -0.18)
    _draw_collar(canvas, body, clothes)
    canvas.fill(_skull_outline(head), clothes.skin, "face")
    side = clothes.side
    canvas.shade(
        [
            head.skull(a, h)
            for a, h in ((-90 * side, 50.0), (-90 * side, -40.0), (-35 * side, -70.0), (-40 * side, 50.0))
        ],
        -0.16,
    )
    _draw_ears(canvas, head, clothes)
    _draw_face(canvas, head, clothes)
    draw_hair(canvas, body, head, clothes)
    if who.worn and who.worn.kind in ("glasses", "sunglasses"):
        _draw_glasses(canvas, head, who.worn.kind)
    if who.headwear:
        draw_headwear(canvas, head, clothes)


def _skull_outline(head: Head) -> list[Point]:
    jaw = head.x + 0.14 * head.rx * head.heading
    upper = [
        (head.x + head.rx * float(np.cos(a)), head.y - head.ry * float(np.sin(a)))
        for a in np.linspace(-0.2, np.pi + 0.2, 16)
    ]
    chin = [
        (jaw - head.rx * 0.72, head.y + head.ry * 0.62),
        (jaw - head.rx * 0.34, head.y + head.ry * 0.98),
        (jaw + head.rx * 0.34, head.y + head.ry * 0.98),
        (jaw + head.rx * 0.72, head.y + head.ry * 0.62),
    ]
    return upper + chin


def _draw_ears(canvas: Canvas, head: Head, clothes: Wardrobe) -> None:
    for angle in (-90.0, 90.0):
        turned = (angle + head.yaw + 180) % 360 - 180
        if abs(turned) < 100:
            x, y = head.skull(max(-92.0, min(92.0, turned)), -4.0)
            canvas.over(ellipse(x, y, head.rx * 0.16, head.ry * 0.2), darker(clothes.skin, 0.16), "face")


def _draw_face(canvas: Canvas, head: Head, clothes: Wardrobe) -> None:
    skin = clothes.skin
    dark = sum(skin) < 330
    for angle in (-30.0, 30.0):
        if eye := head.place(angle, 2.0):
            canvas.over(ellipse(*eye, head.rx * 0.17, head.ry * 0.085), (240, 238, 234))
            canvas.over(ellipse(*eye, head.rx * 0.10, head.ry * 0.085), (34, 26, 22))
        if brow := head.place(angle, 17.0):
            canvas.line(
                [(brow[0] - head.rx * 0.2, brow[1]), (brow[0] + head.rx * 0.2, brow[1])], (46, 36, 30), 0.6
            )
    if mouth := head.place(0.0, -42.0):
        canvas.line(
            [(mouth[0] - head.rx * 0.26, mouth[1]), (mouth[0] + head.rx * 0.26, mouth[1])],
            (96, 44, 40) if dark else (176, 84, 78),
            0.8,
        )
    if abs(head.heading) > 0.45 and head.facing > -0.35:
        sign = 1 if head.heading > 0 else -1
        edge = head.x + sign * head.rx * (1.0 if abs(head.heading) > 0.9 else 0.82)
        nose = [
            (edge - sign * head.rx * 0.1, head.y - head.ry * 0.1),
            (edge + sign * head.rx * 0.2, head.y + head.ry * 0.2),
            (edge - sign * head.rx * 0.1, head.y + head.ry * 0.28),
        ]
        canvas.over(nose, skin, "face")
    elif nose_point := head.place(0.0, -14.0):
        x, y = nose_point
        canvas.line([(x, y - head.ry * 0.14), (x, y + head.ry * 0.06)], darker(skin, 0.22), 0.7)
    if clothes.who.beard:
        colour = (
            hair_colour(clothes) if clothes.who.hair_colour != "blond" else darker(hair_colour(clothes), 0.12)
        )
        angles = [
            float(a) for a in np.linspace(-90, 90, 15) if abs((float(a) - head.yaw + 180) % 360 - 180) < 86
        ]
        if len(angles) > 2:
            top = [head.skull(a, _BEARD.at(abs((a - head.yaw + 180) % 360 - 180))) for a in angles]
            jaw = head.x + 0.14 * head.rx * head.heading
            bottom = [
                (
                    jaw + (head.skull(a, 0.0)[0] - jaw) * (0.55 + 0.3 * (1 - abs(a) / 90)),
                    head.y + head.ry * (1.06 - 0.3 * abs(np.sin(np.radians(a)))),
                )
                for a in angles[::-1]
            ]
            canvas.over(top + bottom, colour, "beard")
            if mouth:
                canvas.line(
                    [(mouth[0] - head.rx * 0.2, mouth[1]), (mouth[0] + head.rx * 0.2, mouth[1])],
                    (150, 74, 70),
                    0.7,
                )


def _draw_glasses(canvas: Canvas, head: Head, kind: str) -> None:
    lens = (24, 24, 28) if kind == "sunglasses" else None
    eyes = [eye for angle in (-30.0, 30.0) if (eye := head.place(angle, 1.0))]
    for x, y in eyes:
        rim = ellipse(x, y, head.rx * 0.3, head.ry * (0.17 if lens else 0.16), corners=12)
        if lens:
            canvas.over(rim, lens, "worn")
        else:
            canvas.line([*rim, rim[0]], (26, 24, 26), 0.7, "worn")
    if len(eyes) == 2:
        canvas.line(list(eyes), (26, 24, 26), 0.6, "worn")
    for angle in (-90.0, 90.0):
        if (temple := head.place(angle * 0.95, 3.0)) and (eye := head.place(angle / 3, 2.0)):
            canvas.line([eye, temple], (26, 24, 26), 0.7, "worn")


def _draw_collar(canvas: Canvas, body: Body, clothes: Wardrobe) -> None:
    who, unit = clothes.who, body.unit
    x, y = body.joint("neck")
    if who.upper in ("coat", "jacket", "shirt"):
        colour = darker(clothes.paint(who.upper_colour), 0.12)
        low = y + 0.014 * unit
        canvas.over(
            [
                (x - 0.04 * unit, low),
                (x - 0.036 * unit, y - 0.022 * unit),
                (x - 0.02 * unit, y),
                (x + 0.02 * unit, y),
                (x + 0.036 * unit, y - 0.022 * unit),
                (x + 0.04 * unit, low),
            ],
            colour,
            "upper",
        )


def draw_scarf(canvas: Canvas, body: Body, clothes: Wardrobe) -> None:
    """A scarf wound around the neck; its end hangs in front, or behind for those who look at the back."""
    unit, colour = body.unit, clothes.paint(clothes.who.worn.colour if clothes.who.worn else None)
    x, y = body.joint("neck")
    end = x + 0.03 * unit * (1 if body.facing >= 0 else -1) + 0.05 * unit * body.heading
    if body.facing > -0.5:
        tail = tube([(end, y), (end + 0.004 * unit, y + 0.15 * unit)], [0.021 * unit, 0.024 * unit])
        canvas.fill(tail.outline(), colour, "worn")
        canvas.shade(tail.strip(0.2, 1.0), -0.15)
        canvas.line([tail.at(-0.9, 0.9), tail.at(0.9, 0.9)], darker(colour, 0.3), 0.6)
    loop = ellipse(x, y - 0.006 * unit, 0.058 * unit, 0.031 * unit)
    canvas.fill(loop, colour, "worn")
    canvas.shade(ellipse(x, y - 0.02 * unit, 0.04 * unit, 0.012 * unit), -0.25)
    canvas.line(
        [(x - 0.05 * unit, y + 0.002 * unit), (x, y + 0.016 * unit), (x + 0.05 * unit, y)],
        darker(colour, 0.2),
        0.6,
    )
