"""A whole person: what is drawn in which order, and what of it can be seen."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from limner.people import things
from limner.people.attributes import Identity
from limner.people.body import SIDES, Body, Build, Pose, Side
from limner.people.canvas import Canvas
from limner.people.hair import draw_behind_head, draw_over_back, draw_side_locks
from limner.people.head import draw_head, draw_scarf
from limner.people.legs import draw_leg, draw_lower
from limner.people.palette import COLOURS, RGB, SKINS, Wardrobe, shade_of
from limner.people.panel import Panel
from limner.people.tops import draw_sleeve, draw_trunk

_HELD: Final = ("phone", "bottle", "book", "coffee cup")


@dataclass(frozen=True)
class Looks:
    """The looks that no sentence names: build, skin, shades, long or short sleeves where a garment has both."""

    build: Build
    skin: RGB
    shades: dict[str, RGB]
    warm: bool

    @classmethod
    def sample(cls, sex: str, seed: int) -> "Looks":
        """The looks that belong to a seed."""
        rng = np.random.default_rng(seed)
        skin = shade_of(SKINS[int(rng.integers(len(SKINS)))], rng)
        shades = {name: shade_of(reference, rng) for name, reference in COLOURS.items()}
        return cls(Build.sample(sex, rng), skin, shades, bool(rng.random() < 0.5))


def pose_for(
    who: Identity, yaw: float, size: tuple[int, int], rng: np.random.Generator, *, place: float | None = None
) -> Pose:
    """A pose for one view of someone in a picture of `size` (height, width): stride, hands, place and scale.

    `place` is the x as a share of the width; without it the person stands about the middle.
    """
    height, width = size
    umbrella = who.carried is not None and who.carried.kind == "umbrella"
    tall = height * (rng.uniform(0.70, 0.78) if umbrella else rng.uniform(0.80, 0.94))
    ground = height * rng.uniform(0.94, 0.965)
    busy, shift = _busy_hands(who, yaw, rng)
    stride = float(rng.uniform(0.34, 0.55) if rng.random() < 0.6 else rng.uniform(0.0, 0.12))
    x = width * (place if place is not None else 0.5 + rng.uniform(-0.06, 0.06)) + shift * width
    return Pose(
        yaw, tall, x, ground, stride, float(rng.uniform(0, 2 * np.pi)), busy, float(rng.uniform(0.08, 0.2))
    )


def draw_person(canvas: Canvas, who: Identity, looks: Looks, pose: Pose, light: float) -> None:
    """Draw someone; `light` is the side it comes from (−1 left, 1 right)."""
    body = Body(looks.build, pose)
    clothes = Wardrobe(who, looks.skin, looks.shades, light, warm=looks.warm)
    bag = who.bag
    paint = clothes.paint(bag.colour) if bag else (0, 0, 0)
    behind = body.facing >= 0 if abs(body.facing) > 0.05 else True
    hand: dict[Side, bool] = {side: body.arm_in_front(side) for side in SIDES}
    bag_sign = 1 if _bag_side(who, pose) == "left" else -1

    draw_behind_head(canvas, body, clothes)
    if bag and bag.kind == "backpack" and behind:
        things.draw_backpack(canvas, body, paint, light)
    hip_near = body.nearness("left hip") * bag_sign > -0.02
    if bag and bag.kind == "shoulder bag" and not hip_near:
        things.draw_hip_bag(canvas, body, paint, bag_sign)
    if bag and bag.kind == "tote bag" and not hip_near:
        things.draw_tote(canvas, body, paint, bag_sign)
    for side in SIDES:
        if not hand[side]:
            _draw_arm(canvas, body, clothes, side)
    for side in sorted(SIDES, key=lambda s: body.nearness(f"{s} ankle") + 0.5 * body.nearness(f"{s} hip")):
        draw_leg(canvas, body, clothes, side)
    tucked = who.upper not in ("coat", "dress")
    if tucked or who.lower is not None:
        draw_lower(canvas, body, clothes)
    trunk = draw_trunk(canvas, body, clothes)
    _draw_on_trunk(canvas, body, clothes, trunk, bag_sign)
    if bag and bag.kind == "backpack" and not behind:
        things.draw_backpack(canvas, body, paint, light)
    draw_head(canvas, body, clothes)
    if who.worn and who.worn.kind == "scarf":
        draw_scarf(canvas, body, clothes)
    draw_side_locks(canvas, body, clothes)
    draw_over_back(canvas, body, clothes)
    if bag and bag.kind == "shoulder bag" and hip_near:
        things.draw_hip_bag(canvas, body, paint, bag_sign)
    if bag and bag.kind == "tote bag" and hip_near:
        things.draw_tote(canvas, body, paint, bag_sign)
    for side in sorted(SIDES, key=lambda s: body.nearness(f"{s} hand")):
        if hand[side]:
            _draw_arm(canvas, body, clothes, side)
    carried = who.carried
    if carried and carried.kind == "umbrella":
        things.draw_umbrella(canvas, body, _hand_with(pose, "lift"), clothes.paint(carried.colour))
    if carried and carried.kind == "dog":
        things.draw_dog(canvas, body, _hand_with(pose, "lead"), clothes.paint(carried.colour))


def _draw_arm(canvas: Canvas, body: Body, clothes: Wardrobe, side: Side) -> None:
    who = clothes.who
    draw_sleeve(canvas, body, clothes, side)
    busy = body.pose.busy[side]
    if who.carried and busy in ("hold", "raise") and who.carried.kind in _HELD:
        colour = clothes.paint(who.carried.colour)
        things.draw_in_hand(canvas, body, clothes, side, who.carried.kind, colour)
    if who.bag and busy in ("carry", "pull"):
        things.draw_in_hand(canvas, body, clothes, side, who.bag.kind, clothes.paint(who.bag.colour))


def _draw_on_trunk(canvas: Canvas, body: Body, clothes: Wardrobe, trunk: Panel, bag_sign: int) -> None:
    who, unit = clothes.who, body.unit
    if who.worn and who.worn.kind == "tie":
        tie = clothes.paint(who.worn.colour)
        canvas.over(
            [p for a, v in ((-9, 0.05), (9, 0.05), (6, 0.12), (-6, 0.12)) if (p := trunk.place(a, v))],
            tie,
            "worn",
        )
        canvas.over(
            [
                p
                for a, v in ((-5, 0.12), (5, 0.12), (11, 0.72), (0, 0.82), (-11, 0.72))
                if (p := trunk.place(a, v))
            ],
            tie,
            "worn",
        )
    if who.worn and who.worn.kind == "belt":
        waist = (body.joint("waist")[1] - trunk.at(0.0, 0.0)[1]) / trunk.length
        canvas.over(trunk.band(waist - 0.012, waist + 0.03), clothes.paint(who.worn.colour), "worn")
        canvas.over(trunk.around(-9.0, 9.0, waist - 0.014, waist + 0.032), (214, 190, 96), "worn")
    if who.bag and who.bag.kind == "backpack":
        things.draw_straps(canvas, trunk, clothes.paint(who.bag.colour), unit)
    if who.bag and who.bag.kind == "shoulder bag":
        things.draw_cross_strap(canvas, trunk, clothes.paint(who.bag.colour), unit, bag_sign)


def _busy_hands(who: Identity, yaw: float, rng: np.random.Generator) -> tuple[dict[Side, str], float]:
    """Decide what each hand does, and how far to move the person aside (share of the width) to keep it in view."""
    first: Side = "left" if rng.random() < 0.5 else "right"
    # From the side the far hand is hidden by the trunk: what is carried goes to the near one.
    near: Side = "right" if 20 < yaw % 360 < 160 else "left" if 200 < yaw % 360 < 340 else first
    other: Side = "left" if near == "right" else "right"
    busy: dict[Side, str] = {"left": "hang", "right": "hang"}
    shift = 0.0
    carried, bag = who.carried, who.bag
    if carried is not None:
        busy[near] = "hold"
        if carried.kind == "phone" and rng.random() < 0.4:
            busy[near] = "raise"
        if carried.kind == "umbrella":
            busy[near] = "lift"
            shift = -0.03 * _screen_side(near, yaw)
        if carried.kind == "dog":
            busy[near] = "lead"
            shift = -0.14 * _screen_side(near, yaw)
    if bag is not None and bag.kind in ("handbag", "plastic bag", "suitcase"):
        with_bag = other if carried is not None else near
        busy[with_bag] = "pull" if bag.kind == "suitcase" else "carry"
        if bag.kind == "suitcase":
            shift -= 0.09 * _screen_side(with_bag, yaw)
    elif bag is not None and bag.kind in ("tote bag", "shoulder bag") and busy[near] == "hang":
        busy[near] = "hang bag"
    return busy, shift


def _screen_side(side: Side, yaw: float) -> float:
    """Where a hand is in the picture: −1 left, 1 right; suitcases trail behind a person seen from the side."""
    angle = np.radians(yaw)
    return float(np.sign((1 if side == "left" else -1) * np.cos(angle) - 0.3 * np.sin(angle)))


def _bag_side(who: Identity, pose: Pose) -> Side:
    for side in SIDES:
        if pose.busy[side] == "hang bag":
            return side
    return "left" if pose.busy["left"] == "hang" else "right"


def _hand_with(pose: Pose, what: str) -> Side:
    return "left" if pose.busy["left"] == what else "right"
