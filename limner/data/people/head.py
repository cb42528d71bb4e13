"""Head, face, hair and what is worn on them.

A place on the head is (angle, height): degrees around from the nose, degrees above the ears' line.
"""

from typing import Final

import numpy as np

from limner.data.people.body import Body
from limner.data.people.canvas import Canvas, ellipse
from limner.data.people.clothing import Wardrobe
from limner.data.people.palette import HAIR_COLOURS, RGB, darker, lighter, mix
from limner.data.people.panel import tube

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
        """What covers the head above a line; `grow` stands off the skull, `top` stretches it upward."""
        below = []
        for angle in np.linspace(-90, 90, 19):
            around = (float(angle) - self.yaw + 180) % 360 - 180
            below.append(self.skull(float(angle), line.at(abs(around)), grow))
        over = []
        first, last = line.at(abs((90 - self.yaw + 180) % 360 - 180)), line.at(abs((-90 - self.yaw + 180) % 360 - 180))
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


_SHORT: Final = HairLine(44, 40, 14, -18, -34, -38)
_FULL: Final = HairLine(42, 34, -30, -50, -60, -64)
_BEARD: Final = HairLine(-26, -22, 0, 0, 0, 0)


def draw_behind_head(canvas: Canvas, body: Body, clothes: Wardrobe) -> None:
    """Long hair and a hood where the head and trunk hide most of it (seen from the front)."""
    if clothes.who.hair == "long" and body.facing > -0.5:
        _draw_long_hair(canvas, body, clothes, front=True)
    if clothes.who.upper == "hoodie" and body.facing > -0.3:
        x, y = body.joint("neck")
        colour = darker(clothes.paint(clothes.who.upper_colour), 0.2)
        shift = -0.03 * body.unit * body.heading
        canvas.fill(ellipse(x + shift, y - 0.012 * body.unit, 0.068 * body.unit, 0.034 * body.unit), colour, "upper")


def draw_head(canvas: Canvas, body: Body, clothes: Wardrobe) -> None:
    """Head, face, hair, headwear, glasses, scarf, and what hangs down behind when seen from the back."""
    who, unit = clothes.who, body.unit
    head = Head(body)
    neck_x, neck_y = body.joint("neck")
    neck = tube([(head.x, head.y + head.ry * 0.6), (neck_x, neck_y + 0.012 * unit)], [0.026 * unit, 0.032 * unit])
    canvas.fill(neck.outline(), clothes.skin, "neck", outline=0)
    canvas.shade(neck.outline(), -0.18)
    _draw_collar(canvas, body, clothes)
    canvas.fill(_skull_outline(head), clothes.skin, "face")
    side = clothes.side
    canvas.shade([head.skull(a, h) for a, h in ((-90 * side, 50), (-90 * side, -40), (-35 * side, -70), (-40 * side, 50))], -0.16)
    _draw_ears(canvas, head, clothes)
    _draw_face(canvas, head, clothes)
    _draw_hair(canvas, body, head, clothes)
    if who.worn and who.worn.kind in ("glasses", "sunglasses"):
        _draw_glasses(canvas, head, who.worn.kind)
    if who.headwear:
        _draw_headwear(canvas, head, clothes)


def draw_over_back(canvas: Canvas, body: Body, clothes: Wardrobe) -> None:
    """Hood, long hair or ponytail upon the back, seen from behind or from the side."""
    who, unit = clothes.who, body.unit
    head = Head(body)
    if who.upper == "hoodie" and body.facing < 0.2:
        x, y = body.joint("neck")
        colour = clothes.paint(who.upper_colour)
        x -= 0.045 * unit * body.heading
        wide = (0.07 if body.facing < -0.5 else 0.045) * unit
        canvas.fill([(x - wide, y - 0.01 * unit), (x + wide, y - 0.01 * unit), (x + wide * 0.75, y + 0.05 * unit),
                     (x, y + 0.088 * unit), (x - wide * 0.75, y + 0.05 * unit)], colour, "upper")  # fmt: skip
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
                [root, (root[0] + sway * 1.3, root[1] + 0.06 * unit), (root[0] + sway * 0.9, root[1] + 0.155 * unit)],
                [0.017 * unit, 0.026 * unit, 0.008 * unit],
            )
            canvas.fill(tail.outline(), colour, "hair style")
            canvas.shade(tail.strip(-0.2, 0.3), 0.15)
            canvas.over(ellipse(*root, 0.014 * unit, 0.014 * unit), darker(colour, 0.4))


def hair_colour(clothes: Wardrobe) -> RGB:
    """This person's shade of the hair colour."""
    reference = HAIR_COLOURS[clothes.who.hair_colour]
    return mix(reference, clothes.paint("brown"), 0.06)


def _skull_outline(head: Head) -> list[Point]:
    jaw = head.x + 0.14 * head.rx * head.heading
    upper = [(head.x + head.rx * float(np.cos(a)), head.y - head.ry * float(np.sin(a))) for a in np.linspace(-0.2, np.pi + 0.2, 16)]
    chin = [(jaw - head.rx * 0.72, head.y + head.ry * 0.62), (jaw - head.rx * 0.34, head.y + head.ry * 0.98),
            (jaw + head.rx * 0.34, head.y + head.ry * 0.98), (jaw + head.rx * 0.72, head.y + head.ry * 0.62)]  # fmt: skip
    return upper + chin


def _draw_ears(canvas: Canvas, head: Head, clothes: Wardrobe) -> None:
    for angle in (-90, 90):
        turned = (angle + head.yaw + 180) % 360 - 180
        if abs(turned) < 100:
            x, y = head.skull(max(-92, min(92, turned)), -4)
            canvas.over(ellipse(x, y, head.rx * 0.16, head.ry * 0.2), darker(clothes.skin, 0.16), "face")


def _draw_face(canvas: Canvas, head: Head, clothes: Wardrobe) -> None:
    skin = clothes.skin
    dark = sum(skin) < 330
    for angle in (-30, 30):
        if eye := head.place(angle, 2):
            canvas.over(ellipse(*eye, head.rx * 0.17, head.ry * 0.085), (240, 238, 234))
            canvas.over(ellipse(*eye, head.rx * 0.10, head.ry * 0.085), (34, 26, 22))
        if brow := head.place(angle, 17):
            canvas.line([(brow[0] - head.rx * 0.2, brow[1]), (brow[0] + head.rx * 0.2, brow[1])], (46, 36, 30), 0.6)
    if mouth := head.place(0, -42):
        canvas.line([(mouth[0] - head.rx * 0.26, mouth[1]), (mouth[0] + head.rx * 0.26, mouth[1])],
                    (96, 44, 40) if dark else (176, 84, 78), 0.8)  # fmt: skip
    if abs(head.heading) > 0.45 and head.facing > -0.35:
        sign = 1 if head.heading > 0 else -1
        edge = head.x + sign * head.rx * (1.0 if abs(head.heading) > 0.9 else 0.82)
        nose = [(edge - sign * head.rx * 0.1, head.y - head.ry * 0.1), (edge + sign * head.rx * 0.2, head.y + head.ry * 0.2),
                (edge - sign * head.rx * 0.1, head.y + head.ry * 0.28)]  # fmt: skip
        canvas.over(nose, skin, "face")
    elif nose_point := head.place(0, -14):
        x, y = nose_point
        canvas.line([(x, y - head.ry * 0.14), (x, y + head.ry * 0.06)], darker(skin, 0.22), 0.7)
    if clothes.who.beard:
        colour = hair_colour(clothes) if clothes.who.hair_colour != "blond" else darker(hair_colour(clothes), 0.12)
        angles = [float(a) for a in np.linspace(-90, 90, 15) if abs((float(a) - head.yaw + 180) % 360 - 180) < 86]
        if len(angles) > 2:
            top = [head.skull(a, _BEARD.at(abs((a - head.yaw + 180) % 360 - 180))) for a in angles]
            jaw = head.x + 0.14 * head.rx * head.heading
            bottom = [(jaw + (head.skull(a, 0)[0] - jaw) * (0.55 + 0.3 * (1 - abs(a) / 90)),
                       head.y + head.ry * (1.06 - 0.3 * abs(np.sin(np.radians(a))))) for a in angles[::-1]]  # fmt: skip
            canvas.over(top + bottom, colour, "beard")
            if mouth:
                canvas.line([(mouth[0] - head.rx * 0.2, mouth[1]), (mouth[0] + head.rx * 0.2, mouth[1])], (150, 74, 70), 0.7)


def _draw_hair(canvas: Canvas, body: Body, head: Head, clothes: Wardrobe) -> None:
    who, colour, side = clothes.who, hair_colour(clothes), clothes.side
    if who.hair == "bald":
        if not who.headwear:
            canvas.shade(ellipse(head.x + side * head.rx * 0.3, head.y - head.ry * 0.6, head.rx * 0.35, head.ry * 0.18), 0.2)
        canvas.fill(ellipse(head.x, head.y - head.ry * 0.85, 0.4, 0.4), clothes.skin, "hair style", outline=0)
        crown = [head.skull(a, 40) for a in (-60, 0, 60)] + [head.skull(0, 80)]
        canvas.over(crown, clothes.skin, "hair style")
        return
    part = "hair style" if who.hair in ("short", "curly") else "hair"
    line = _SHORT if who.hair in ("short", "curly") else _FULL
    grow = {"short": 1.06, "curly": 1.1}.get(who.hair, 1.08)
    if who.hair == "curly" and not who.headwear:
        for a in np.linspace(-95, 95, 9):
            turned = np.radians(float(a))
            x, y = head.x + head.rx * 1.12 * float(np.sin(turned)), head.y - head.ry * (0.22 + 0.86 * float(np.cos(turned)))
            canvas.fill(ellipse(x, y, head.rx * 0.36, head.ry * 0.27, corners=12), colour, part)
    if who.hair == "bun" and head.facing >= -0.4:
        x = head.x - head.rx * 0.75 * head.heading
        y = head.y - head.ry * (1.16 if head.facing > -0.4 else 0.9)
        canvas.fill(ellipse(x, y, head.rx * 0.46, head.ry * 0.34), colour, "hair style")
        canvas.shade(ellipse(x + side * head.rx * 0.1, y - head.ry * 0.08, head.rx * 0.2, head.ry * 0.12), 0.2)
    cap = head.cap(line, grow, 1.07 if who.hair == "short" else 1.02)
    canvas.fill(cap, colour, part)
    bright = [(head.x + side * head.rx * 0.38 + head.rx * 0.3 * dx, head.y - head.ry * 0.74 + head.ry * 0.16 * dy)
              for dx, dy in ((-1, 0), (0, -1), (1, 0), (0, 1))]  # fmt: skip
    canvas.shade(bright, 0.3 if sum(colour) < 200 else 0.16)
    if who.hair == "bun" and head.facing < -0.4:
        canvas.fill(ellipse(head.x, head.y - head.ry * 0.72, head.rx * 0.48, head.ry * 0.36), colour, "hair style", outline=0.7)


def _draw_long_hair(canvas: Canvas, body: Body, clothes: Wardrobe, *, front: bool) -> None:
    unit, colour, head = body.unit, hair_colour(clothes), Head(body)
    back = -head.heading
    middle = head.x + back * head.rx * (0.32 if front or head.facing > -0.5 else 0.1)
    wide = head.rx * (1.32 if abs(head.heading) < 0.8 else 0.86)
    low = head.y + 0.205 * unit
    fall = tube(
        [(middle, head.y - head.ry * 0.75), (middle, head.y - head.ry * 0.35), (middle + back * 0.012 * unit, head.y + 0.08 * unit), (middle + back * 0.02 * unit, low)],
        [wide * 0.2, wide * 0.8, wide, wide * 0.74],
    )
    canvas.fill(fall.outline(), colour, "hair style")
    canvas.shade(fall.strip(-1, -0.6), -0.2)
    for s in (-0.35, 0.1, 0.5):
        canvas.line([fall.at(s, v) for v in (0.3, 0.65, 0.98)], darker(colour, 0.22), 0.5)


def _draw_glasses(canvas: Canvas, head: Head, kind: str) -> None:
    lens = (24, 24, 28) if kind == "sunglasses" else None
    eyes = [eye for angle in (-30, 30) if (eye := head.place(angle, 1))]
    for x, y in eyes:
        rim = ellipse(x, y, head.rx * 0.3, head.ry * (0.17 if lens else 0.16), corners=12)
        if lens:
            canvas.over(rim, lens, "worn")
        else:
            canvas.line([*rim, rim[0]], (26, 24, 26), 0.7, "worn")
    if len(eyes) == 2:
        canvas.line(list(eyes), (26, 24, 26), 0.6, "worn")
    for angle in (-90, 90):
        if (temple := head.place(angle * 0.95, 3)) and (eye := head.place(angle / 3, 2)):
            canvas.line([eye, temple], (26, 24, 26), 0.7, "worn")


def _draw_collar(canvas: Canvas, body: Body, clothes: Wardrobe) -> None:
    who, unit = clothes.who, body.unit
    x, y = body.joint("neck")
    if who.upper in ("coat", "jacket", "shirt"):
        colour = darker(clothes.paint(who.upper_colour), 0.12)
        low = y + 0.014 * unit
        canvas.over([(x - 0.04 * unit, low), (x - 0.036 * unit, y - 0.022 * unit), (x - 0.02 * unit, y),
                     (x + 0.02 * unit, y), (x + 0.036 * unit, y - 0.022 * unit), (x + 0.04 * unit, low)], colour, "upper")  # fmt: skip


def draw_scarf(canvas: Canvas, body: Body, clothes: Wardrobe) -> None:
    """A scarf wound around the neck; its end hangs in front, or behind for those who look at the back."""
    unit, colour = body.unit, clothes.paint(clothes.who.worn.colour if clothes.who.worn else None)
    x, y = body.joint("neck")
    end = x + 0.03 * unit * (1 if body.facing >= 0 else -1) + 0.05 * unit * body.heading
    if body.facing > -0.5:
        tail = tube([(end, y), (end + 0.004 * unit, y + 0.15 * unit)], [0.021 * unit, 0.024 * unit])
        canvas.fill(tail.outline(), colour, "worn")
        canvas.shade(tail.strip(0.2, 1), -0.15)
        canvas.line([tail.at(-0.9, 0.9), tail.at(0.9, 0.9)], darker(colour, 0.3), 0.6)
    loop = ellipse(x, y - 0.006 * unit, 0.058 * unit, 0.031 * unit)
    canvas.fill(loop, colour, "worn")
    canvas.shade(ellipse(x, y - 0.02 * unit, 0.04 * unit, 0.012 * unit), -0.25)
    canvas.line([(x - 0.05 * unit, y + 0.002 * unit), (x, y + 0.016 * unit), (x + 0.05 * unit, y)], darker(colour, 0.2), 0.6)


def _draw_headwear(canvas: Canvas, head: Head, clothes: Wardrobe) -> None:
    worn = clothes.who.headwear
    if worn is None:
        return
    colour, side = clothes.paint(worn.colour), clothes.side
    match worn.kind:
        case "cap":
            canvas.fill(head.cap(HairLine(34, 32, 22, 16, 12, 10), 1.1), colour, "headwear")
            canvas.shade([head.skull(-side * 90, 25, 1.1), head.skull(-side * 90, 60, 1.1), head.skull(-side * 35, 80, 1.1), head.skull(-side * 35, 25, 1.1)], -0.2)
            if head.facing > -0.55:
                reach = head.heading
                x, y = head.x + head.rx * (0.2 + 0.85 * abs(reach)) * reach, head.y - head.ry * 0.5
                flat = 0.2 + 0.14 * max(head.facing, 0)
                canvas.fill(ellipse(x, y, head.rx * (1.0 - 0.2 * abs(reach)), head.ry * flat * 0.8), darker(colour, 0.16), "headwear")
        case "beanie":
            canvas.fill(head.cap(HairLine(26, 24, 12, 2, -6, -8), 1.12, 1.1), colour, "headwear")
            fold = [head.skull(a, 24 - 4, 1.15) for a in np.linspace(-90, 90, 9)]
            upper = [head.skull(a, 42, 1.17) for a in np.linspace(90, -90, 9)]
            canvas.over(fold + upper, darker(colour, 0.14))
            canvas.fill(ellipse(head.x, head.y - head.ry * 1.26, head.rx * 0.32, head.ry * 0.22), lighter(colour, 0.15), "headwear")
        case "hat":
            crown = [head.skull(-90, 28, 1.04), (head.x - head.rx * 0.78, head.y - head.ry * 1.32), (head.x, head.y - head.ry * 1.42),
                     (head.x + head.rx * 0.78, head.y - head.ry * 1.32), head.skull(90, 28, 1.04)]  # fmt: skip
            canvas.fill(crown, colour, "headwear")
            band = [head.skull(-90, 30, 1.05), head.skull(-86, 48, 1.1), head.skull(86, 48, 1.1), head.skull(90, 30, 1.05)]
            canvas.over(band, darker(colour, 0.45) if sum(colour) > 200 else lighter(colour, 0.4))
            canvas.fill(ellipse(head.x, head.y - head.ry * 0.5, head.rx * 1.85, head.ry * 0.24), colour, "headwear")
            canvas.shade(ellipse(head.x - side * head.rx * 0.8, head.y - head.ry * 0.46, head.rx * 0.8, head.ry * 0.12), -0.2)


def draw_side_locks(canvas: Canvas, body: Body, clothes: Wardrobe) -> None:
    """The part of long hair that falls before the shoulders, seen from the front."""
    if clothes.who.hair != "long" or body.facing < 0.3:
        return
    head, colour, unit = Head(body), hair_colour(clothes), body.unit
    for sign in (-1, 1):
        x = head.x + sign * head.rx * 0.98 - 0.1 * head.rx * head.heading
        lock = tube(
            [(x, head.y - head.ry * 0.3), (x + sign * 0.006 * unit, head.y + 0.07 * unit), (x + sign * 0.004 * unit, head.y + 0.165 * unit)],
            [0.012 * unit, 0.019 * unit, 0.007 * unit],
        )
        canvas.fill(lock.outline(), colour, "hair style", outline=0.3)
