"""When two similarities count as equal, and what a tie decides.

**Tolerance.** Codes of ±1 have many pairs of exactly equal similarity. Their cosines, or the same codes rotated, have
the same similarities up to rounding, and rounding must not decide which item stands first. So dot products that limner
computes count as equal up to

    ε · (16 + √d) · ‖query‖ · median ‖gallery row‖,    ε = 2⁻²³ (float32), d = columns

- √d: each of the two products of d terms that are compared errs by about √d roundings of ε / 2 times the norms
  (Higham and Mary, SIAM J. Sci. Comput. 41, 2019: the bound d · ε / 2 of the worst case is not reached in practice).
- 16: roundings outside the sum, of rows that were normalised or rotated in float32. They dominate below 256 columns.
- Measured over codes of 0 and 1 and of ±1 with 1 to 4,096 columns, normalised and rotated: two equal similarities
  differ by half the tolerance at most.
- float32's also for rows of float64: such files often hold what was computed in float32, and a figure must not depend
  on the type in which a row was stored.
- The median: one row of a huge norm must not make all others tie.

Of 1,024 columns and unit rows that is 5.7e-6. Scores that limner is given (a matrix, a TREC run, a reranker's scores)
are compared as they are: how they were computed is not known, and the scores of a sure classifier differ in their last
digits alone.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

_OUTSIDE = 16.0
"""Roundings outside the sum of products."""

_SMALL = 1e-15
"""Below this a norm in float32 has lost squares that are smaller than float32 has numbers."""


def tolerance_of_unit_rows(dim: int) -> float:
    """The difference up to which two dot products of unit rows count as equal.

    >>> round(tolerance_of_unit_rows(1024) * 1e6, 2)
    5.72
    """
    return float(np.finfo(np.float32).eps) * (_OUTSIDE + math.sqrt(dim))


def row_norms(rows: Float[Tensor, "items dim"]) -> Float[Tensor, " items"]:
    """Euclidean norms, in float64."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1).double()
    # Again in float64, whose range holds the square of any float32. Not for all: that takes six times as long.
    lost = ~((norms > _SMALL) & norms.isfinite())
    norms[lost] = torch.linalg.vector_norm(rows[lost].double(), dim=1)
    return norms


@dataclass(frozen=True, eq=False)
class FirstTies:
    """The items that stand around the first true match of each query, by their scores.

    - `above`: wrong items that score higher, beyond the tolerance.
    - `wrong`: wrong items that tie with it; `true`: true matches that do, itself among them.
    """

    above: Int[np.ndarray, " queries"]
    wrong: Int[np.ndarray, " queries"]
    true: Int[np.ndarray, " queries"]

    def decide(self, k: int) -> Bool[np.ndarray, " queries"]:
        """Which queries have a true match among the first `k` in some orders of the tied items and none in others.

        >>> FirstTies(np.array([0, 2]), np.array([1, 0]), np.array([1, 1])).decide(1).tolist()
        [True, False]
        """
        places = k - self.above
        return np.asarray((places > 0) & (places <= self.wrong))

    def expected(self, k: int) -> Float[np.ndarray, " queries"]:
        """The share of orders of the tied items in which a true match is among the first `k`.

        With m of the first k places left to w wrong and t true items: 1 − C(w, m) / C(w + t, m).

        >>> FirstTies(np.array([0]), np.array([3]), np.array([1])).expected(2).round(6).tolist()
        [0.5]
        """
        share = np.asarray(self.above + self.wrong < k, np.float64)
        rows = np.flatnonzero(self.decide(k))
        wrong, true, places = self.wrong[rows], self.true[rows], k - self.above[rows]
        missed = np.ones(len(rows))
        # The quotient with its factorials cancelled; by logarithms of factorials it would lose six digits.
        for number in range(1, int(true.max(initial=0)) + 1):
            missed *= np.where(number <= true, (wrong - places + number) / (wrong + number), 1)
        share[rows] = 1 - missed
        return share


@dataclass(frozen=True)
class TiedFigure:
    """A figure that ties decide.

    - `queries`: those whose value depends on the order of tied items.
    - `pessimistic`: with tied wrong items first, as everywhere; `expected`: the mean over all orders of tied items.
    """

    queries: int
    pessimistic: float
    expected: float
