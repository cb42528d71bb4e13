"""Equal rows of a matrix, found by a hash of their bits."""

import numpy as np
from jaxtyping import Float, Int

_CHUNK = 1 << 16
"""Values hashed at once: half a MiB of integers, which stays in a core's cache."""

_SPREAD = np.int64(0x1E3779B97F4A7C15)  # odd, with its bits well mixed


def duplicate_rows(
    rows: Float[np.ndarray, "items dim"],
) -> tuple[Int[np.ndarray, " duplicates"], Int[np.ndarray, " duplicates"]]:
    """The rows that repeat an earlier one, and for each the first row that it equals.

    A matrix product may round equal rows differently: its kernels treat the last columns of a tile in another order
    than the others. A tie is then decided by rounding, for or against the model. Ranking and search therefore copy the
    score of the first of equal rows to the rest.

    0.0 and -0.0 count as equal. One pass over float32 or float64 rows, with a few integers a row beside them.

    >>> later, first = duplicate_rows(np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]))
    >>> later.tolist(), first.tolist()
    ([2], [0])
    """
    count, dim = rows.shape
    step = max(1, _CHUNK // max(1, dim))
    # Odd factors keep every bit of a word in the wrapping sum, which is exact in any order.
    factors = np.random.default_rng(1).integers(-(2**62), 2**62, dim) * 2 + 1
    keys = np.empty(count, np.int64)
    word = np.int64 if rows.dtype == np.float64 else np.int32
    for start in range(0, count, step):
        bits = (rows[start : start + step] + 0.0).view(word).astype(np.int64)
        # Round numbers end in zero bits, which a wrapping product would push out at the top: fold them down.
        with np.errstate(over="ignore"):
            bits *= _SPREAD
        bits ^= bits >> 32
        keys[start : start + step] = bits @ factors
    # stable: of equal keys the first row comes first
    order = np.argsort(keys, kind="stable")
    begins = np.ones(count, np.bool_)
    begins[1:] = keys[order[1:]] != keys[order[:-1]]
    first = np.empty(count, np.int64)
    first[order] = order[np.flatnonzero(begins)][np.cumsum(begins) - 1] if count else order
    later = np.flatnonzero(first != np.arange(count))
    # Equal keys of different rows are next to impossible, but a wrong tie would be a wrong rank.
    same = [
        (rows[part] == rows[first[part]]).all(axis=1)
        for part in np.split(later, range(step, len(later), step))
    ]
    later = later[np.concatenate(same)]
    return later, first[later]
