"""Vectors in int8, twice: a first value for each number, and a second for what the first leaves over.

All pictures are scored by the first, and the best of them again by both.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Int8

_LARGEST = 127
_FINER = 254
"""The second value's share of the first: what is left over is at most half a step."""

CANDIDATES = 200
"""Pictures that are scored again, at least; the page takes four times as many as it shows."""


@dataclass(frozen=True, eq=False)
class SmallVectors:
    """Rows of `scale` · (`first` + `second` / 254), each off by at most a 64,516th of its largest number."""

    scales: Float[np.ndarray, " rows"]
    first: Int8[np.ndarray, "rows dim"]
    second: Int8[np.ndarray, "rows dim"]

    @classmethod
    def of(cls, matrix: Float[np.ndarray, "rows dim"]) -> "SmallVectors":
        """Round a matrix."""
        scales = np.abs(matrix).max(axis=1, initial=0).astype(np.float32) / np.float32(_LARGEST)
        # a row of zeros has no scale of its own
        scales[scales == 0] = 1
        steps = matrix / scales[:, None]
        first = np.rint(steps)
        return cls(scales, first.astype(np.int8), np.rint((steps - first) * _FINER).astype(np.int8))

    def best(self, queries: Float[np.ndarray, "queries dim"], k: int) -> list[Int[np.ndarray, " best"]]:
        """The k best rows of each query, best first, as the page finds them; equal scores by row."""
        coarse = self.first.astype(np.float32) * self.scales[:, None]
        whole = coarse + self.second.astype(np.float32) * (self.scales[:, None] / _FINER)
        found = []
        for query in queries:
            near = np.argsort(-(coarse @ query), kind="stable")[: max(CANDIDATES, 4 * k)]
            near.sort()
            found.append(near[np.argsort(-(whole[near] @ query), kind="stable")][:k])
        return found

    def to_bytes(self) -> bytes:
        """The bytes that the page reads: scales as float32, lowest byte first, then the first values and the second."""
        return self.scales.astype("<f4").tobytes() + self.first.tobytes() + self.second.tobytes()
