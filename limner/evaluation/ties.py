"""When two similarities count as equal, and what a tie decides.

**Tolerance.** Codes of ±1 have many pairs of exactly equal similarity. Their cosines, or the same codes rotated, have
the same similarities up to rounding, and rounding must not decide which item stands first. So dot products that limner
computes count as equal up to

    ε · √(d + 100) · ‖query‖ · median ‖gallery row‖,    d = columns,

with ε the distance from 1 to the next number of the rows' type: 2⁻⁵² for float64, if one side is, and 2⁻²³ for float32;
half precision is multiplied in float32. Derivation, with u = ε / 2 and rows of norm 1:

- A product errs by Σ δₖ sₖ: sₖ are the sums of its first k terms, and δₖ, with |δₖ| ≤ u, their roundings (Higham,
  Accuracy and Stability of Numerical Algorithms, 2002, section 3.1). The bound of the worst case, d u / (1 − d u),
  makes all of them the largest and of one sign. Taken as independent and of mean zero (Higham and Mary, SIAM J. Sci.
  Comput. 41, 2019), with the variance u² / 6 of a relative rounding, they add up to a variance of u² / 6 · Σ sₖ².
- |sₖ| ≤ k / d for rows whose weight is spread evenly, so Σ sₖ² ≤ d / 3 and the difference of two products has a
  standard deviation of √d u / 3 at most. The tolerance 2 √d u is six of them, or three and a half for rows whose first
  entry has all the weight (Σ sₖ² ≤ d). Blocks and lanes of a library make the sums shorter.
- A row is taken to be within 5 u of what it stands for, in norm: a rounding of each entry, of a norm, of a quotient. So
  x · (y − z), which is 0, is seen within 20 u: 5 of either of y and z, and 5 |y − z| ≤ 10 of x. The errors are
  independent of those of the sums, and their squares add: 4 d + 20² = (2 √(d + 100))².
- The median: one row of a huge norm must not make all others tie.

Unit rows of 1,024 columns tie within 4.0e-6 in float32 and 7.4e-15 in float64. Over constant rows, and codes of 0 and 1
and of ±1, normalised and rotated, of 2 to 4,096 columns, multiplied by numpy, torch and einsum, two equal similarities
differ by 0.75 of it at most (docs/log/2026-11-28.md). What was rounded in float32 is to be given in float32: as float64
its roundings are differences.

Scores that limner is given (a matrix, a TREC run, a reranker's scores) are compared as they are: how they were computed
is not known, and the scores of a sure classifier differ in their last digits alone.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from limner.documented import Result

_OUTSIDE = 100.0
"""The roundings of the rows themselves, as terms of a product."""

_SMALL = 1e-15
"""Below this a norm in float32 has lost squares that are smaller than float32 has numbers."""


def tolerance_of_unit_rows(dim: int, eps: float) -> float:
    """The difference up to which two dot products of unit rows count as equal; `eps` is that of their type.

    >>> round(tolerance_of_unit_rows(1024, 2**-23) * 1e6, 2)
    4.0
    """
    return eps * math.sqrt(dim + _OUTSIDE)


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


class TiedFigure(Result):
    """A recall that the order of tied items decides for some queries."""

    queries: int
    """Queries whose value depends on the order of tied items."""
    pessimistic: float
    """Tied wrong items first: the reported value."""
    expected: float
    """Mean over all orders of tied items."""
