"""Similarities in blocks of queries, from embeddings or from a matrix made elsewhere: what a ranking is made of."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from limner.errors import DataError
from limner.evaluation.twins import twin_rows

Array = np.ndarray | Tensor


@dataclass(frozen=True)
class Scores:
    """The similarities of all queries with all gallery items, a block at a time.

    `write(start, stop, block)` writes those of queries `start` to `stop` − 1 into `block`, of `dtype` on `device`;
    `rescore`, where there is one, then changes them in it to those that rank.
    """

    queries: int
    gallery: int
    dtype: torch.dtype
    device: torch.device
    write: Callable[[int, int, Tensor], None]
    rescore: Callable[[int, int, Tensor], None] | None = None


def of_embeddings(
    queries: Float[Array, "queries query_dim"], gallery: Float[Array, "gallery gallery_dim"]
) -> Scores:
    """Dot products. Gallery rows that are equal bit for bit get the same score exactly.

    Half precision is computed in float32, for which it is copied. Raises `DataError` for NaN or infinite values, shapes
    or devices that do not fit, and values whose products overflow.
    """
    q, g = _matrix(queries, "query embeddings"), _matrix(gallery, "gallery embeddings")
    if q.shape[1] != g.shape[1]:
        raise DataError(f"query embeddings have {q.shape[1]} columns, gallery embeddings {g.shape[1]}")
    if q.device != g.device:
        raise DataError(f"query embeddings are on {q.device}, gallery embeddings on {g.device}; move one")
    dtype = torch.promote_types(q.dtype, g.dtype)
    q, g = q.to(dtype), g.to(dtype)
    if _peak(q) * _peak(g) * q.shape[1] > torch.finfo(dtype).max:
        raise DataError("embeddings are so large that their products overflow; L2-normalise them")
    later, first = twin_rows(g)

    def write(start: int, stop: int, block: Tensor) -> None:
        if block.device.type == "cpu":
            # numpy's products are 1.4 times as fast as torch's on AMD
            np.matmul(q[start:stop].numpy(), g.T.numpy(), out=block.numpy())
        else:
            torch.mm(q[start:stop], g.T, out=block)
        if len(later):
            block[:, later] = block[:, first]

    return Scores(len(q), len(g), dtype, q.device, write)


def of_matrix(scores: Float[Array, "queries gallery"]) -> Scores:
    """Given similarities, higher is better; the matrix (an `np.memmap` too) is read block by block and left as it is.

    Raises `DataError` for what is no matrix of floats; `write` does for NaN and infinite values.
    """
    if scores.ndim != 2 or not _is_floating(scores):
        raise DataError(f"scores: expected a float matrix, got {scores.dtype} of shape {tuple(scores.shape)}")
    device = scores.device if isinstance(scores, Tensor) else torch.device("cpu")
    double = scores.dtype.itemsize > 4

    def write(start: int, stop: int, block: Tensor) -> None:
        rows = scores[start:stop]
        block.copy_(rows.detach() if isinstance(rows, Tensor) else _tensor(np.array(rows, order="C")))
        if not _all_finite(block):
            raise DataError(f"scores: rows {start} to {stop - 1} hold NaN or infinite values")

    kind = torch.float64 if double else torch.float32
    return Scores(len(scores), scores.shape[1], kind, device, write)


def _matrix(values: Array, name: str) -> Tensor:
    if values.ndim != 2 or not _is_floating(values) or not all(values.shape):
        raise DataError(
            f"{name}: expected floats (items, dim), got {values.dtype} of shape {tuple(values.shape)}"
        )
    rows = _tensor(values) if isinstance(values, np.ndarray) else values.detach()
    rows = rows if rows.dtype == torch.float64 else rows.float()
    if not _all_finite(rows):
        bad = int((~rows.isfinite().all(1)).nonzero()[0])
        raise DataError(f"{name}: row {bad} holds NaN or infinite values; the model has diverged")
    return rows


def _tensor(values: np.ndarray) -> Tensor:
    """The same memory where torch can read it: in this machine's byte order, aligned, not backwards."""
    kind = values.dtype.newbyteorder("=")
    if values.dtype != kind or not values.flags.aligned or min(values.strides, default=0) < 0:
        values = np.array(values, kind)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # of memory that must not be written to, which nobody does
        return torch.from_numpy(values)


def _all_finite(rows: Tensor) -> bool:
    lowest, highest = torch.aminmax(rows)  # passes NaN on, and is far faster than isfinite
    return bool(lowest.isfinite() & highest.isfinite())


def _peak(rows: Tensor) -> float:
    lowest, highest = torch.aminmax(rows)
    return max(-float(lowest), float(highest))


def _is_floating(values: Array) -> bool:
    return values.is_floating_point() if isinstance(values, Tensor) else values.dtype.kind == "f"
