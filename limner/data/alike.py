"""Pictures that are the same in another size, format or quality, told by small copies of them; and close rows."""

from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import Float, Int, UInt8
from PIL import Image

_SAME = 0.2
"""Root mean square difference of two small pictures at mean 0 and deviation 1, up to which they are one picture.

A quarter of the size as WebP was up to 0.19 away, 20 % brighter 0.13, ten pixels less on each side 0.39 in the middle,
and no other of 400 photographs below 0.44 (docs/log/2026-11-29.md).
"""

SMALL = 16
"""Width and height of the small pictures."""

VALUES = 3 * SMALL**2
"""Values of a small picture."""

_FLAT = 0.05
"""Smallest deviation of values that counts as one, of the range from black to white: below it is noise."""

_DIMENSIONS = 64
"""Dimensions of the first look."""

_BLOCK = 512
"""Rows of a block."""

_COLUMNS = 1 << 16
"""Rows that a block is held against at once."""

_SAMPLE = 4096
"""Rows that say which directions are looked at first."""

Rows = Int[np.ndarray, " rows"]
Matrix = Float[np.ndarray, "rows dim"]


def small_copy(image: Image.Image) -> UInt8[np.ndarray, " values"]:
    """A picture as a row of 16 × 16 colours; a JPEG that is not loaded yet is decoded at no more than it takes."""
    # eight times as many pixels a side: of hardly more than sixteen some colours are of one pixel, others of two, and
    # 144 of 200 copies at 160 pixels were other pictures
    image.draft("RGB", (8 * SMALL, 8 * SMALL))
    return np.asarray(image.convert("RGB").resize((SMALL, SMALL), Image.Resampling.BOX)).ravel()


def same_pictures(small: UInt8[np.ndarray, "pictures values"]) -> Iterator[tuple[int, int]]:
    """All pairs of small pictures that are one picture, each once, the lower row first."""
    values = small.astype(np.float32) / 255
    deviations = np.maximum(values.std(1, keepdims=True), _FLAT) if len(values) else 1
    # divided by the root of their number, a distance is the root of a mean
    scaled = (values - values.mean(1, keepdims=True)) / deviations / np.float32(np.sqrt(VALUES))
    return close_pairs(scaled.__getitem__, len(scaled), _SAME**2)


def close_pairs(read: Callable[[Rows], Matrix], count: int, most: float) -> Iterator[tuple[int, int]]:
    """All pairs of rows whose squared distance is at most `most`, each once, the lower row first.

    `read` gives rows by their numbers. In any orthonormal directions two rows are no further apart than in all. So a
    first look at the directions in which rows differ most leaves pairs out, and the rest is computed.
    """
    every = np.arange(count)
    blocks = [every[start : start + _BLOCK] for start in range(0, count, _BLOCK)]
    if not blocks:
        return
    middle, basis = _directions(read(every[:: max(1, count // _SAMPLE)]))
    short = np.concatenate([(read(block) - middle) @ basis for block in blocks])
    halves = np.square(short).sum(1, keepdims=True) / 2
    ones = np.ones_like(halves)
    # one product says a · b - |a|²/2 - |b|²/2 = -|a - b|²/2
    left = np.concatenate([short, -halves, ones], 1)
    right = np.ascontiguousarray(np.concatenate([short, ones, -halves], 1).T)
    # rounding must take no pair away: the products are of numbers about 1
    limit = -most / 2 - 1e-4
    # one memory for all products: the system hands out each page of new memory by itself, which took most of the time
    memory = np.empty(_BLOCK * min(count, _COLUMNS), np.float32)
    for block in blocks:
        for start in range(int(block[0]), count, _COLUMNS):
            end = min(start + _COLUMNS, count)
            product = memory[: len(block) * (end - start)].reshape(len(block), end - start)
            np.matmul(left[block[0] : block[0] + len(block)], right[:, start:end], out=product)
            if start == block[0]:
                # each is close to itself
                np.fill_diagonal(product, -np.inf)
            # the largest of a row first, which numpy finds faster than all that reach the limit
            some = np.flatnonzero(product.max(1) >= limit)
            rows, columns = np.nonzero(product[some] >= limit)
            found = np.stack([some[rows] + block[0], columns + start], 1)
            found = found[found[:, 0] < found[:, 1]]
            for pairs in np.array_split(found, range(_BLOCK, len(found), _BLOCK)):
                # float64: copies are at a distance of 0, whatever `most` is
                apart = read(pairs[:, 0]).astype(np.float64) - read(pairs[:, 1])
                close = np.einsum("nd,nd->n", apart, apart) <= most + 1e-9
                yield from map(tuple, pairs[close].tolist())


def _directions(rows: Matrix) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, "dim few"]]:
    """The middle of rows, and orthonormal directions in which they differ most."""
    middle = rows.mean(0)
    centred = (rows - middle).astype(np.float64)
    _, directions = np.linalg.eigh(centred.T @ centred)
    return middle, np.ascontiguousarray(directions[:, ::-1][:, :_DIMENSIONS], np.float32)
