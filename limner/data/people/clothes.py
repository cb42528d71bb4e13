"""Garments: trousers, skirts, shoes, tops, sleeves and what is printed on them."""

from typing import Final

import numpy as np

from limner.data.people.attributes import Identity, Thing
from limner.data.people.body import Body, Side
from limner.data.people.canvas import Canvas, ellipse
from limner.data.people.palette import COLOURS, RGB, darker, lighter, mix
from limner.data.people.panel import Panel, hem, paint_pattern, rounded_shading, tube, upright

LONG_SLEEVES: Final = ("sweater", "hoodie", "jacket", "coat")
_DENIM: Final = {"blue": (52, 88, 150), "black": (44, 46, 54), "grey": (122, 126, 132), "white": (228, 230, 232)}
_STRIPE: Final = 0.042


class Wardrobe:
    """The actual shades of one person's colours, and the light that falls on them.

    `side` is where the light comes from: −1 left, 1 right.
    """

    def __init__(self, who: Identity, skin: RGB, shades: dict[str, RGB], side: float) -> None:
        self.who, self.skin, self.shades, self.side = who, skin, shades, side

    def paint(self, name: str | None) -> RGB:
        """This person's shade of a named colour."""
        return self.shades[name or "grey"]

    @property
    def long_sleeves(self) -> bool:
        """Whether the arms are covered to the wrist; half of the dresses and shirts are short-sleeved."""
        if self.who.upper in ("shirt", "dress"):
            return self.who.upper_colour in ("black", "white", "red", "blue", "brown", "beige")
        return self.who.upper in LONG_SLEEVES


def draw_leg(canvas: Canvas, body: Body, clothes: Wardrobe, side: Side) -> None:
    """One leg with its shoe, in trousers, shorts, leggings or bare beneath a skirt."""
    who, unit, limb = clothes.who, body.unit, body.build.limb
    hip, knee, ankle = (body.joint(f"{side} {name}") for name in ("hip", "knee", "ankle"))
    skin = tube([hip, knee, ankle], [0.046 * limb * unit, 0.032 * limb * unit, 0.021 * unit])
    lower = who.lower
    if lower in (None, "shorts", "skirt", "long skirt"):
        canvas.fill(skin.outline(), clothes.skin, "legs")
        rounded_shading(canvas, skin, clothes.side, 0.16)
    _draw_shoe(canvas, body, clothes, side)
    if lower is None or lower in ("skirt", "long skirt"):
        return
    colour = clothes.paint(who.lower_colour)
    if lower == "jeans":
        colour = mix(_DENIM[who.lower_colour or "blue"], colour, 0.2)
    low = (ankle[0], ankle[1] + 0.012 * unit)
    widths = {
        "jeans": (0.058, 0.043, 0.034),
        "trousers": (0.062, 0.050, 0.046),
        "leggings": (0.052, 0.034, 0.024),
        "shorts": (0.064, 0.060, 0.060),
    }[lower]
    end = (knee[0] * 0.9 + hip[0] * 0.1, knee[1] * 0.9 + hip[1] * 0.1) if lower == "shorts" else low
    middle = knee if lower != "shorts" else ((hip[0] + end[0]) / 2, (hip[1] + end[1]) / 2)
    leg = tube([hip, middle, end], [width * limb * unit for width in widths])
    canvas.fill(leg.outline(), colour, "lower")
    rounded_shading(canvas, leg, clothes.side, 0.24)
    match lower:
        case "jeans":
            seam = lighter(colour, 0.3) if who.lower_colour != "white" else darker(colour, 0.2)
            canvas.line([leg.at(0.72, v) for v in np.linspace(0.05, 0.95, 8)], seam, 0.4)
            canvas.over(leg.band(0.965, 1.0), lighter(colour, 0.22))
            canvas.shade(leg.strip(-0.5, 0.5, 0.2, 0.62), 0.12)
        case "trousers":
            canvas.line([leg.at(0.05, v) for v in np.linspace(0.12, 0.98, 6)], darker(colour, 0.25), 0.4)
        case "shorts":
            hem(canvas, leg, darker(colour, 0.3), 0.95)


def _draw_shoe(canvas: Canvas, body: Body, clothes: Wardrobe, side: Side) -> None:
    who, unit = clothes.who, body.unit
    colour = clothes.paint(who.shoes_colour)
    ankle, toe = body.joint(f"{side} ankle"), body.joint(f"{side} toe")
    wide = 0.031 * unit
    heel = (ankle[0] - 0.28 * (toe[0] - ankle[0]), ankle[1] + 0.030 * unit - 0.28 * (toe[1] - ankle[1] - 0.02 * unit))
    tip = (toe[0], max(toe[1], ankle[1] + 0.022 * unit))
    top = (ankle[0], ankle[1] - 0.004 * unit)
    # From the front a foot is short: its outline is the hull of heel, ankle and toe discs.
    outline = _hull([(*heel, wide * 0.75), (*top, wide * 0.85), (*tip, wide * 0.82)])
    if who.shoes == "sandals":
        canvas.fill(outline, clothes.skin, "legs")
        strap = mix(colour, colour, 0)
        for share in (0.25, 0.7):
            x, y = top[0] + share * (tip[0] - top[0]), top[1] + share * (tip[1] - top[1])
            canvas.line([(x - wide, y - 0.002 * unit), (x + wide, y + 0.006 * unit)], strap, 0.016 * unit, "shoes")
        sole = _hull([(heel[0], heel[1] + wide * 0.6, wide * 0.35), (tip[0], tip[1] + wide * 0.6, wide * 0.35)])
        canvas.over(sole, colour, "shoes")
        return
    if who.shoes == "boots":
        knee = body.joint(f"{side} knee")
        up = (ankle[0] + 0.42 * (knee[0] - ankle[0]), ankle[1] + 0.42 * (knee[1] - ankle[1]))
        shaft = tube([up, top, (top[0], top[1] + wide * 0.6)], [0.036 * unit, 0.031 * unit, 0.031 * unit])
        canvas.fill(outline, colour, "shoes")
        canvas.fill(shaft.outline(), colour, "shoes")
        rounded_shading(canvas, shaft, clothes.side, 0.22)
        hem(canvas, shaft, darker(colour, 0.35), 0.06, 1.0)
    else:
        canvas.fill(outline, colour, "shoes")
    sole_colour = (236, 236, 232) if who.shoes == "sneakers" and who.shoes_colour != "white" else darker(colour, 0.6)
    if who.shoes == "sneakers" and who.shoes_colour == "white":
        sole_colour = (188, 190, 194)
    thick = 0.34 if who.shoes == "sneakers" else 0.2
    drop = wide * 0.62
    sole = _hull([(heel[0], heel[1] + drop, wide * thick), (tip[0], tip[1] + drop, wide * thick)])
    canvas.over(sole, sole_colour)
    if who.shoes == "sneakers" and body.facing > -0.5:
        x, y = (top[0] + tip[0]) / 2, (top[1] + tip[1]) / 2 - 0.002 * unit
        canvas.line([(x - wide * 0.4, y), (x + wide * 0.4, y)], sole_colour, 0.7)


def draw_lower(canvas: Canvas, body: Body, clothes: Wardrobe) -> None:
    """What covers the hips: the seat of trousers, or a skirt."""
    who, unit = clothes.who, body.unit
    if who.lower is None:
        return
    colour = clothes.paint(who.lower_colour)
    if who.lower == "jeans":
        colour = mix(_DENIM[who.lower_colour or "blue"], colour, 0.2)
    if who.lower in ("skirt", "long skirt"):
        skirt = skirt_panel(body, 0.14 if who.lower == "long skirt" else 0.31)
        draw_skirt(canvas, skirt, colour, clothes, "lower")
        return
    (x, waist), (_, hips), (_, crotch) = body.joint("waist"), body.joint("hips"), body.joint("crotch")
    wide, build = body.half_width(body.build.hips, body.build.hips_deep), body.build
    seat = upright(
        [
            (waist, x, body.half_width(build.waist, build.hips_deep * 0.86)),
            (hips, x, wide * 1.04),
            (crotch, x, wide * 0.98),
            (crotch + 0.02 * unit, x, wide * 0.7),
        ],
        body.pose.yaw,
    )
    canvas.fill(seat.outline(), colour, "lower", outline=0)
    rounded_shading(canvas, seat, clothes.side, 0.22)


def skirt_panel(body: Body, low: float) -> Panel:
    """A skirt from the waist to the height `low` of the body; it widens with the stride."""
    unit, build = body.unit, body.build
    (x, waist), (_, hips) = body.joint("waist"), body.joint("hips")
    ground = body.pose.ground
    knees = [body.joint(f"{side} knee")[0] for side in ("left", "right")]
    flare = 0.128 if low > 0.2 else 0.12
    left = min(*knees, x) - 0.05 * unit
    right = max(*knees, x) + 0.05 * unit
    half = max((right - left) / 2, flare * unit)
    end = ground - low * unit
    wide = body.half_width(build.hips, build.hips_deep)
    return upright(
        [
            (waist, x, body.half_width(build.waist, build.hips_deep * 0.86)),
            (hips, x, wide * 1.1),
            ((hips + end) / 2, (x * 3 + (left + right) / 2) / 4, (wide * 1.1 + half) / 2),
            (end, (x + (left + right) / 2) / 2, half),
        ],
        body.pose.yaw,
    )


def draw_skirt(canvas: Canvas, skirt: Panel, colour: RGB, clothes: Wardrobe, part: str) -> None:
    """A skirt with folds."""
    canvas.fill(skirt.outline(), colour, part)
    rounded_shading(canvas, skirt, clothes.side, 0.2)
    for s in (-0.62, -0.2, 0.25, 0.66):
        canvas.shade(skirt.strip(s - 0.07, s + 0.05, 0.3, 1.0), -0.2)


def draw_sleeve(canvas: Canvas, body: Body, clothes: Wardrobe, side: Side) -> None:
    """One arm: skin, hand and sleeve."""
    who, unit, limb = clothes.who, body.unit, body.build.limb
    shoulder, elbow, hand = (body.joint(f"{side} {name}") for name in ("shoulder", "elbow", "hand"))
    arm = tube([shoulder, elbow, hand], [0.034 * limb * unit, 0.027 * limb * unit, 0.019 * unit])
    canvas.fill(ellipse(hand[0], hand[1] + 0.008 * unit, 0.021 * unit, 0.026 * unit), clothes.skin, "arms")
    if not clothes.long_sleeves:
        canvas.fill(arm.outline(), clothes.skin, "arms")
        rounded_shading(canvas, arm, clothes.side, 0.16)
    if who.upper == "tank top":
        return
    colour = clothes.paint(who.upper_colour)
    part = "upper"
    if who.pattern and who.pattern.kind == "sleeves":
        colour, part = clothes.paint(who.pattern.colour), "pattern"
    loose = {"coat": 1.3, "jacket": 1.24, "hoodie": 1.26, "sweater": 1.16}.get(who.upper, 1.14)
    if clothes.long_sleeves:
        radii = [0.037 * limb * loose, 0.031 * limb * loose, 0.024 * loose]
        sleeve = tube([shoulder, elbow, hand], [radius * unit for radius in radii])
        sleeve = Panel(sleeve.centre, sleeve.half)
    else:
        end = (shoulder[0] + 0.72 * (elbow[0] - shoulder[0]), shoulder[1] + 0.72 * (elbow[1] - shoulder[1]))
        sleeve = tube([shoulder, end], [0.040 * limb * unit, 0.043 * limb * unit])
    canvas.fill(ellipse(*shoulder, 0.04 * limb * unit, 0.038 * unit), colour, part, outline=0)
    canvas.fill(sleeve.outline(), colour, part)
    rounded_shading(canvas, sleeve, clothes.side, 0.24)
    if who.pattern and who.pattern.kind in ("stripes", "checks", "dots"):
        paint_pattern(
            canvas, sleeve, who.pattern, clothes.paint(who.pattern.colour), _STRIPE * unit, "pattern"
        )
    if who.upper in ("sweater", "hoodie", "jacket") and clothes.long_sleeves:
        canvas.over(sleeve.band(0.93, 1.0), darker(colour, 0.16))
    elif not clothes.long_sleeves:
        hem(canvas, sleeve, darker(colour, 0.25), 0.93)


def trunk_panel(body: Body, clothes: Wardrobe) -> Panel:
    """The outline of the garment on the trunk, from the shoulders to its hem."""
    who, unit, build, pose = clothes.who, body.unit, body.build, body.pose
    (x, neck), (_, chest), (_, waist), (_, hips) = (body.joint(n) for n in ("neck", "chest", "waist", "hips"))
    loose = {"coat": 1.12, "jacket": 1.1, "hoodie": 1.12, "sweater": 1.05, "tank top": 0.97}.get(who.upper, 1.02)
    shoulders = body.half_width(build.shoulders * (0.8 if who.upper == "tank top" else 0.98), build.chest_deep * 0.8)
    chest_half = body.half_width(build.shoulders * 0.88, build.chest_deep) * loose
    waist_half = body.half_width(build.waist, build.hips_deep * 0.84) * loose
    hips_half = body.half_width(build.hips, build.hips_deep) * loose
    rows = [
        (neck + 0.004 * unit, x, 0.036 * unit),
        (neck + 0.022 * unit, x, shoulders * 0.74),
        (neck + 0.05 * unit, x, shoulders),
        (chest, x, chest_half),
        (waist, x, waist_half),
    ]
    if who.upper == "coat":
        low = pose.ground - 0.29 * unit
        flare = max(0.118 * unit, hips_half * 1.12)
        rows += [(hips, x, hips_half * 1.06), (low, x, flare)]
    elif who.upper == "dress":
        skirt = skirt_panel(body, 0.30)
        rows += [(hips, x, hips_half * 1.08), (float(skirt.centre[-1, 1]), float(skirt.centre[-1, 0]), float(skirt.half[-1, 0]))]
    else:
        low = hips + (0.012 if who.upper in ("shirt", "hoodie", "jacket") else -0.006) * unit
        rows.append((low, x, hips_half * 1.04))
    return upright(rows, pose.yaw)


def draw_trunk(canvas: Canvas, body: Body, clothes: Wardrobe) -> Panel:
    """The garment on the trunk with its pattern; returns its panel for what is worn upon it."""
    who, unit = clothes.who, body.unit
    trunk = trunk_panel(body, clothes)
    colour = clothes.paint(who.upper_colour)
    canvas.fill(trunk.outline(), colour, "upper")
    rounded_shading(canvas, trunk, clothes.side, 0.26)
    if who.upper in ("dress", "coat"):
        for s in (-0.5, 0.05, 0.5):
            canvas.shade(trunk.strip(s - 0.06, s + 0.04, 0.62, 1.0), -0.17)
    else:
        canvas.shade(trunk.strip(-0.8, 0.1, 0.70, 0.76), -0.12)
    if who.pattern:
        _draw_print(canvas, body, trunk, who.pattern, clothes)
    _draw_front(canvas, trunk, clothes, unit)
    if who.upper in ("sweater", "hoodie", "jacket"):
        canvas.over(trunk.band(0.955, 1.0), darker(colour, 0.18))
    return trunk


def _draw_print(canvas: Canvas, body: Body, trunk: Panel, pattern: Thing, clothes: Wardrobe) -> None:
    second, unit = clothes.paint(pattern.colour), body.unit
    match pattern.kind:
        case "stripes" | "checks" | "dots":
            paint_pattern(canvas, trunk, pattern, second, _STRIPE * unit, "pattern")
        case "bottom half":
            canvas.over(trunk.band(0.56, 1.0, 0.01), second, "pattern")
        case "logo":
            centre = trunk.place(0, 0.40)
            sides = trunk.sides(-32, 32)
            if centre is not None and sides is not None and body.facing > 0.3:
                wide = max(1.5, (trunk.at(sides[1], 0.4)[0] - trunk.at(sides[0], 0.4)[0]) / 2)
                canvas.over(ellipse(*centre, wide, 0.05 * unit), second, "pattern")
                canvas.over(ellipse(*centre, wide * 0.45, 0.022 * unit), clothes.paint(clothes.who.upper_colour))


def _draw_front(canvas: Canvas, trunk: Panel, clothes: Wardrobe, unit: float) -> None:
    """Neckline, collar, buttons, zip, pocket: what tells the kinds of tops apart."""
    who = clothes.who
    colour = clothes.paint(who.upper_colour)
    seam = darker(colour, 0.4) if sum(colour) > 150 else lighter(colour, 0.3)
    collar = darker(colour, 0.22) if sum(colour) > 150 else lighter(colour, 0.16)
    match who.upper:
        case "t-shirt" | "dress" | "tank top":
            deep = 0.10 if who.upper != "tank top" else 0.15
            neckline = trunk.around(-30, 30, 0.0, deep)
            canvas.over(neckline, clothes.skin, "neck")
            if who.upper == "tank top":
                canvas.over(trunk.around(150, 210, 0.0, 0.1), clothes.skin, "neck")
            if who.upper == "dress":
                canvas.over(trunk.band(0.50, 0.525), seam)
        case "sweater":
            canvas.over(trunk.band(0.0, 0.09), collar)
        case "hoodie":
            pocket = trunk.around(-38, 38, 0.66, 0.88)
            canvas.over(pocket, collar)
            for angle in (-9, 9):
                string = [point for v in (0.1, 0.34) if (point := trunk.place(angle, v))]
                canvas.line(string, (238, 238, 232) if sum(colour) < 600 else (90, 90, 96), 0.7)
        case "shirt":
            canvas.over(trunk.around(-42, -3, 0.0, 0.14), lighter(colour, 0.25))
            canvas.over(trunk.around(3, 42, 0.0, 0.14), lighter(colour, 0.25))
            canvas.over(trunk.around(-9, 9, 0.0, 0.11), clothes.skin, "neck")
            canvas.line([point for v in (0.14, 0.98) if (point := trunk.place(0, v))], seam, 0.5)
            for v in np.linspace(0.2, 0.9, 6):
                if (button := trunk.place(2, float(v))) is not None:
                    canvas.over(ellipse(*button, 0.005 * unit, 0.005 * unit, corners=6), seam)
        case "jacket" | "coat":
            if who.inner:
                canvas.over(trunk.around(-24, 24, 0.0, 1.0), clothes.paint(who.inner), "inner")
                canvas.shade(trunk.around(-30, -22, 0.0, 1.0), -0.2)
                canvas.over(trunk.around(-16, 16, 0.0, 0.07), clothes.skin, "neck")
                canvas.over(trunk.around(-46, -22, 0.0, 0.3), collar)
                canvas.over(trunk.around(22, 46, 0.0, 0.3), collar)
            else:
                canvas.over(trunk.around(-46, 46, 0.0, 0.1), collar)
                canvas.line([point for v in (0.1, 0.99) if (point := trunk.place(0, v))], seam, 0.9)
            if who.upper == "coat":
                for v in (0.34, 0.46, 0.58):
                    for angle in (-34, 34):
                        if (button := trunk.place(angle, v)) is not None:
                            canvas.over(ellipse(*button, 0.008 * unit, 0.008 * unit, corners=8), seam)
            else:
                for angle in (-60, 60):
                    sides = trunk.sides(angle - 12, angle + 12)
                    if sides is not None:
                        canvas.line([trunk.at(s, 0.72) for s in sides], seam, 0.6)
            canvas.over(trunk.around(130, 230, 0.0, 0.08), collar)


def _hull(discs: list[tuple[float, float, float]]) -> list[tuple[float, float]]:
    """Outline around discs (x, y, radius): their convex hull."""
    points = sorted(
        {(round(x + dx, 3), round(y + dy, 3)) for x, y, r in discs for dx, dy in ellipse(0, 0, r, r, corners=12)}
    )

    def half(ordered: list[tuple[float, float]]) -> list[tuple[float, float]]:
        kept: list[tuple[float, float]] = []
        for point in ordered:
            while len(kept) >= 2 and _turn(kept[-2], kept[-1], point) <= 0:
                kept.pop()
            kept.append(point)
        return kept[:-1]

    return half(points) + half(points[::-1])


def _turn(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def shades_for(rng: np.random.Generator) -> dict[str, RGB]:
    """One person's own shade of every colour."""
    from limner.data.people.palette import shade_of

    return {name: shade_of(reference, rng) for name, reference in COLOURS.items()}
