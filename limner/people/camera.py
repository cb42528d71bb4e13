"""One view of a person as a surveillance camera would deliver it, and which details can be seen in it."""

import io
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image, ImageFilter

from limner.people.attributes import Identity
from limner.people.body import VIEWPOINTS, Pose
from limner.people.canvas import Canvas
from limner.people.cast import Person
from limner.people.figure import Looks, draw_person, pose_for
from limner.people.occlusion import OBSTACLES, draw_obstacle
from limner.people.scene import PLACES, draw_place
from limner.people.tailor import Tailor

CAMERAS: Final = ("cam_a", "cam_b", "cam_c", "cam_d")
_NEEDED: Final = {
    "face": 30,
    "hair": 14,
    "hair style": 14,
    "beard": 18,
    "headwear": 18,
    "upper": 60,
    "pattern": 40,
    "inner": 45,
    "lower": 140,
    "legs": 40,
    "shoes": 26,
    "bag": 60,
    "carried": 22,
    "worn": 9,
}
"""Pixels (of a picture 192 high) from which on a detail counts as visible."""
_KEPT: Final = 0.6
"""Share of a detail's pixels that an obstacle may leave for it still to be mentioned."""
CHANCE: Final = "by chance"
"""In place of an obstacle's name: in a third of the views there is one, or somebody else at the edge."""
_LEAST_BAG: Final = {"backpack": 130, "shoulder bag": 90, "suitcase": 180}


@dataclass(frozen=True)
class View:
    """One encoded picture and what is true of it.

    - `jpeg`: the file's content; `camera`: one of `CAMERAS`.
    - `visible`: names of the details that a viewer can see: fields of `Identity` and "lower kind".
    - `notes`: viewpoint, place, obstacle, whether the person walks; JSON values.
    """

    jpeg: bytes
    camera: str
    visible: frozenset[str]
    notes: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Drawing:
    """A view with what is known of how it was drawn.

    - `pose`: of the person; `canvas`: the figure with the map of its parts, obstacle included.
    - `uncovered`: details that could be seen if no obstacle were there.
    """

    view: View
    pose: Pose
    canvas: Canvas
    uncovered: frozenset[str]


def take_view(person: Person, index: int, seed: int, size: tuple[int, int], start: int) -> View:
    """View `index` of a person, `size` is (height, width); `start` rotates the order of viewpoints.

    The first views come from different sides, so that every identity is seen from the front and the back.
    """
    return draw_numbered(person, index, seed, size, start).view


def draw_numbered(person: Person, index: int, seed: int, size: tuple[int, int], start: int) -> Drawing:
    """View `index` of a person as `take_view` gives it, with how it was drawn."""
    rng = np.random.default_rng([seed, person.number, index, 1])
    names = ("front", "three-quarter back", "side", "back", "three-quarter front")
    return draw_view(person, names[(start + index) % len(names)], size, rng)


def draw_view(
    person: Person,
    viewpoint: str,
    size: tuple[int, int],
    rng: np.random.Generator,
    *,
    obstacle: str | None = CHANCE,
    both_hands: bool = False,
) -> Drawing:
    """A view from one of `VIEWPOINTS`, with everything else drawn from `rng`.

    - `obstacle`: its name (`limner.people.occlusion`), None for none; `CHANCE` draws whether there is one.
    - `both_hands`: carry a bag in each hand; the bag must be of a kind that is carried in a hand.
    """
    yaw = VIEWPOINTS[viewpoint] * float(rng.choice([-1, 1])) + float(rng.uniform(-9, 9))
    looks = Looks.sample(person.identity.sex, person.looks)
    light = float(rng.choice([-1, 1]))
    place = tuple(PLACES)[int(rng.integers(len(PLACES)))]
    background = draw_place(place, size, rng)
    pose = pose_for(person.identity, yaw, size, rng)
    if both_hands:
        pose = replace(pose, busy={"left": "carry", "right": "carry"})
    height, width = size

    canvas = Canvas(width, height)
    draw_person(canvas, person.identity, looks, pose, light)
    before = _counts(canvas)
    uncovered = _visible(person.identity, before, before, height)
    in_front = _draw_obstacle(canvas, size, light, rng, obstacle)
    visible = _visible(person.identity, before, _counts(canvas), height)
    if in_front and "upper" not in visible:
        # Nobody could describe, or find, whom an obstacle hides: take the picture without it.
        canvas, in_front = Canvas(width, height), None
        draw_person(canvas, person.identity, looks, pose, light)
        visible = uncovered
    colour, cover = canvas.pixels()
    scene = _shadow(background, pose.x, pose.ground, pose.height, light)
    picture = scene * (1 - cover[..., None]) + colour * cover[..., None]
    picture = _light(picture, light, rng)
    jpeg = _encode(picture, rng)
    camera = CAMERAS[int(rng.integers(len(CAMERAS)))]
    notes = {"viewpoint": viewpoint, "place": place, "obstacle": in_front, "walking": pose.walking}
    return Drawing(View(jpeg, camera, visible, notes), pose, canvas, uncovered)


def _draw_obstacle(
    canvas: Canvas, size: tuple[int, int], light: float, rng: np.random.Generator, wanted: str | None
) -> str | None:
    if wanted is None:
        return None
    if wanted != CHANCE:
        draw_obstacle(canvas, wanted, rng)
        return wanted
    chance = rng.random()
    if chance < 0.22:
        name = tuple(OBSTACLES)[int(rng.integers(len(OBSTACLES)))]
        draw_obstacle(canvas, name, rng)
        return name
    if chance < 0.32:
        # Somebody else at the edge, mostly outside the picture.
        other = Tailor(rng).dress()
        left = rng.random() < 0.5
        yaw = float(rng.uniform(-180, 180))
        stranger = Canvas(size[1], size[0])
        pose = pose_for(other, yaw, size, rng, place=-0.06 if left else 1.06)
        draw_person(stranger, other, Looks.sample(other.sex, int(rng.integers(2**31))), pose, light)
        canvas.paste(stranger)
        return "person"
    return None


def _counts(canvas: Canvas) -> dict[str, int]:
    pixels = np.bincount(canvas.parts().ravel(), minlength=len(canvas.part_names))
    counts = {name: int(pixels[index]) for index, name in enumerate(canvas.part_names) if name}
    # What is printed on a garment is cloth as well.
    counts["upper"] = counts.get("upper", 0) + counts.get("pattern", 0)
    return counts


def _visible(who: Identity, before: dict[str, int], after: dict[str, int], height: int) -> frozenset[str]:
    area = (height / 192) ** 2

    def seen(part: str, needed: int | None = None) -> bool:
        least = (_NEEDED[part] if needed is None else needed) * area
        return after.get(part, 0) >= max(least, _KEPT * before.get(part, 0))

    names: set[str] = {"sex"}
    hair = after.get("hair", 0) + after.get("hair style", 0) >= _NEEDED["hair"] * area
    if hair and who.hair != "bald":
        names.add("hair_colour")
    # Bald heads, short and curly hair show from every side unless covered; a ponytail only if it is drawn.
    if seen("hair style") and not (who.headwear and who.hair in ("bald", "short", "curly")):
        names.add("hair")
    if who.headwear and seen("headwear"):
        names.add("headwear")
    if who.beard and seen("beard"):
        names.add("beard")
    if seen("upper"):
        names |= {"upper", "upper_colour"}
        if who.pattern is None or (seen("pattern") and after.get("pattern", 0) >= 0.06 * after["upper"]):
            names.add("pattern")
        if who.inner and seen("inner"):
            names.add("inner")
    if who.lower is not None and seen("lower"):
        names |= {"lower", "lower_colour"}
    if seen("shoes"):
        names |= {"shoes", "shoes_colour"}
    if who.bag and seen("bag", _LEAST_BAG.get(who.bag.kind)):
        names.add("bag")
    if who.carried and seen("carried"):
        names.add("carried")
    # A belt in the colour of the stripes around it is one stripe more.
    lost = who.worn and who.pattern and who.worn.colour == who.pattern.colour
    if who.worn and seen("worn") and not (lost and who.worn.kind in ("belt", "tie")):
        names.add("worn")
    return frozenset(names)


def _shadow(
    background: Float[np.ndarray, "height width 3"], x: float, ground: float, tall: float, light: float
) -> Float[np.ndarray, "height width 3"]:
    height, width = background.shape[:2]
    rows, columns = np.mgrid[0:height, 0:width]
    wide = 0.17 * tall
    away = x - light * 0.1 * tall
    distance = ((columns - away) / wide) ** 2 + ((rows - ground) / (0.022 * tall + 1)) ** 2
    dark = 0.5 * np.exp(-0.9 * distance)
    return np.asarray(background * (1 - dark[..., None]), dtype=np.float32)


def _light(
    picture: Float[np.ndarray, "height width 3"], light: float, rng: np.random.Generator
) -> Float[np.ndarray, "height width 3"]:
    """Brightness, contrast, a colour cast, and more light on one side than on the other."""
    width = picture.shape[1]
    warmth, tint = rng.uniform(-0.06, 0.06), rng.uniform(-0.02, 0.02)
    cast = np.array([1 + warmth, 1 + tint, 1 - warmth])
    slope = 1 + light * rng.uniform(0, 0.1) * np.linspace(-1, 1, width)[:, None]
    contrast, brightness = rng.uniform(0.84, 1.06), rng.uniform(0.80, 1.12)
    lit = ((picture - 128) * contrast + 128) * brightness * cast * slope
    return np.asarray(np.clip(lit, 0, 255), dtype=np.float32)


def _encode(picture: Float[np.ndarray, "height width 3"], rng: np.random.Generator) -> bytes:
    """Distance, focus, sensor noise and JPEG."""
    height, width = picture.shape[:2]
    image = Image.fromarray(_to_bytes(picture))
    if rng.random() < 0.35:
        share = rng.uniform(0.6, 0.9)
        image = image.resize((round(width * share), round(height * share)), Image.Resampling.BOX)
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    image = image.filter(ImageFilter.GaussianBlur(float(rng.uniform(0.0, 0.75)) * height / 192))
    noisy = np.asarray(image, dtype=np.float64)
    noisy = (
        noisy + rng.normal(0, rng.uniform(0.5, 6.0), (*noisy.shape[:2], 1)) + rng.normal(0, 1.5, noisy.shape)
    )
    file = io.BytesIO()
    Image.fromarray(_to_bytes(noisy)).save(file, "JPEG", quality=int(rng.integers(62, 93)))
    return file.getvalue()


def _to_bytes(picture: Float[np.ndarray, "height width 3"]) -> UInt8[np.ndarray, "height width 3"]:
    return np.asarray(np.clip(np.rint(picture), 0, 255), dtype=np.uint8)
