"""Similarities in blocks of queries: from embeddings or from a matrix, and how true and wrong pairs' overlap.

Gallery rows that are equal bit for bit get equal scores (`duplicate_rows`), so that ties are ties.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from limner.errors import DataError
from limner.evaluation.duplicates import duplicate_rows
from limner.evaluation.ties import row_norms, tolerance_of_unit_rows

_CHUNK = 1 << 17
"""Scores put into bins at once: 512 KiB of float32, which stay in a core's cache from one step to the next."""

_ALONE = 1 << 15
"""Bins counted at once: as many as torch leaves to one thread.

Two waited for those of numpy's product, which spin for a while: 0.8 s in place of 0.3 s for 5,000 × 25,000."""

_LONG = 1.5
"""From so many times the median norm on, the tolerance may not cover what products of equal rows differ by."""


Array = np.ndarray | Tensor


@dataclass(frozen=True)
class Scores:
    """The similarities of all queries with all gallery items, a block at a time.

    `write(start, stop, block)` writes those of queries `start` to `stop` − 1 into `block`, of `dtype` on `device`;
    `rescore`, where there is one, then changes them in it to those that rank. `tolerance(start, stop, scores)` is how
    far from some of these queries' scores another still counts as equal (`limner.evaluation.ties`). `pairs(queries,
    items)`, where there is one, gives the scores of single pairs, which agree with `write`'s within the tolerance.
    `cosines` are surely between −1 and 1, but for rounding.
    """

    queries: int
    gallery: int
    dtype: torch.dtype
    device: torch.device
    write: Callable[[int, int, Tensor], None]
    rescore: Callable[[int, int, Tensor], None] | None = None
    tolerance: Callable[[int, int, Tensor], Tensor] = lambda _start, _stop, scores: torch.zeros_like(scores)
    pairs: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    cosines: bool = False


def of_embeddings(
    queries: Float[Array, "queries query_dim"], gallery: Float[Array, "gallery gallery_dim"]
) -> Scores:
    """Dot products, equal within their rounding. Gallery rows that are equal bit for bit get the same score exactly.

    Half precision is computed in float32, for which it is copied. Raises `DataError` for NaN or infinite values, shapes
    or devices that do not fit, and values whose products overflow or vanish.
    """
    return _products(*_sides(queries, gallery))


def both_ways(
    images: Float[Array, "images image_dim"], sentences: Float[Array, "sentences sentence_dim"]
) -> tuple[Scores, Scores]:
    """`of_embeddings` of sentences for images and of images for sentences, with what they share made once."""
    of_images, of_sentences = _sides(images, sentences)
    return _products(of_images, of_sentences), _products(of_sentences, of_images)


@dataclass(frozen=True, eq=False)
class _Side:
    """The embeddings of one side: rows as they are multiplied, their norms, and their largest absolute values.

    `later` are rows that equal an earlier one bit for bit, `first` the first that each equals.
    """

    rows: Float[Tensor, "items dim"]
    norms: Float[Tensor, " items"]
    peaks: Float[Tensor, " items"]
    later: Int[Tensor, " later"]
    first: Int[Tensor, " later"]

    @classmethod
    def of(cls, rows: Float[Tensor, "items dim"], peaks: Float[Tensor, " items"]) -> "_Side":
        # Equal rows have equal peaks, and few others do: only they are hashed.
        _, places, counts = torch.unique(peaks, return_inverse=True, return_counts=True)
        alike = torch.nonzero(counts[places] > 1)[:, 0]
        # on the CPU also for an accelerator: a gallery is read once, and has no row twice as a rule
        later, first = (
            torch.from_numpy(one).to(rows.device) for one in duplicate_rows(rows[alike].cpu().numpy())
        )
        return cls(rows, row_norms(rows), peaks, alike[later], alike[first])

    def has_long_duplicates(self) -> bool:
        """True if equal rows are so long that their scores may differ by more than the tolerance."""
        return bool((self.norms[self.later] > _LONG * self.norms.median()).any())


def _sides(queries: Array, gallery: Array) -> tuple[_Side, _Side]:
    q, g = _matrix(queries, "query embeddings"), _matrix(gallery, "gallery embeddings")
    if q.shape[1] != g.shape[1]:
        raise DataError(f"query embeddings have {q.shape[1]} columns, gallery embeddings {g.shape[1]}")
    if q.device != g.device:
        raise DataError(f"query embeddings are on {q.device}, gallery embeddings on {g.device}; move one")
    # float64 of either side is kept: rounding it to float32 would make ties that are none.
    dtype = torch.promote_types(q.dtype, g.dtype)
    q, g = q.to(dtype), g.to(dtype)
    of_queries, of_gallery = _finite_peaks(q, "query embeddings"), _finite_peaks(g, "gallery embeddings")
    # An overflow would give infinite scores, which tie, and a tie counts against the model without a word.
    if float(of_queries.max()) * float(of_gallery.max()) * q.shape[1] > torch.finfo(dtype).max:
        raise DataError("embeddings are so large that their products overflow; L2-normalise them")
    return _Side.of(q, of_queries), _Side.of(g, of_gallery)


def _products(queries: _Side, gallery: _Side) -> Scores:
    q, g = queries.rows, gallery.rows
    _expect_products(queries.peaks, gallery.peaks, q.shape[1])
    unit = tolerance_of_unit_rows(g.shape[1], torch.finfo(g.dtype).eps) * gallery.norms.median()

    def tolerance(start: int, stop: int, chosen: Tensor) -> Tensor:
        return (queries.norms[start:stop] * unit)[:, None].expand_as(chosen).to(chosen.dtype)

    def write(start: int, stop: int, block: Tensor) -> None:
        if block.device.type == "cpu":
            # numpy's products (OpenBLAS) took 2.8 s where torch's took 3.9 s on an EPYC without AMX.
            np.matmul(q[start:stop].numpy(), g.T.numpy(), out=block.numpy())
        else:
            torch.mm(q[start:stop], g.T, out=block)
        if len(gallery.later):
            block[:, gallery.later] = block[:, gallery.first]

    def pairs(of_queries: np.ndarray, items: np.ndarray) -> np.ndarray:
        found = np.empty(len(items), q.numpy().dtype)
        step = max(1, _CHUNK // q.shape[1])
        for start in range(0, len(items), step):
            part = slice(start, start + step)
            np.einsum("nd,nd->n", q.numpy()[of_queries[part]], g.numpy()[items[part]], out=found[part])
        return found

    # By Cauchy and Schwarz; half of what is allowed is left to the rounding of norms and products.
    cosines = float(queries.norms.max() * gallery.norms.max()) <= 1 + _ROUNDING / 2
    # A copy of a long row would tie with it by `write` alone.
    known = q.device.type == "cpu" and not (queries.has_long_duplicates() or gallery.has_long_duplicates())
    return Scores(
        *(len(q), len(g), q.dtype, q.device, write),
        tolerance=tolerance,
        pairs=pairs if known else None,
        cosines=cosines,
    )


def _expect_products(
    queries: Float[Tensor, " queries"], gallery: Float[Tensor, " gallery"], dim: int
) -> None:
    """Raise `DataError` if the products of a query are too small for the type; rows of zeros may be.

    Given are the largest absolute values of the rows.
    """
    # Below its smallest normal number a type rounds to whole steps, and then to zero: all items of the query would tie,
    # or nearly, and ties count against the model without a word. Each of d terms may be lost; their errors add as √d.
    least = torch.finfo(queries.dtype).tiny * dim**0.5
    known = gallery[gallery > 0]
    if not len(known):
        return
    # The median: a single tiny row of a gallery has a score of zero, and loses nothing by it.
    usual = known.median()
    small = (queries > 0) & (queries * usual < least)
    if small.any():
        row = int(small.nonzero()[0])
        raise DataError(
            f"embeddings are so small that their products vanish (query row {row}: up to {float(queries[row]):.2g}, "
            f"gallery: {float(usual):.2g}); L2-normalise them"
        )


def of_matrix(scores: Float[Array, "queries gallery"]) -> Scores:
    """Given similarities, higher is better; the matrix (an `np.memmap` too) is read block by block and left as it is.

    Raises `DataError` for what is no matrix of floats; `write` does for NaN and infinite values.
    """
    if scores.ndim != 2 or not _is_floating(scores):
        raise DataError(f"scores: expected a float matrix, got {scores.dtype} of shape {tuple(scores.shape)}")
    device = scores.device if isinstance(scores, Tensor) else torch.device("cpu")
    # Half precision is compared in float32, which holds each of its values exactly.
    double = scores.dtype.itemsize > 4

    def write(start: int, stop: int, block: Tensor) -> None:
        # Of a memmap only these rows are read from the disk.
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
    # float16 and bf16: sums of 2,048 products in half precision would decide ranks by rounding.
    return rows if rows.dtype == torch.float64 else rows.float()


def _tensor(values: np.ndarray) -> Tensor:
    """Share memory where torch can read it, else copy: this machine's byte order, aligned, not backwards."""
    kind = values.dtype.newbyteorder("=")
    if values.dtype != kind or not values.flags.aligned or min(values.strides, default=0) < 0:
        values = np.array(values, kind)
    with warnings.catch_warnings():
        # torch warns that the memory must not be written to; nobody writes to it.
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(values)


def _all_finite(rows: Tensor) -> bool:
    # aminmax passes NaN on, and needs no mask of the matrix's size as isfinite does.
    lowest, highest = torch.aminmax(rows)
    return bool(lowest.isfinite() & highest.isfinite())


def _finite_peaks(rows: Tensor, name: str) -> Tensor:
    """The largest absolute value of each row. Raises `DataError` where it is NaN or infinite."""
    # aminmax passes NaN on, and needs no copy of absolute values
    lowest, highest = torch.aminmax(rows, dim=1)
    peaks = torch.maximum(-lowest, highest)
    if not peaks.isfinite().all():
        bad = int((~peaks.isfinite()).nonzero()[0])
        raise DataError(f"{name}: row {bad} holds NaN or infinite values; the model has diverged")
    return peaks


def _is_floating(values: Array) -> bool:
    return values.is_floating_point() if isinstance(values, Tensor) else values.dtype.kind == "f"


BINS = 200
"""Bins of width 0.01 over cosines from −1 to 1."""

_ROUNDING = 1e-3
"""How far beyond ±1 a cosine of half-precision rows may lie."""


@dataclass(frozen=True)
class Overlap:
    """overlap-S: the area that the distributions of true and of wrong pairs' cosines share, from 0 (apart) to 1.

    Source: dual-path TOMM 2020, section 4.2, Eq. 10: S = ∫ min(P(x), Q(x)) dx over [−1, 1], with P and Q as histograms
    of 200 bins, every pair of a query and a gallery item counted. Lower is better; the same in both directions.

    True pairs at 0.5 and 0.9, wrong ones at 0.1, 0.1 and 0.5, share half of one and a third of the other:

    >>> similarities = Similarities()
    >>> similarities.add(torch.tensor([[0.5, 0.1, 0.1, 0.9, 0.5]]), torch.tensor([0.5, 0.9]))
    >>> round(similarities.overlap, 4)
    0.3333
    """

    def __str__(self) -> str:
        return "overlap-S"


@dataclass(eq=False)
class Similarities:
    """Histograms of the cosines of true pairs and of all pairs, gathered block by block."""

    true: Int[np.ndarray, " bins"] = field(default_factory=lambda: np.zeros(BINS, np.int64))
    every: Int[np.ndarray, " bins"] = field(default_factory=lambda: np.zeros(BINS, np.int64))

    def add(
        self, scores: Float[Tensor, "queries gallery"], trues: Float[Tensor, " pairs"], *, sure: bool = False
    ) -> None:
        """Count a block of scores and those of its true pairs.

        Raises `DataError` for scores that are no cosines, unless the caller is `sure` that they are.
        """
        self.every += _histogram(scores, sure)
        self.true += _histogram(trues, sure)

    @property
    def overlap(self) -> float:
        """S of Eq. 10. Raises `DataError` where there are no true or no wrong pairs."""
        # Wrong pairs are never looked up: there are as many as scores, so all are counted and the true ones taken off.
        wrong = self.every - self.true
        if not self.true.any() or not wrong.any():
            raise DataError("overlap-S compares true with wrong pairs, and here are none of one kind")
        return float(np.minimum(self.true / self.true.sum(), wrong / wrong.sum()).sum())

    def histograms(self) -> dict[str, Any]:
        """The edges of the bins and the counts, as plain values."""
        edges = np.linspace(-1, 1, BINS + 1).round(2)
        return {
            "edges": edges.tolist(),
            "true": self.true.tolist(),
            "wrong": (self.every - self.true).tolist(),
        }


def _histogram(scores: Tensor, sure: bool) -> Int[np.ndarray, " bins"]:
    # int64: 100,000 × 500,000 pairs are more than 2^32.
    counts = torch.zeros(BINS + 1, dtype=torch.int64, device=scores.device)
    for chunk in torch.split(scores.flatten(), _CHUNK) if scores.numel() else ():
        if not sure:
            _expect_cosines(chunk)
        # 200 bins and one for 1 itself fit into a byte: bincount then reads an eighth of what it would of integers.
        for few in torch.split(_bins(chunk), _ALONE):
            counts += torch.bincount(few, minlength=BINS + 1)
    counts[BINS - 1] += counts[BINS]
    return np.asarray(counts[:BINS].cpu().numpy())


def _bins(scores: Float[Tensor, " scores"]) -> Tensor:
    """The bin of each score, a byte."""
    if scores.device.type != "cpu":
        return scores.add(1).mul_(BINS / 2).byte()
    # numpy's cast takes a fifth of the time of torch's
    bins = scores.numpy() + np.float32(1)
    bins *= np.float32(BINS / 2)
    return torch.from_numpy(bins.astype(np.uint8))


def _expect_cosines(scores: Tensor) -> None:
    lowest, highest = (float(edge) for edge in torch.aminmax(scores))
    # Without this test, products of rows that are not normalised would lie in no bin.
    if max(-lowest, highest) > 1 + _ROUNDING:
        raise DataError(
            f"overlap-S is of cosines, from -1 to 1, and a score is {max(lowest, highest, key=abs):.4g}; "
            "L2-normalise the embeddings"
        )
