"""What the measures make of a ranking that comes in blocks of queries."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from limner.errors import DataError
from limner.evaluation.curves import Curve, CurveMeasure
from limner.evaluation.matches import Matches
from limner.evaluation.measures import Measure
from limner.evaluation.overlap import Overlap, Similarities

AnyMeasure = Measure | CurveMeasure | Overlap


@dataclass(frozen=True, eq=False)
class Ranking:
    """What a ranking of the gallery gave, query by query and over the queries that have a true match.

    - `first_ranks`: rank of each query's first true match, from 1; 0 for a query that has none in the gallery.
    - `gallery_size`: number of items ranked.
    """

    first_ranks: Int[np.ndarray, " queries"]
    gallery_size: int
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

    def curve(self, measure: CurveMeasure) -> Curve:
        """A curve over the queries. Raises `DataError` where no query has a match."""
        self._expect_matches()
        mean = self._curves[str(measure)] / np.count_nonzero(self.matched)
        return Curve(measure.x, tuple(measure.places(self.gallery_size)), tuple(mean.tolist()))

    def _expect_matches(self) -> None:
        if not self.matched.any():
            raise DataError(
                "no query has a true match in the gallery; are the group codes of both sides the same?"
            )


class Tally:
    """Gathers blocks: a value a query for measures, a sum for curves, counts for similarities."""

    def __init__(self, measures: Sequence[AnyMeasure], queries: int, gallery_size: int) -> None:
        self._measures = [measure for measure in measures if isinstance(measure, Measure)]
        self._drawn = [measure for measure in measures if isinstance(measure, CurveMeasure)]
        overlaps = any(isinstance(measure, Overlap) for measure in measures)
        self.similarities = Similarities() if overlaps else None
        self._first = np.zeros(queries, dtype=np.int64)
        self._each = {str(measure): np.full(queries, np.nan) for measure in self._measures}
        self._curves = {str(curve): np.zeros(len(curve.places(gallery_size))) for curve in self._drawn}
        self._gallery_size = gallery_size

    def add(self, queries: Int[np.ndarray, " block"], matches: Matches) -> None:
        """The matches of some queries, each of which has one."""
        self._first[queries] = matches.ranks[:, 0]
        for measure in self._measures:
            self._each[str(measure)][queries] = measure.each(matches)
        for curve in self._drawn:
            self._curves[str(curve)] += curve.each(matches).sum(0)

    def ranking(self) -> Ranking:
        """What was gathered."""
        return Ranking(self._first, self._gallery_size, self._each, self._curves, self.similarities)
