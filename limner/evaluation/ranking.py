"""Ranks the gallery for each query in blocks of queries, and gathers what the measures make of it.

The gallery is never sorted by index and the queries × gallery matrix never exists: a block of scores is
computed, the wrong items at or above each true match are counted, and the block is overwritten.

**Ties are broken against the model**: a wrong item with the same score as a true match stands before it.
Constant scores thus give the worst ranks possible, not a perfect result.

**Equality of scores.** Dot products that agree to within their rounding tie (`limner.evaluation.ties`), so block size,
device, number of threads and a rotation of the embeddings change no rank. Given scores tie where they are equal.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from limner.errors import DataError, SettingsError
from limner.evaluation.curves import Curve, CurveMeasure
from limner.evaluation.measures import STANDARD, VOID, Matches, MeanAveragePrecision, Measure, RecallAt
from limner.evaluation.names import AnyMeasure
from limner.evaluation.relevance import Relevance
from limner.evaluation.scores import Array, Overlap, Scores, Similarities, of_embeddings, of_matrix
from limner.evaluation.ties import FirstTies, TiedFigure


@dataclass(frozen=True, eq=False)
class RankingResult:
    """The values of the measures, query by query and over the queries that have a true match.

    - `first_ranks`: rank of each query's first true match, from 1; 0 for a query that has none in the gallery.
    - `gallery_size`: number of items ranked.
    - `counts`: number of each query's true matches in the gallery.
    - `ties`: what ties with each query's first true match; all 0 for a query that has none.
    """

    first_ranks: Int[np.ndarray, " queries"]
    gallery_size: int
    counts: Int[np.ndarray, " queries"]
    ties: FirstTies
    _each: dict[str, Float[np.ndarray, " queries"]]
    _curves: dict[str, Float[np.ndarray, " places"]]
    similarities: Similarities | None

    @property
    def matched(self) -> Bool[np.ndarray, " queries"]:
        """Which queries have a true match; measures are taken over these alone."""
        return self.first_ranks > 0

    @property
    def without_match(self) -> int:
        """Number of queries that no gallery item matches."""
        return int(np.count_nonzero(self.first_ranks == 0))

    def each(self, measure: Measure) -> Float[np.ndarray, " queries"]:
        """The value of each query, a share from 0 to 1 or a rank; NaN without a match."""
        return self._each[str(measure)]

    def value(self, measure: Measure | Overlap) -> float:
        """A measure over the queries. Raises `DataError` where no query has a match."""
        self._expect_matches()
        if isinstance(measure, Overlap):
            assert self.similarities is not None
            return self.similarities.overlap
        return measure.over(self._each[str(measure)][self.matched])

    def tied_recalls(self, measures: Sequence[AnyMeasure]) -> dict[str, TiedFigure]:
        """How many queries' R@K ties decide, with its mean over all orders of tied items; of these measures' R@K.

        Raises `DataError` where no query has a match.
        """
        self._expect_matches()
        return {
            str(measure): TiedFigure(
                queries=int(np.count_nonzero(self.ties.decide(measure.k)[self.matched])),
                pessimistic=self.value(measure),
                expected=measure.over(self.ties.expected(measure.k)[self.matched]),
            )
            for measure in measures
            if isinstance(measure, RecallAt)
        }

    def chance(self, measures: Sequence[AnyMeasure]) -> dict[str, float]:
        """R@K of a random ranking, in percent, of these measures' R@K.

        Raises `DataError` where no query has a match.
        """
        self._expect_matches()
        # As if all items tied. Queries with as many matches have the same chance, so each number is taken once.
        counts, queries = np.unique(self.counts[self.matched], return_counts=True)
        every = FirstTies(np.zeros_like(counts), self.gallery_size - counts, counts)
        return {
            str(measure): 100 * float(np.average(every.expected(measure.k), weights=queries))
            for measure in measures
            if isinstance(measure, RecallAt)
        }

    def curve(self, measure: CurveMeasure) -> Curve:
        """A curve over the queries. Raises `DataError` where no query has a match."""
        self._expect_matches()
        # Sums are kept, not the 101 places of each query's curve.
        mean = self._curves[str(measure)] / np.count_nonzero(self.matched)
        return Curve(measure.x, tuple(measure.places(self.gallery_size)), tuple(mean.tolist()))

    def _expect_matches(self) -> None:
        if not self.matched.any():
            raise DataError(
                "no query has a true match in the gallery; are the group codes of both sides the same?"
            )


class RankingAccumulator:
    """Gathers blocks: a value a query for measures, a sum for curves, counts for similarities."""

    def __init__(self, measures: Sequence[AnyMeasure], queries: int, gallery_size: int) -> None:
        self._measures = [measure for measure in measures if isinstance(measure, Measure)]
        self._drawn = [measure for measure in measures if isinstance(measure, CurveMeasure)]
        overlaps = any(isinstance(measure, Overlap) for measure in measures)
        self.similarities = Similarities() if overlaps else None
        # 0 is no rank, so it marks queries without a match. A share may be 0, so values are NaN there.
        self._first = np.zeros(queries, dtype=np.int64)
        self._each = {str(measure): np.full(queries, np.nan) for measure in self._measures}
        self._curves = {str(curve): np.zeros(len(curve.places(gallery_size))) for curve in self._drawn}
        self._counts = np.zeros(queries, np.int64)
        self._ties = FirstTies(*np.zeros((3, queries), np.int64))
        self.gallery_size = gallery_size

    def add(self, queries: Int[np.ndarray, " block"], matches: Matches, ties: FirstTies) -> None:
        """The matches of some queries, each of which has one, and what ties with their first ones."""
        self._first[queries] = matches.ranks[:, 0]
        self._counts[queries] = matches.counts
        for kept, of_block in zip(vars(self._ties).values(), vars(ties).values(), strict=True):
            kept[queries] = of_block
        for measure in self._measures:
            self._each[str(measure)][queries] = measure.each(matches)
        for curve in self._drawn:
            self._curves[str(curve)] += curve.each(matches).sum(0)

    def result(self) -> RankingResult:
        """The result of all blocks."""
        return RankingResult(
            self._first,
            self.gallery_size,
            self._counts,
            self._ties,
            self._each,
            self._curves,
            self.similarities,
        )


# Measured with it: 5,000 × 25,000 in 3.8 s, 148 MB above the embeddings at 100,000 × 500,000.
_BLOCK = 1 << 24
"""Scores held at once: 64 MiB of float32."""

# 4 MiB of float32.
_CHUNK = 1 << 20
"""Scores compared at once on a CPU: few enough to stay in its cache until each true match has been compared."""

_COUNT_BY_SORTING = 11
"""From this many bounds a query on, sorting a row costs less than one comparison pass for each."""


def rank_embeddings(
    queries: Float[Array, "queries query_dim"],
    gallery: Float[Array, "gallery gallery_dim"],
    relevance: Relevance,
    measures: Sequence[AnyMeasure] = STANDARD,
    *,
    block: int | None = None,
    rescored: Callable[[Scores], Scores] | None = None,
) -> RankingResult:
    """Rank the gallery for each query by dot product, and measure.

    `rescored` makes other scores of these, block by block (`limner.evaluation.reranking`).

    Arrays or tensors, of one width and device; half precision is computed in float32, float64 in float64.
    `block` is the number of queries scored at once; the default holds 2**24 scores. Memory above the
    inputs: a block of scores (64 MiB in float32; on a GPU up to four), a few dozen bytes a query and an item and
    eight bytes a query and measure; a gallery beyond 2**24 items takes rows of scores. Embeddings in half precision are
    copied in float32.

    Raises `DataError` for NaN or infinite values, shapes that do not fit, and values whose products overflow.
    """
    similarities = of_embeddings(queries, gallery)
    return _rank(similarities if rescored is None else rescored(similarities), relevance, measures, block)


def rank_scores(
    scores: Float[Array, "queries gallery"],
    relevance: Relevance,
    measures: Sequence[AnyMeasure] = STANDARD,
    *,
    block: int | None = None,
) -> RankingResult:
    """Rank the gallery for each query by given scores, higher is better, and measure.

    For rankings made elsewhere: the matrix (an `np.memmap` too) is read block by block and left as it is.
    Raises `DataError` for NaN or infinite scores and for a shape that does not fit the relevance.
    """
    return _rank(of_matrix(scores), relevance, measures, block)


def first_match_ranks(
    queries: Float[Array, "queries query_dim"],
    gallery: Float[Array, "gallery gallery_dim"],
    query_groups: Any,
    gallery_groups: Any,
) -> Int[np.ndarray, " queries"]:
    """Rank of each query's first true match: 1 + the wrong items whose score is at least that match's.

    0 for a query without a match. `rank_embeddings` says what is taken, refused and held in memory.

    >>> eye = np.eye(3, dtype=np.float32)
    >>> first_match_ranks(eye, eye[[1, 0, 0]], [0, 1, 2], [1, 0, 5]).tolist()
    [2, 1, 0]
    """
    relevance = Relevance.from_groups(query_groups, gallery_groups)
    return rank_embeddings(queries, gallery, relevance, ()).first_ranks


def average_precisions(
    queries: Float[Array, "queries query_dim"],
    gallery: Float[Array, "gallery gallery_dim"],
    query_groups: Any,
    gallery_groups: Any,
) -> Float[np.ndarray, " queries"]:
    """Average precision of each query over all its true matches, plain (not trapezoidal).

    The mean over true matches, best first, of (position among the true ones) / (rank, ties against the
    model). NaN for a query without a match. `rank_embeddings` says what is taken, refused and held.
    """
    relevance = Relevance.from_groups(query_groups, gallery_groups)
    measure = MeanAveragePrecision()
    return rank_embeddings(queries, gallery, relevance, (measure,)).each(measure)


def _rank(
    similarities: Scores, relevance: Relevance, measures: Sequence[AnyMeasure], block: int | None
) -> RankingResult:
    """Gather blocks of queries."""
    _expect(relevance, similarities.queries, similarities.gallery)
    accumulator = RankingAccumulator(measures, relevance.queries, relevance.gallery_size)
    size = _block_size(relevance, block)
    # One block for all: fresh memory would cost a page fault every thousand scores.
    room = torch.empty(
        min(size, relevance.queries),
        relevance.gallery_size,
        dtype=similarities.dtype,
        device=similarities.device,
    )
    for start in range(0, relevance.queries, size):
        stop = min(start + size, relevance.queries)
        counts = relevance.counts[start:stop]
        scores = room[: stop - start]
        similarities.write(start, stop, scores)
        trues = _true_scores(scores, *relevance.listed(start, stop), counts)
        # The overlap is that of the embedding's cosines, so it is counted before a reranker changes the scores.
        if accumulator.similarities is not None:
            accumulator.similarities.add(scores, trues[trues > -torch.inf])
        if similarities.rescore is not None:
            similarities.rescore(start, stop, scores)
            trues = _true_scores(scores, *relevance.listed(start, stop), counts)
        # No query of the block has a match: nothing to measure, but the overlap has counted its pairs.
        if not trues.shape[1]:
            continue
        bounds = _bounds(trues, similarities.tolerance(start, stop, trues))
        _add(accumulator, start, counts, trues, bounds, _at_least(scores, bounds))
    return accumulator.result()


def _bounds(trues: Float[Tensor, "queries most"], tolerance: Float[Tensor, "queries most"]) -> Tensor:
    """The scores of each row that are counted: of its true matches, and one more."""
    # A true match stands behind all that reach its score less the tolerance; beyond the last bound, an item is
    # above the first true match and not tied with it.
    beyond = torch.nextafter(trues[:, :1] + tolerance[:, :1], torch.full_like(trues[:, :1], torch.inf))
    return torch.cat([trues - tolerance, beyond], dim=1)


def _add(
    accumulator: RankingAccumulator,
    start: int,
    counts: Int[np.ndarray, " queries"],
    trues: Float[Tensor, "queries most"],
    bounds: Float[Tensor, "queries bounds"],
    reached: Int[Tensor, "queries bounds"],
) -> None:
    """Gather the queries from `start` on, of whose items so many reach each bound."""
    # True matches do not push each other back: of the items that reach a bound, the true ones are taken off.
    reached_by_true = _at_least_sorted(trues, bounds)
    wrong = (reached - reached_by_true).cpu().numpy()
    wrong, above = wrong[:, :-1], wrong[:, -1]
    # A match's rank: its place among the true ones and the wrong items at or above it.
    ranks = np.arange(1, wrong.shape[1] + 1) + wrong
    ranks[np.arange(wrong.shape[1]) >= counts[:, None]] = VOID
    ties = np.stack([above, wrong[:, 0] - above, reached_by_true[:, 0].cpu().numpy()])
    # Queries without a match are left out here and stay 0 and NaN.
    found = np.flatnonzero(counts)
    matches = Matches(ranks[found], counts[found], accumulator.gallery_size)
    accumulator.add(start + found, matches, FirstTies(*ties[:, found]))


def _true_scores(
    scores: Float[Tensor, "queries gallery"],
    items: Int[np.ndarray, " listed"],
    starts: Int[np.ndarray, " queries"],
    counts: Int[np.ndarray, " queries"],
) -> Float[Tensor, "queries most"]:
    """Scores of the true matches, best first; −inf beyond a query's count."""
    place = np.arange(int(counts.max()))
    # Clamped: a query of fewer matches would read behind the list. What it reads is masked next.
    listed = np.minimum(starts[:, None] + place, len(items) - 1)
    void = torch.from_numpy(place >= counts[:, None]).to(scores.device)
    # A copy, since `_at_least` may leave the rows of `scores` sorted.
    trues = scores.gather(1, torch.from_numpy(items[listed]).to(scores.device))
    return trues.masked_fill_(void, -torch.inf).sort(1, descending=True).values


def _block_size(relevance: Relevance, block: int | None) -> int:
    """Queries scored at once."""
    # Each true match of a query takes some 48 bytes of work space, as much as twelve scores.
    most = int(relevance.counts.max())
    if block is not None and block < 1:
        raise SettingsError(f"block: expected at least 1 query, got {block}")
    return block or max(1, _BLOCK // (relevance.gallery_size + 12 * most))


def _at_least(scores: Tensor, bounds: Tensor) -> Tensor:
    """For each bound the number of items in its row that reach it. May leave `scores` sorted."""
    # Captions have one to five matches a query, classes and labels hundreds: neither way serves both.
    if bounds.shape[1] < _COUNT_BY_SORTING:
        # Counting in the scores' own type is many times faster than in booleans, and exact below 2**24 items.
        exact = scores.dtype if scores.shape[1] < 2**24 else torch.float64
        # All bounds are compared while a few rows are in the cache: 0.3 s in place of 0.9 s for 5,000 × 25,000.
        rows = max(1, _CHUNK // scores.shape[1]) if scores.device.type == "cpu" else len(scores)
        room = torch.empty_like(scores[:rows])
        counts = torch.empty(bounds.shape, dtype=exact, device=scores.device)
        for chunk, of_rows, counted in zip(
            *(torch.split(values, rows) for values in (scores, bounds, counts)), strict=True
        ):
            reached = room[: len(chunk)]
            for place, bound in enumerate(of_rows.T):
                counted[:, place] = torch.ge(chunk, bound[:, None], out=reached).sum(1, dtype=exact)
        return counts.long()
    if scores.device.type == "cpu":
        scores.numpy().sort(axis=1)  # several times faster than torch's on a CPU
    else:
        scores = scores.sort(1).values
    return scores.shape[1] - torch.searchsorted(scores, bounds)


def _at_least_sorted(trues: Tensor, bounds: Tensor) -> Tensor:
    """For each bound the number of its row's descending scores that reach it."""
    # `searchsorted` needs ascending rows; its left side counts equal scores as reached.
    return trues.shape[1] - torch.searchsorted(trues.flip(1).contiguous(), bounds)


def _expect(relevance: Relevance, queries: int, gallery: int) -> None:
    if (relevance.queries, relevance.gallery_size) != (queries, gallery):
        raise DataError(
            f"group codes are for {relevance.queries} queries and {relevance.gallery_size} gallery items, "
            f"but there are {queries} and {gallery}; give one code an item"
        )
