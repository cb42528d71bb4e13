"""Vectors in int8 with a bound on their error: a pass over a quarter of the bytes that tells which rows can be first.

A row x is held as x = s·c + e: codes c of int8, a scale s, and a residual e of which only the length is kept. With a
query y = b + g, coded in the same way, Cauchy and Schwarz say

    |x·y − s·(c·b)| ≤ ‖s·c‖ ‖g‖ + ‖e‖ ‖y‖

`c·b` is a sum of integers and has no error. The kernel is that of numkong, which comes with usearch; numpy has none.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Int8

# what the sums that make norms and scores round, relative to the product of both norms. Added up one after the other
# the error of n float32 products is at most n·2⁻²⁴; twice that holds for the norms, too, and for what is made of them
_ROUNDING = 2.0**-23

_MOST = 127
"""Largest code. −128 is not used, so that the codes of −x are those of x with the other sign."""

_BLOCK = 1 << 17
"""Numbers coded at once: 512 KiB, which stay in a core's cache."""

_MOST_DIMS = (2**31 - 1) // _MOST**2
"""Longest vectors of which the kernel's sums of 32 bits cannot overflow."""


def rounding(dim: int) -> float:
    """Bound of what a float32 sum of `dim` products loses, relative to the product of both vectors' norms.

    It holds in any order of summation, with room for norms and bounds that are float32 sums themselves.
    """
    return (dim + 16) * _ROUNDING


@cache
def kernel() -> Callable[..., Any] | None:
    """Return numkong's product of int8 rows, or None where it is not installed."""
    try:
        from numkong import cdist
    except ImportError:
        return None
    product: Callable[..., Any] = cdist
    return product


@dataclass(frozen=True, eq=False)
class Int8Codes:
    """Codes of the rows of a matrix, a quarter of its bytes, and 12 bytes a row beside them.

    - `scales`: what a row's codes are multiplied by.
    - `lengths`: at least the norms of the coded rows, ‖s·c‖.
    - `residuals`: at least the norms of what the codes leave out, ‖e‖, and of what scores round for a query of norm 1.
    """

    codes: Int8[np.ndarray, "rows dim"]
    scales: Float[np.ndarray, " rows"]
    lengths: Float[np.ndarray, " rows"]
    residuals: Float[np.ndarray, " rows"]

    @classmethod
    def of(cls, matrix: Float[np.ndarray, "rows dim"]) -> "Int8Codes | None":
        """Code a float32 matrix, in blocks; None without a kernel to read codes with."""
        made = cls.empty(*matrix.shape)
        if made is not None:
            for start in range(0, len(matrix), made.at_once):
                part = slice(start, start + made.at_once)
                made.put(part, matrix[part])
        return made

    @classmethod
    def empty(cls, count: int, dim: int) -> "Int8Codes | None":
        """Make room for the codes of `count` rows, which `put` fills; None without a kernel to read codes with."""
        if kernel() is None or not 0 < dim <= _MOST_DIMS:
            return None
        return cls(np.empty((count, dim), np.int8), *np.empty((3, count), np.float32))

    @property
    def at_once(self) -> int:
        """Rows that are best coded at once."""
        dim: int = self.codes.shape[1]
        return max(1, _BLOCK // dim)

    def put(self, into: slice | Int[np.ndarray, " some"], rows: Float[np.ndarray, "some dim"]) -> None:
        """Code some rows, and write their codes to these places."""
        dim = rows.shape[1]
        scale = np.maximum(rows.max(axis=1), -rows.min(axis=1)) / np.float32(_MOST)
        scale[scale < np.finfo(np.float32).tiny] = 1  # rows of zeros
        coded = rows / scale[:, None]
        np.rint(coded, out=coded)
        self.codes[into] = coded
        coded *= scale[:, None]
        self.scales[into], norms = scale, _norms(rows)
        self.lengths[into] = _norms(coded) * (1 + rounding(dim))
        # the difference itself may round, by less than the last term allows for
        self.residuals[into] = _norms(rows - coded) * (1 + rounding(dim)) + 2 * rounding(dim) * norms

    def __getitem__(self, part: slice | Int[np.ndarray, " some"]) -> "Int8Codes":
        """The codes of some rows: of a slice those themselves, of an array of places a copy."""
        return Int8Codes(self.codes[part], self.scales[part], self.lengths[part], self.residuals[part])

    def products(
        self, query: Float[np.ndarray, " dim"]
    ) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " rows"]]:
        """Return each row's coarse product with a query, and how far its score may lie from it at most."""
        one = Int8Codes.of(query[None])
        assert one is not None
        # the query's norm is at most that of its codes and of what they leave out together
        errors = self.lengths * one.residuals + self.residuals * (one.lengths + one.residuals)
        return self.coarse(one), errors

    def coarse(self, query: "Int8Codes") -> Float[np.ndarray, " rows"]:
        """Return each row's coarse product with the only row of `query`."""
        product = kernel()
        assert product is not None
        coarse: Float[np.ndarray, " rows"] = np.asarray(
            product(query.codes, self.codes, metric="dot", out_dtype="float32")
        )[0]
        coarse *= self.scales * query.scales
        return coarse


def _norms(rows: Float[np.ndarray, "rows dim"]) -> Float[np.ndarray, " rows"]:
    norms: Float[np.ndarray, " rows"] = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    return norms
