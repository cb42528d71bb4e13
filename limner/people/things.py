"""Bags and what hands hold."""

import numpy as np

from limner.people.body import Body, Side
from limner.people.canvas import Canvas, box, ellipse, rounded
from limner.people.palette import RGB, Wardrobe, darker, lighter, mix
from limner.people.panel import Panel, tube


def draw_backpack(canvas: Canvas, body: Body, colour: RGB, side: float) -> None:
    """The sack of a backpack; from the front it shows only at the sides of the trunk."""
    unit = body.unit
    x, _ = body.spot(0.0, 0.0, -body.build.chest_deep - 0.045)
    (_, neck), (_, waist) = body.joint("neck"), body.joint("waist")
    half = body.half_width(0.098, 0.058)
    top, low = neck + 0.03 * unit, waist + 0.045 * unit
    canvas.fill(rounded(x - half, top, x + half, low, 0.045 * unit), colour, "bag")
    canvas.shade(box(x - side * half, top, x - side * half * 0.55, low), -0.22)
    if body.facing < -0.4:
        canvas.over(
            rounded(
                x - half * 0.72,
                (top + low) / 2 + 0.01 * unit,
                x + half * 0.72,
                low - 0.012 * unit,
                0.02 * unit,
            ),
            darker(colour, 0.2) if sum(colour) > 150 else lighter(colour, 0.18),
        )
        line = darker(colour, 0.45) if sum(colour) > 150 else lighter(colour, 0.35)
        canvas.line(
            [
                (x - half * 0.85, top + 0.055 * unit),
                (x, top + 0.035 * unit),
                (x + half * 0.85, top + 0.055 * unit),
            ],
            line,
            0.7,
        )
        canvas.line([(x - 0.015 * unit, top), (x, top - 0.018 * unit), (x + 0.015 * unit, top)], line, 0.9)


def draw_straps(canvas: Canvas, trunk: Panel, colour: RGB, unit: float) -> None:
    """The two straps of a backpack, over the front of the shoulders."""
    end = min(0.6, 0.27 * unit / trunk.length)
    for angle in (-38.0, 38.0):
        canvas.over(trunk.around(angle - 8, angle + 8, 0.02, end), colour, "bag")
        sides = trunk.sides(angle - 8, angle + 8)
        if sides is not None:
            for s in sides:
                canvas.line([trunk.at(s, v) for v in (0.03, end)], darker(colour, 0.4), 0.4)


def draw_cross_strap(canvas: Canvas, trunk: Panel, colour: RGB, unit: float, sign: int) -> None:
    """The strap of a shoulder bag: across chest and back to the hip on the side `sign` (1 left)."""
    end = min(0.95, 0.30 * unit / trunk.length)
    for first, last in ((-34 * sign, 84 * sign), (180 + 34 * sign, 180 - 84 * sign)):
        run = [
            point
            for share in np.linspace(0, 1, 9)
            if (
                point := trunk.place(
                    first + (last - first) * float(share), 0.03 + (end - 0.03) * float(share)
                )
            )
        ]
        canvas.line(run, darker(colour, 0.12), 0.017 * unit, "bag")


def draw_hip_bag(canvas: Canvas, body: Body, colour: RGB, sign: int) -> None:
    """The bag of a shoulder bag, at the hip on the side `sign` (1 left)."""
    unit = body.unit
    x, y = body.spot(sign * (body.build.hips + 0.012), 0.54, -0.01)
    half = body.half_width(0.036, 0.075)
    canvas.fill(rounded(x - half, y - 0.035 * unit, x + half, y + 0.075 * unit, 0.02 * unit), colour, "bag")
    canvas.over(
        rounded(x - half, y - 0.035 * unit, x + half, y + 0.018 * unit, 0.02 * unit), darker(colour, 0.24)
    )
    canvas.over(ellipse(x, y + 0.014 * unit, 0.008 * unit, 0.008 * unit, corners=8), (222, 204, 120))


def draw_tote(canvas: Canvas, body: Body, colour: RGB, sign: int) -> None:
    """A big soft bag that hangs from the shoulder under the arm."""
    unit = body.unit
    x, y = body.spot(sign * (body.build.shoulders + 0.025), 0.60, 0.02)
    sx, sy = body.spot(sign * body.build.shoulders * 0.82, 0.815, 0.0)
    half = body.half_width(0.04, 0.075)
    for s in (-0.5, 0.5):
        canvas.line(
            [(sx + s * 0.02 * unit, sy), (x + s * half * 1.2, y)], darker(colour, 0.3), 0.013 * unit, "bag"
        )
    low = y + 0.145 * unit
    canvas.fill([(x - half, y), (x + half, y), (x + half * 1.18, low), (x - half * 1.18, low)], colour, "bag")
    canvas.shade([(x, y), (x + half, y), (x + half * 1.18, low), (x + half * 0.3, low)], -0.16)
    canvas.line([(x - half, y + 0.012 * unit), (x + half, y + 0.012 * unit)], darker(colour, 0.25), 0.6)


def draw_in_hand(canvas: Canvas, body: Body, clothes: Wardrobe, side: Side, kind: str, colour: RGB) -> None:
    """A thing in the hand of the arm on `side`; bags are of the part "bag", other things "carried"."""
    x, y = body.joint(f"{side} hand")
    y += 0.012 * body.unit
    unit = body.unit
    match kind:
        case "handbag":
            half, top = body.half_width(0.040, 0.068), y + 0.055 * unit
            arch = [
                (x - half * 0.6, top),
                (x - half * 0.45, y + 0.01 * unit),
                (x + half * 0.45, y + 0.01 * unit),
                (x + half * 0.6, top),
            ]
            canvas.line(arch, darker(colour, 0.3), 0.012 * unit, "bag")
            canvas.fill(
                [
                    (x - half, top),
                    (x + half, top),
                    (x + half * 1.2, top + 0.095 * unit),
                    (x - half * 1.2, top + 0.095 * unit),
                ],
                colour,
                "bag",
            )
            canvas.line(
                [(x - half, top + 0.028 * unit), (x + half, top + 0.028 * unit)], darker(colour, 0.35), 0.6
            )
            canvas.over(
                ellipse(x, top + 0.034 * unit, 0.009 * unit, 0.009 * unit, corners=8), (222, 204, 120)
            )
        case "plastic bag":
            half, top = 0.05 * unit, y + 0.03 * unit
            for s in (-1.0, 1.0):
                canvas.line(
                    [(x, y), (x + s * half * 0.6, top + 0.02 * unit)],
                    lighter(colour, 0.2),
                    0.016 * unit,
                    "bag",
                )
            sack = [
                (x - half * 0.55, top),
                (x + half * 0.55, top),
                (x + half, top + 0.06 * unit),
                (x + half * 0.92, top + 0.13 * unit),
                (x, top + 0.145 * unit),
                (x - half * 0.92, top + 0.13 * unit),
                (x - half, top + 0.06 * unit),
            ]
            canvas.fill(sack, mix(colour, (245, 245, 245), 0.1), "bag", outline=0.4)
            for s in (-0.4, 0.1, 0.5):
                canvas.line(
                    [(x + s * half * 0.6, top + 0.01 * unit), (x + s * half * 1.4, top + 0.1 * unit)],
                    lighter(colour, 0.35),
                    0.5,
                )
        case "suitcase":
            ground = max(body.pose.ground, y + 0.2 * unit)
            half, top = body.half_width(0.085, 0.055), ground - 0.29 * unit
            centre = x - 0.02 * unit * body.heading
            for s in (-0.45, 0.45):
                canvas.line([(x + s * half * 0.8, y), (centre + s * half, top)], (92, 94, 98), 0.008 * unit)
            canvas.line([(x - half * 0.4, y), (x + half * 0.4, y)], (60, 60, 64), 0.016 * unit)
            low = ground - 0.018 * unit
            for s in (-0.7, 0.7):
                canvas.fill(
                    ellipse(centre + s * half, low + 0.006 * unit, 0.013 * unit, 0.013 * unit, corners=10),
                    (34, 34, 36),
                )
            canvas.fill(rounded(centre - half, top, centre + half, low, 0.02 * unit), colour, "bag")
            for s in (-0.55, -0.18, 0.18, 0.55):
                canvas.line(
                    [(centre + s * half, top + 0.03 * unit), (centre + s * half, low - 0.03 * unit)],
                    darker(colour, 0.25),
                    0.7,
                )
        case "phone":
            canvas.fill(
                rounded(x - 0.014 * unit, y - 0.052 * unit, x + 0.014 * unit, y + 0.006 * unit, 0.005 * unit),
                (32, 34, 40),
                "carried",
            )
            canvas.over(
                box(x - 0.010 * unit, y - 0.046 * unit, x + 0.010 * unit, y - 0.002 * unit),
                (150, 190, 220),
                "carried",
            )
        case "bottle":
            canvas.fill(
                rounded(x - 0.015 * unit, y - 0.075 * unit, x + 0.015 * unit, y + 0.02 * unit, 0.01 * unit),
                (168, 214, 230),
                "carried",
            )
            canvas.over(
                box(x - 0.015 * unit, y - 0.045 * unit, x + 0.015 * unit, y - 0.02 * unit),
                (72, 132, 190),
                "carried",
            )
            canvas.fill(
                box(x - 0.008 * unit, y - 0.092 * unit, x + 0.008 * unit, y - 0.073 * unit),
                (40, 90, 160),
                "carried",
            )
        case "coffee cup":
            top = y - 0.055 * unit
            canvas.fill(
                [
                    (x - 0.019 * unit, top),
                    (x + 0.019 * unit, top),
                    (x + 0.014 * unit, y + 0.015 * unit),
                    (x - 0.014 * unit, y + 0.015 * unit),
                ],
                (240, 238, 232),
                "carried",
            )
            canvas.over(
                box(x - 0.017 * unit, top + 0.02 * unit, x + 0.017 * unit, top + 0.045 * unit),
                (150, 104, 62),
                "carried",
            )
            canvas.fill(
                box(x - 0.021 * unit, top - 0.009 * unit, x + 0.021 * unit, top + 0.003 * unit),
                (70, 46, 34),
                "carried",
            )
        case "book":
            half = body.half_width(0.042, 0.03)
            canvas.fill(box(x - half, y - 0.085 * unit, x + half, y + 0.018 * unit), colour, "carried")
            canvas.over(
                box(x - half * 0.82, y - 0.013 * unit + 0.022 * unit, x + half * 0.95, y + 0.017 * unit),
                (244, 240, 226),
                "carried",
            )
            canvas.line(
                [(x - half * 0.6, y - 0.055 * unit), (x + half * 0.6, y - 0.055 * unit)],
                lighter(colour, 0.6) if sum(colour) < 500 else darker(colour, 0.5),
                0.9,
            )
    if kind not in ("handbag", "plastic bag", "suitcase"):
        canvas.fill(ellipse(x, y, 0.018 * unit, 0.019 * unit), clothes.skin, "arms", outline=0.3)


def draw_umbrella(canvas: Canvas, body: Body, side: Side, colour: RGB) -> None:
    """An open umbrella above the head."""
    unit = body.unit
    x, y = body.joint(f"{side} hand")
    head_x, head_y = body.joint("head")
    top_x = x * 0.3 + head_x * 0.7
    rim, top = head_y - 0.075 * unit, head_y - 0.235 * unit
    canvas.line(
        [(x, y + 0.05 * unit), (x * 0.8 + top_x * 0.2, rim), (top_x, top - 0.03 * unit)],
        (64, 62, 66),
        0.012 * unit,
    )
    wide = 0.215 * unit
    dome = [
        (top_x + wide * float(np.cos(a)), rim - (rim - top) * float(np.sin(a)))
        for a in np.linspace(np.pi, 0, 17)
    ]
    edge: list[tuple[float, float]] = []
    for rib in range(5):
        right = top_x + wide * (1 - 0.4 * rib)
        left = right - 0.4 * wide
        edge += [((right + left) / 2, rim - 0.022 * unit), (left, rim)]
    canvas.fill([*dome, *edge], colour, "carried")
    for s in (-0.6, -0.2, 0.2, 0.6):
        bow = [(top_x, top), (top_x + s * wide * 0.72, top + (rim - top) * 0.36), (top_x + s * wide, rim)]
        canvas.line(bow, darker(colour, 0.3) if sum(colour) > 150 else lighter(colour, 0.25), 0.6)
    canvas.shade([(top_x, top), *dome[9:], (top_x + wide * 0.2, rim)], -0.14)


def draw_dog(canvas: Canvas, body: Body, side: Side, colour: RGB) -> None:
    """A dog on a lead, on the ground beside its owner."""
    unit, ground = body.unit, body.pose.ground
    hand_x, hand_y = body.joint(f"{side} hand")
    away = 1 if hand_x >= body.pose.x else -1
    look = 1 if body.heading > 0.2 else -1 if body.heading < -0.2 else away
    x, y = hand_x + away * 0.085 * unit, ground - 0.125 * unit

    def spot(dx: float, dy: float) -> tuple[float, float]:
        return x + look * dx * unit, y + dy * unit

    leash = (190, 40, 44) if sum(colour) < 250 else (60, 70, 120)
    canvas.line(
        [
            (hand_x, hand_y),
            ((hand_x + spot(0.075, -0.03)[0]) / 2, (hand_y + y) / 2 + 0.03 * unit),
            spot(0.075, -0.03),
        ],
        leash,
        0.8,
    )
    dark = darker(colour, 0.25)
    for dx, shade in ((-0.062, dark), (0.058, dark), (-0.078, colour), (0.072, colour)):
        leg = tube([spot(dx, 0.01), spot(dx + 0.004, 0.118)], [0.016 * unit, 0.012 * unit])
        canvas.fill(leg.outline(), shade, "carried")
    tail = tube(
        [spot(-0.09, -0.02), spot(-0.125, -0.06), spot(-0.12, -0.095)],
        [0.012 * unit, 0.010 * unit, 0.005 * unit],
    )
    canvas.fill(tail.outline(), colour, "carried")
    canvas.fill(ellipse(*spot(0.0, 0.0), 0.105 * unit, 0.042 * unit), colour, "carried")
    canvas.shade(ellipse(*spot(0.0, 0.024), 0.09 * unit, 0.018 * unit), -0.2)
    neck = tube([spot(0.075, -0.01), spot(0.112, -0.07)], [0.03 * unit, 0.024 * unit])
    canvas.fill(neck.outline(), colour, "carried", outline=0.3)
    canvas.fill(ellipse(*spot(0.118, -0.078), 0.036 * unit, 0.031 * unit), colour, "carried")
    canvas.fill(ellipse(*spot(0.152, -0.066), 0.022 * unit, 0.016 * unit), colour, "carried", outline=0.3)
    canvas.over(ellipse(*spot(0.172, -0.07), 0.006 * unit, 0.006 * unit, corners=8), (20, 20, 22))
    canvas.over(
        ellipse(*spot(0.124, -0.086), 0.005 * unit, 0.005 * unit, corners=8),
        (16, 16, 18) if sum(colour) > 200 else (220, 200, 160),
    )
    canvas.fill([spot(0.092, -0.1), spot(0.086, -0.05), spot(0.104, -0.066)], dark, "carried", outline=0.3)
    canvas.line([spot(0.078, -0.048), spot(0.104, -0.038)], leash, 0.9)
