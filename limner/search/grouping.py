"""Keep only the best of each group of a ranking."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

NEAR = 0.98
"""Cosine from which two pictures count as nearly the same."""


def best_of_identities(
    ranked: Int[np.ndarray, " ranked"], identities: Sequence[str | None], k: int
) -> list[tuple[int, int]]:
    """The best row of each of the first k identities, with how many of the ranked rows show it.

    A row without an identity is a group of its own.
    """
    names = [identities[row] for row in ranked.tolist()]
    counts = Counter(name for name in names if name is not None)
    seen: set[str] = set()
    best: list[tuple[int, int]] = []
    for row, name in zip(ranked.tolist(), names, strict=True):
        if name is None:
            best.append((row, 1))
        elif name not in seen:
            seen.add(name)
            best.append((row, counts[name]))
        if len(best) == k:
            break
    return best


def best_of_near(
    ranked: Int[np.ndarray, " ranked"], matrix: Float[np.ndarray, "images dim"], k: int, near: float = NEAR
) -> list[tuple[int, int]]:
    """The best row of each of the first k groups of nearly equal pictures, with the size of the group.

    Going down the ranking, a row that is in no group yet begins one, which takes all rows below it that have a cosine
    of at least `near` with it and no group: one product with the matrix a group.
    """
    free = np.ones(len(ranked), bool)
    best: list[tuple[int, int]] = []
    # of the whole gallery a copy in the order of the ranking would be as large as the store
    few = matrix[ranked] if 2 * len(ranked) < len(matrix) else None
    for place in range(len(ranked)):
        if len(best) == k:
            break
        if free[place]:
            centre = matrix[ranked[place]]
            cosines = (matrix @ centre)[ranked] if few is None else few @ centre
            alike = free & (cosines >= near)
            alike[place] = True  # whatever rounding says
            free &= ~alike
            best.append((int(ranked[place]), int(alike.sum())))
    return best
