import io

import numpy as np
import pytest
from PIL import Image

from limner.people.attributes import Identity, Thing
from limner.people.body import Pose
from limner.people.camera import take_view
from limner.people.canvas import Canvas, box
from limner.people.cast import Person, sample_people
from limner.people.figure import Looks, draw_person
from limner.people.occlusion import OBSTACLES, draw_obstacle
from limner.people.scene import PLACES, draw_place

WALKER = Identity(
    sex="man",
    hair="short",
    hair_colour="black",
    beard=True,
    headwear=None,
    upper="t-shirt",
    upper_colour="red",
    pattern=Thing("logo", "white"),
    inner=None,
    lower="trousers",
    lower_colour="blue",
    shoes="boots",
    shoes_colour="brown",
    bag=Thing("backpack", "green"),
    carried=None,
    worn=Thing("sunglasses"),
)


def draw(who: Identity, yaw: float) -> Canvas:
    canvas = Canvas(96, 192)
    pose = Pose(float(yaw), 165.0, 48.0, 182.0, 0.1, 0.0, {"left": "hang", "right": "hang"})
    draw_person(canvas, who, Looks.sample(who.sex, 7), pose, 1.0)
    return canvas


def pixels(canvas: Canvas, part: str) -> int:
    names = canvas.part_names
    return int((canvas.parts() == names.index(part)).sum()) if part in names else 0


def test_what_is_in_front_is_seen_from_the_front_only() -> None:
    front, back = draw(WALKER, 0.0), draw(WALKER, 180.0)
    for part in ("pattern", "worn", "beard"):
        assert pixels(front, part) > 5
        assert pixels(back, part) == 0
    assert pixels(back, "bag") > 3 * pixels(front, "bag")


def test_clothes_have_their_colour_where_they_belong() -> None:
    colour, cover = draw(WALKER, 180.0).pixels()
    legs = colour[125:150][cover[125:150] > 0.99].mean(axis=0)
    sleeves = draw(WALKER, 0.0)
    trunk = sleeves.pixels()[0][np.asarray(sleeves.parts() == sleeves.part_names.index("upper"))].mean(axis=0)
    assert legs.argmax() == 2
    assert trunk.argmax() == 0


@pytest.mark.parametrize("yaw", [0.0, 45.0, 90.0, 135.0, 180.0, 225.0, 270.0, 315.0])
def test_every_kind_of_person_can_be_drawn_from_every_side(yaw: float) -> None:
    for person in sample_people({"train": 16}, 9):
        canvas = draw(person.identity, yaw)
        parts = set(canvas.part_names)
        assert {"upper", "shoes", "face"} <= parts
        assert ("lower" in parts) == (person.identity.lower is not None)
        colour, cover = canvas.pixels()
        assert np.isfinite(colour).all()
        assert 0.08 < cover.mean() < 0.6


def test_obstacle_hides_the_parts_behind_it() -> None:
    canvas = draw(WALKER, 0.0)
    before = pixels(canvas, "lower")
    canvas.fill(box(0.0, 96.0, 96.0, 192.0), (10, 10, 10))
    assert before > 100
    assert pixels(canvas, "lower") == 0


@pytest.mark.parametrize("name", sorted(OBSTACLES))
def test_obstacles(name: str) -> None:
    canvas = Canvas(96, 192)
    draw_obstacle(canvas, name, np.random.default_rng(0))
    assert canvas.pixels()[1].sum() > 50
    assert not canvas.parts().any()


@pytest.mark.parametrize("name", sorted(PLACES))
def test_places(name: str) -> None:
    first = draw_place(name, (192, 96), np.random.default_rng(1))
    assert first.shape == (192, 96, 3)
    assert first.std() > 5
    assert np.array_equal(first, draw_place(name, (192, 96), np.random.default_rng(1)))


@pytest.mark.parametrize("size", [(96, 48), (256, 128)])
def test_views_come_in_any_size(size: tuple[int, int]) -> None:
    view = take_view(Person(1, "train", WALKER, None, None, 7), 0, 0, size, 0)
    with Image.open(io.BytesIO(view.jpeg)) as image:
        assert image.size == (size[1], size[0])
    assert {"sex", "upper", "upper_colour"} <= view.visible


def test_views_of_a_person_differ_in_viewpoint() -> None:
    person = Person(1, "train", WALKER, None, None, 7)
    notes = [take_view(person, index, 0, (192, 96), 0).notes for index in range(3)]
    assert len({note["viewpoint"] for note in notes}) == 3
