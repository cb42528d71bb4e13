"""The pictures of the set: who is drawn in which view, and what of them can be seen."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from limner.people.attributes import Identity, Thing
from limner.people.body import VIEWPOINTS
from limner.people.camera import Drawing, draw_view
from limner.people.cast import Person, sample_people
from limner.people.generate import LIES_SEED
from limner.people.occlusion import ACROSS, OBSTACLES

SIZE: Final = (192, 96)
"""Height and width of the pictures."""

Purpose = Literal["plain", "covered", "in hand"]

IN_HAND: Final = ("handbag", "plastic bag")
"""Bags that can be carried in each hand."""

_CLEAR: Final = 45
"""Pixels on each side from which on two bags are seen as two."""

_BESIDE: Final = 5.0
"""Pixels by which a thing must be off the middle of both the person and the picture to be on its left or right."""


@dataclass(frozen=True, slots=True)
class Portrait:
    """One picture and what is true of it.

    - `person`, `who`: somebody of the set, and their details in this picture.
    - `visible`: details that can be seen, by the names of `Identity`; `uncovered`: those that could be without the
      obstacle.
    - `pixels`: pixels that show a part, by the canvas's names; a part of which nothing is seen is absent.
    - `sides`: parts that are clearly on the "left" or "right" of the picture and of the person.
    - `from_front`: True if the face is seen; `obstacle`: its name, None for none.
    - `bags`: bags in the hands, 0 unless the picture was drawn to count them.
    """

    person: Person
    who: Identity
    purpose: Purpose
    jpeg: bytes
    visible: frozenset[str]
    uncovered: frozenset[str]
    pixels: dict[str, int]
    sides: dict[str, str]
    from_front: bool
    obstacle: str | None
    bags: int = 0

    @property
    def cluster(self) -> int:
        """The person's number; twins have one."""
        return _number_of_twins(self.person)

    @property
    def group(self) -> int:
        """The group that the picture's sentences match; with other bags somebody is not described as before."""
        return self.person.number + (100_000 if self.bags else 0)


def draw_portraits(
    people: int, progress: Callable[[int, int], None] | None = None, *, workers: int = 1
) -> list[Portrait]:
    """Every picture of the set, in its order, drawn by `workers` processes. `progress`: people done, and all.

    Of each person there is one without an obstacle; both of near-twins are drawn alike, so that they differ in their
    one detail alone. Every second person is drawn again behind an obstacle, two in three of these behind a wall, and
    every third with a bag in one hand or in both. A picture in which this cannot be seen is left out.
    """
    cast = sample_people({"test": people}, LIES_SEED)
    portraits: list[Portrait] = []
    # Spawned rather than forked: the caller may already run threads (torch does).
    pool = (
        ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) if workers > 1 else None
    )
    with pool or nullcontext():
        drawn = map(_portraits_of, cast) if pool is None else pool.map(_portraits_of, cast, chunksize=8)
        for done, found in enumerate(drawn, start=1):
            portraits += found
            if progress is not None:
                progress(done, len(cast))
    return portraits


def _portraits_of(person: Person) -> list[Portrait]:
    number = person.number
    rng = np.random.default_rng([LIES_SEED, number, 4])
    same_as = _number_of_twins(person)
    found = [_portrait(person, "plain", _viewpoint(same_as, 0), same_as, 0)]
    if number % 2 == 0:
        names = tuple(OBSTACLES) if number % 3 == 0 else tuple(ACROSS)
        obstacle = names[int(rng.integers(len(names)))]
        covered = _portrait(person, "covered", _viewpoint(number, 1), number, 1, obstacle=obstacle)
        if covered.uncovered - covered.visible:
            found.append(covered)
    if number % 3 == 0 and person.identity.bag is not None and person.identity.bag.colour is not None:
        bag = Thing(IN_HAND[int(rng.integers(len(IN_HAND)))], person.identity.bag.colour)
        with_bag = replace(person, identity=replace(person.identity, bag=bag, carried=None))
        # By the number and not by a draw: both counts are equally common. From the side one hand hides the other.
        bags, viewpoint = 1 + number // 3 % 2, ("front", "back")[int(rng.integers(2))]
        in_hand = _portrait(with_bag, "in hand", viewpoint, number, 2, bags=bags)
        sides = in_hand.pixels.get("bag on the left", 0), in_hand.pixels.get("bag on the right", 0)
        if (min(sides) if bags == 2 else max(sides)) >= _CLEAR:
            found.append(in_hand)
    return found


def _number_of_twins(person: Person) -> int:
    return person.number if person.twin is None else min(person.number, person.twin)


def _viewpoint(number: int, index: int) -> str:
    rng = np.random.default_rng([LIES_SEED, number, index, 7])
    return tuple(VIEWPOINTS)[int(rng.integers(len(VIEWPOINTS)))]


def _portrait(
    person: Person,
    purpose: Purpose,
    viewpoint: str,
    number: int,
    index: int,
    *,
    obstacle: str | None = None,
    bags: int = 0,
) -> Portrait:
    rng = np.random.default_rng([LIES_SEED, number, index, 1])
    drawing = draw_view(person, viewpoint, SIZE, rng, obstacle=obstacle, both_hands=bags == 2)
    return Portrait(
        person=person,
        who=person.identity,
        purpose=purpose,
        jpeg=drawing.view.jpeg,
        visible=drawing.view.visible,
        uncovered=drawing.uncovered,
        pixels=_pixels(drawing),
        sides={name: side for name in ("bag", "carried") if (side := _side(drawing, name))},
        from_front="front" in viewpoint,
        obstacle=drawing.view.notes["obstacle"],
        bags=bags,
    )


def _pixels(drawing: Drawing) -> dict[str, int]:
    names, parts = drawing.canvas.part_names, drawing.canvas.parts()
    counts = np.bincount(parts.ravel(), minlength=len(names))
    found = {name: int(counts[place]) for place, name in enumerate(names) if name and counts[place]}
    columns = _columns(drawing, "bag")
    found["bag on the left"] = int((columns < drawing.pose.x).sum())
    found["bag on the right"] = int((columns >= drawing.pose.x).sum())
    return found


def _side(drawing: Drawing, part: str) -> str:
    columns = _columns(drawing, part)
    if not len(columns):
        return ""
    middle = float(columns.mean())
    off = (middle - drawing.pose.x, middle - SIZE[1] / 2)
    if min(off) > _BESIDE:
        return "right"
    return "left" if max(off) < -_BESIDE else ""


def _columns(drawing: Drawing, part: str) -> np.ndarray:
    """The column of each pixel that shows a part."""
    names = drawing.canvas.part_names
    if part not in names:
        return np.zeros(0, np.int64)
    return np.nonzero(drawing.canvas.parts() == names.index(part))[1]
