"""The lower half: legs, shoes, trousers, shorts and skirts."""

from typing import Final

import numpy as np

from limner.people.body import Body, Side
from limner.people.canvas import Canvas, ellipse
from limner.people.palette import RGB, Wardrobe, darker, lighter, mix
from limner.people.panel import Panel, hem, rounded_shading, tube, upright

_DENIM: Final = {
    "blue": (74, 102, 150),
    "black": (44, 46, 54),
    "grey": (122, 126, 132),
    "white": (228, 230, 232),
}


def draw_leg(canvas: Canvas, body: Body, clothes: Wardrobe, side: Side) -> None:
    """One leg with its shoe, in trousers, shorts, leggings or bare beneath a skirt."""
    who, unit, limb = clothes.who, body.unit, body.build.limb
    hip, knee, ankle = (body.joint(f"{side} {name}") for name in ("hip", "knee", "ankle"))
    skin = tube([hip, knee, ankle], [0.046 * limb * unit, 0.032 * limb * unit, 0.021 * unit])
    lower = who.lower
    if lower in (None, "shorts", "skirt", "long skirt"):
        canvas.fill(skin.outline(), clothes.skin, "legs")
        rounded_shading(canvas, skin, clothes.side, 0.16)
    if who.shoes != "boots":
        _draw_shoe(canvas, body, clothes, side)
    if lower not in (None, "skirt", "long skirt"):
        _draw_trouser_leg(canvas, body, clothes, side)
    # Boots are worn over trousers, or nobody could tell them from shoes.
    if who.shoes == "boots":
        _draw_shoe(canvas, body, clothes, side)


def _draw_trouser_leg(canvas: Canvas, body: Body, clothes: Wardrobe, side: Side) -> None:
    who, unit, limb, lower = clothes.who, body.unit, body.build.limb, clothes.who.lower or "trousers"
    hip, knee, ankle = (body.joint(f"{side} {name}") for name in ("hip", "knee", "ankle"))
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
    wide = 0.028 * unit
    heel = (
        ankle[0] - 0.28 * (toe[0] - ankle[0]),
        ankle[1] + 0.030 * unit - 0.28 * (toe[1] - ankle[1] - 0.02 * unit),
    )
    tip = (toe[0], max(toe[1], ankle[1] + 0.022 * unit))
    top = (ankle[0], ankle[1] - 0.004 * unit)
    # From the front a foot is short: its outline is the hull of heel, ankle and toe discs.
    outline = _hull([(*heel, wide * 0.75), (*top, wide * 0.85), (*tip, wide * 0.82)])
    if who.shoes == "sandals":
        canvas.fill(outline, clothes.skin, "legs")
        strap = mix(colour, colour, 0.0)
        for share in (0.25, 0.7):
            x, y = top[0] + share * (tip[0] - top[0]), top[1] + share * (tip[1] - top[1])
            canvas.line(
                [(x - wide, y - 0.002 * unit), (x + wide, y + 0.006 * unit)], strap, 0.016 * unit, "shoes"
            )
        sole = _hull(
            [(heel[0], heel[1] + wide * 0.6, wide * 0.35), (tip[0], tip[1] + wide * 0.6, wide * 0.35)]
        )
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
    sole_colour = (
        (236, 236, 232) if who.shoes == "sneakers" and who.shoes_colour != "white" else darker(colour, 0.6)
    )
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
    """Cover the hips: the seat of trousers, or a skirt."""
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
    canvas.fill(seat.outline(), colour, "lower", outline=0.0)
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


def _hull(discs: list[tuple[float, float, float]]) -> list[tuple[float, float]]:
    """Outline around discs (x, y, radius): their convex hull."""
    points = sorted(
        {
            (round(x + dx, 3), round(y + dy, 3))
            for x, y, r in discs
            for dx, dy in ellipse(0.0, 0.0, r, r, corners=12)
        }
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
