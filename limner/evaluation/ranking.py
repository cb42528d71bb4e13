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
from limner.evaluation.counting import Reached, at_least, at_least_sorted
from limner.evaluation.curves import Curve, CurveMeasure
from limner.evaluation.measures import STANDARD, VOID, Matches, MeanAveragePrecision, Measure, RecallAt
from limner.evaluation.names import AnyMeasure
from limner.evaluation.relevance import Relevance
from limner.evaluation.scores import Array, Overlap, Scores, Similarities, both_ways, of_embeddings, of_matrix
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
        return {measure.x: tuple(measure.places(self.gallery_size)), "precision": tuple(mean.tolist())}

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


# Measured with it: 5,000 × 25,000, both directions, in 4.3 s on one thread, 96 to 119 MB above the embeddings.
_BLOCK = 1 << 24
"""Scores held at once: 64 MiB of float32."""

# 512 KiB of float32: a core's own cache, for all that is made of a score in both directions.
_SEEN = 1 << 17
"""Scores of a product that are counted in both directions at once."""

_PAIRS = 1 << 20
"""Pairs of true matches, and places for them, up to which both directions are ranked from one product."""


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


def rank_both(
    images: Float[Array, "images image_dim"],
    sentences: Float[Array, "sentences sentence_dim"],
    of_images: Relevance,
    of_sentences: Relevance,
    measures: Sequence[AnyMeasure] = STANDARD,
    *,
    block: int | None = None,
) -> tuple[RankingResult, RankingResult]:
    """`rank_embeddings` of the sentences for each image, and of the images for each sentence.

    On a CPU both are counted in one product of all pairs, unless there are very many true matches or long rows that are
    equal; the true matches of the side with fewer items are multiplied beforehand. `of_images` and `of_sentences` say
    the same pairs. The overlap, which both directions share, is in the first result alone. Memory and errors are those
    of `rank_embeddings`.
    """
    forward, backward = both_ways(images, sentences)
    of_ranks = [measure for measure in measures if not isinstance(measure, Overlap)]
    places = max(relevance.queries * int(relevance.counts.max()) for relevance in (of_images, of_sentences))
    if forward.pairs is None or places > _PAIRS:
        return _rank(forward, of_images, measures, block), _rank(backward, of_sentences, of_ranks, block)
    # Blocks of the longer side: nearer to squares, they are multiplied faster.
    if forward.queries > backward.queries:
        return _rank_both(forward, backward, of_images, of_sentences, (measures, of_ranks), block)
    second, first = _rank_both(backward, forward, of_sentences, of_images, (of_ranks, measures), block)
    return first, second


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
        _add(accumulator, start, counts, trues, bounds, at_least(scores, bounds))
    return accumulator.result()


def _rank_both(
    similarities: Scores,
    transposed: Scores,
    of_rows: Relevance,
    of_columns: Relevance,
    measures: tuple[Sequence[AnyMeasure], Sequence[AnyMeasure]],
    block: int | None,
) -> tuple[RankingResult, RankingResult]:
    """Gather blocks of rows, and of each row what it adds to the columns."""
    _expect(of_rows, similarities.queries, similarities.gallery)
    _expect(of_columns, similarities.gallery, similarities.queries)
    by_row = RankingAccumulator(measures[0], of_rows.queries, of_rows.gallery_size)
    by_column = RankingAccumulator(measures[1], of_columns.queries, of_columns.gallery_size)
    overlap = by_row.similarities or by_column.similarities
    size = _block_size(of_rows, block)
    room = torch.empty(min(size, of_rows.queries), of_rows.gallery_size, dtype=similarities.dtype)
    rows, columns = _listed_pairs(of_rows)
    assert similarities.pairs is not None
    values = similarities.pairs(rows, columns)
    # A column's bounds are needed before its first score.
    column_trues = _of_queries(columns, values, of_columns.counts)
    column_bounds = _bounds(column_trues, transposed.tolerance(0, of_columns.queries, column_trues))
    reached_by_column = torch.zeros(column_bounds.shape, dtype=torch.long)
    if overlap is not None:
        overlap.add(room[:0], torch.from_numpy(values))
    step = max(1, _SEEN // of_rows.gallery_size)
    for start in range(0, of_rows.queries, size):
        stop = min(start + size, of_rows.queries)
        scores, counts = room[: stop - start], of_rows.counts[start:stop]
        similarities.write(start, stop, scores)
        # Written back, so that a match is counted where its own bound lies, whatever way its product was rounded.
        listed = slice(*np.searchsorted(rows, (start, stop)))
        scores.numpy()[rows[listed] - start, columns[listed]] = values[listed]
        trues = _of_queries(rows[listed] - start, values[listed], counts)
        bounds = _bounds(trues, similarities.tolerance(start, stop, trues))
        for_rows, for_columns = Reached(bounds, axis=0), Reached(column_bounds, axis=1)
        for place in range(0, len(scores), step):
            chunk = scores[place : place + step]
            if overlap is not None:
                overlap.add(chunk, room[0, :0], sure=similarities.cosines)
            for_columns.add(chunk, 0)
            # last, since it may leave the rows sorted
            for_rows.add(chunk, place)
        reached_by_column += for_columns.counts()
        if trues.shape[1]:
            _add(by_row, start, counts, trues, bounds, for_rows.counts())
    if column_trues.shape[1]:
        _add(by_column, 0, of_columns.counts, column_trues, column_bounds, reached_by_column)
    return by_row.result(), by_column.result()


def _listed_pairs(
    relevance: Relevance,
) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
    """All true matches: the query of each, ascending, and its item."""
    step, parts = max(1, _BLOCK // relevance.gallery_size), []
    for start in range(0, relevance.queries, step):
        items, starts = relevance.listed(start, start + step)
        counts = relevance.counts[start : start + step]
        # the place of each in the slice of its query, and from there in the list
        parts.append(
            items[np.arange(counts.sum()) + np.repeat(starts - (np.cumsum(counts) - counts), counts)]
        )
    return np.repeat(np.arange(relevance.queries), relevance.counts), np.concatenate(parts)


def _of_queries(
    queries: Int[np.ndarray, " pairs"],
    values: Float[np.ndarray, " pairs"],
    counts: Int[np.ndarray, " queries"],
) -> Float[Tensor, "queries most"]:
    """The scores of true matches by their query, best first; −inf beyond a query's count."""
    order = np.argsort(queries, kind="stable")
    of, table = queries[order], np.full((len(counts), int(counts.max())), -np.inf, values.dtype)
    table[of, np.arange(len(of)) - (np.cumsum(counts) - counts)[of]] = values[order]
    return torch.from_numpy(table).sort(1, descending=True).values


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
    reached_by_true = at_least_sorted(trues, bounds)
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
    # A copy, since `at_least` may leave the rows of `scores` sorted.
    trues = scores.gather(1, torch.from_numpy(items[listed]).to(scores.device))
    return trues.masked_fill_(void, -torch.inf).sort(1, descending=True).values


def _block_size(relevance: Relevance, block: int | None) -> int:
    """Queries scored at once."""
    # Each true match of a query takes some 48 bytes of work space, as much as twelve scores.
    most = int(relevance.counts.max())
    if block is not None and block < 1:
        raise SettingsError(f"block: expected at least 1 query, got {block}")
    return block or max(1, _BLOCK // (relevance.gallery_size + 12 * most))


def _expect(relevance: Relevance, queries: int, gallery: int) -> None:
    if (relevance.queries, relevance.gallery_size) != (queries, gallery):
        raise DataError(
            f"group codes are for {relevance.queries} queries and {relevance.gallery_size} gallery items, "
            f"but there are {queries} and {gallery}; give one code an item"
        )
