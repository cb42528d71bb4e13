"""The upper half: the garment on the trunk, its pattern and front, and the sleeves."""

from typing import Final

import numpy as np

from limner.people.attributes import Thing
from limner.people.body import Body, Side
from limner.people.canvas import Canvas, ellipse
from limner.people.legs import skirt_panel
from limner.people.palette import Wardrobe, darker, lighter
from limner.people.panel import Panel, hem, paint_pattern, rounded_shading, tube, upright

_STRIPE: Final = 0.042


def draw_sleeve(canvas: Canvas, body: Body, clothes: Wardrobe, side: Side) -> None:
    """One arm: skin, hand and sleeve."""
    who, unit, limb = clothes.who, body.unit, body.build.limb
    shoulder, elbow, hand = (body.joint(f"{side} {name}") for name in ("shoulder", "elbow", "hand"))
    neck = body.joint("neck")
    inner = (shoulder[0] + 0.16 * (neck[0] - shoulder[0]), shoulder[1] + 0.16 * (neck[1] - shoulder[1]))
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
        radii = [0.030 * limb, 0.034 * limb * loose, 0.029 * limb * loose, 0.023 * loose]
        start = (shoulder[0] + 0.12 * (elbow[0] - shoulder[0]), shoulder[1] + 0.12 * (elbow[1] - shoulder[1]))
        sleeve = tube([inner, start, elbow, hand], [radius * unit for radius in radii])
    else:
        end = (shoulder[0] + 0.72 * (elbow[0] - shoulder[0]), shoulder[1] + 0.72 * (elbow[1] - shoulder[1]))
        sleeve = tube([inner, shoulder, end], [0.031 * limb * unit, 0.037 * limb * unit, 0.041 * limb * unit])
    canvas.fill(ellipse(*inner, 0.030 * limb * unit, 0.022 * unit), colour, part, outline=0.0)
    canvas.fill(sleeve.outline(), colour, part, outline=0.35)
    canvas.over(ellipse(*inner, 0.026 * limb * unit, 0.019 * unit), colour)
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
    loose = {"coat": 1.12, "jacket": 1.1, "hoodie": 1.12, "sweater": 1.05, "tank top": 0.97}.get(
        who.upper, 1.02
    )
    shoulders = body.half_width(
        build.shoulders * (0.8 if who.upper == "tank top" else 0.98), build.chest_deep * 0.8
    )
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
        rows += [
            (hips, x, hips_half * 1.08),
            (float(skirt.centre[-1, 1]), float(skirt.centre[-1, 0]), float(skirt.half[-1, 0])),
        ]
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
            centre = trunk.place(0.0, 0.40)
            sides = trunk.sides(-32.0, 32.0)
            if centre is not None and sides is not None and body.facing > 0.3:
                wide = max(1.5, (trunk.at(sides[1], 0.4)[0] - trunk.at(sides[0], 0.4)[0]) / 2)
                canvas.over(ellipse(*centre, wide, 0.05 * unit), second, "pattern")
                canvas.over(
                    ellipse(*centre, wide * 0.45, 0.022 * unit), clothes.paint(clothes.who.upper_colour)
                )


def _draw_front(canvas: Canvas, trunk: Panel, clothes: Wardrobe, unit: float) -> None:
    """Neckline, collar, buttons, zip, pocket: what tells the kinds of tops apart."""
    who = clothes.who
    colour = clothes.paint(who.upper_colour)
    seam = darker(colour, 0.4) if sum(colour) > 150 else lighter(colour, 0.3)
    collar = darker(colour, 0.22) if sum(colour) > 150 else lighter(colour, 0.16)
    match who.upper:
        case "t-shirt" | "dress" | "tank top":
            deep = 0.10 if who.upper != "tank top" else 0.15
            neckline = trunk.around(-30.0, 30.0, 0.0, deep)
            canvas.over(neckline, clothes.skin, "neck")
            if who.upper == "tank top":
                canvas.over(trunk.around(150.0, 210.0, 0.0, 0.1), clothes.skin, "neck")
            if who.upper == "dress":
                canvas.over(trunk.band(0.40, 0.425), seam)
        case "sweater":
            canvas.over(trunk.band(0.0, 0.09), collar)
        case "hoodie":
            pocket = trunk.around(-38.0, 38.0, 0.66, 0.88)
            canvas.over(pocket, collar)
            for angle in (-9.0, 9.0):
                string = [point for v in (0.1, 0.34) if (point := trunk.place(angle, v))]
                canvas.line(string, (238, 238, 232) if sum(colour) < 600 else (90, 90, 96), 0.7)
        case "shirt":
            canvas.over(trunk.around(-42.0, -3.0, 0.0, 0.14), lighter(colour, 0.25))
            canvas.over(trunk.around(3.0, 42.0, 0.0, 0.14), lighter(colour, 0.25))
            canvas.over(trunk.around(-9.0, 9.0, 0.0, 0.11), clothes.skin, "neck")
            canvas.line([point for v in (0.14, 0.98) if (point := trunk.place(0.0, v))], seam, 0.5)
            for v in np.linspace(0.2, 0.9, 6):
                if (button := trunk.place(2.0, float(v))) is not None:
                    canvas.over(ellipse(*button, 0.005 * unit, 0.005 * unit, corners=6), seam)
        case "jacket" | "coat":
            if who.inner:
                canvas.over(trunk.around(-24.0, 24.0, 0.0, 1.0), clothes.paint(who.inner), "inner")
                canvas.shade(trunk.around(-30.0, -22.0, 0.0, 1.0), -0.2)
                canvas.over(trunk.around(-16.0, 16.0, 0.0, 0.07), clothes.skin, "neck")
                canvas.over(trunk.around(-46.0, -22.0, 0.0, 0.3), collar)
                canvas.over(trunk.around(22.0, 46.0, 0.0, 0.3), collar)
            else:
                canvas.over(trunk.around(-46.0, 46.0, 0.0, 0.1), collar)
                canvas.line([point for v in (0.1, 0.99) if (point := trunk.place(0.0, v))], seam, 0.9)
            if who.upper == "coat":
                for v in (0.3, 0.42, 0.54):
                    for angle in (-34.0, 34.0):
                        if (button := trunk.place(angle, v)) is not None:
                            canvas.over(ellipse(*button, 0.008 * unit, 0.008 * unit, corners=8), seam)
            else:
                for angle in (-60.0, 60.0):
                    sides = trunk.sides(angle - 12, angle + 12)
                    if sides is not None:
                        canvas.line([trunk.at(s, 0.72) for s in sides], seam, 0.6)
            canvas.over(trunk.around(130.0, 230.0, 0.0, 0.08), collar)
