"""Slow twin of the violator search: one irrelevant sample after the other, as MNiL's section 3.2 has it."""

import random


def first_violator(
    query: list[float],
    positive: float,
    gallery: list[list[float]],
    relevant: list[bool],
    margin: float,
    rng: random.Random,
) -> tuple[int, int]:
    """Draw until `margin + f(query, sample) > positive`: the place of the violator and its draw, from 1.

    A relevant sample that is drawn is put back and does not count, as in the released code.
    """
    draws = 0
    while True:
        place = rng.randrange(len(gallery))
        if relevant[place]:
            continue
        draws += 1
        similarity = sum(a * b for a, b in zip(query, gallery[place], strict=True))
        if margin + similarity > positive:
            return place, draws
