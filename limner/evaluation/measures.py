"""The measures: small values with one definition each, whose names print and parse back.

A measure gives each query a value, from the ranks of all its true matches (`Matches`), and one value over the queries
that have a true match in the gallery; how many have none is reported beside it, never scored. Curves and the overlap
of similarities are in `limner.evaluation.curves` and `limner.evaluation.scores`.

The examples are of three queries in a gallery of 20, with their matches at ranks 1, at 3 and 4, and at 8, 9 and 20.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from limner.errors import SettingsError

# The largest integer, so that `rank <= k` is false for it without a mask. VOID + 1 would overflow.
VOID = np.iinfo(np.int64).max
"""The rank of a match that a query does not have: behind every item."""


@dataclass(frozen=True, eq=False)
class Matches:
    """The ranks of all true matches of some queries; queries without a match are left out.

    - `ranks`: from 1, ascending, ties against the model; `VOID` behind a query's last match.
    - `counts`: number of true matches of each query, at least 1.
    - `gallery_size`: number of items ranked.
    """

    ranks: Int[np.ndarray, "queries most"]
    counts: Int[np.ndarray, " queries"]
    gallery_size: int

    @classmethod
    def of(cls, ranks: Sequence[Sequence[int]], gallery_size: int) -> "Matches":
        """From a list of ascending ranks for each query.

        >>> Matches.of([[1, 4], [2]], gallery_size=5).counts.tolist()
        [2, 1]
        """
        counts = np.array([len(row) for row in ranks], dtype=np.int64)
        table = np.full((len(ranks), max(counts, default=0)), VOID)
        for row, listed in zip(table, ranks, strict=True):
            row[: len(listed)] = listed
        return cls(table, counts, gallery_size)

    @cached_property
    def listed(self) -> Bool[np.ndarray, "queries most"]:
        """Which ranks are those of a match."""
        return np.arange(self.ranks.shape[1]) < self.counts[:, None]

    @cached_property
    def precisions(self) -> Float[np.ndarray, "queries most"]:
        """Precision at the rank of each match: its position among the matches, from 1, by its rank; 0 where void."""
        position = np.arange(1, self.ranks.shape[1] + 1)
        # Masked: position / VOID is tiny, and not 0.
        return np.where(self.listed, position / self.ranks, 0.0)

    def among(self, k: int) -> Int[np.ndarray, " queries"]:
        """How many matches each query has among the first `k` items."""
        return np.asarray(np.count_nonzero(self.ranks <= k, axis=1))


# Shares; percent comes in `over` alone, so `average_precisions` returns what others call an AP.
Values = Float[np.ndarray, " queries"]
Unit = Literal["percent", "rank"]


# `isinstance` compares the names of members alone, which is how rankings tell measures from curves.
@runtime_checkable
class Measure(Protocol):
    """The interface of a measure; two of one name are equal."""

    @property
    def unit(self) -> Unit:
        """Unit of the value: percent (0–100), or a rank from 1."""

    def each(self, matches: Matches) -> Values:
        """The value of each query: a share from 0 to 1, or a rank."""

    def over(self, values: Values) -> float:
        """The value over at least one query, in the measure's unit."""


class _Share:
    """A measure that is a share of each query, and the mean over queries in percent."""

    unit: ClassVar[Unit] = "percent"

    def over(self, values: Values) -> float:
        """The mean, in percent."""
        return 100.0 * float(np.mean(values))


@dataclass(frozen=True)
class _AtK(_Share):
    """A measure of the first K items. Raises `SettingsError` for K below 1."""

    k: int

    def __post_init__(self) -> None:
        if self.k < 1:
            raise SettingsError(f"{self}: expected K of at least 1, got {self.k}")


@dataclass(frozen=True)
class RecallAt(_AtK):
    """R@K, also rank-K: percent of queries with at least one true match among the first K.

    Source: Hodosh, Young and Hockenmaier, JAIR 47 (2013), section 4.2, there for one match a query; ties
    are against the model.

    >>> [round(value_of(RecallAt(k), matches), 1) for k in (1, 5, 10)]
    [33.3, 66.7, 100.0]
    """

    def __str__(self) -> str:
        return f"R@{self.k}"

    def each(self, matches: Matches) -> Values:
        """1 where the first match is among the first K, else 0."""
        return (matches.ranks[:, 0] <= self.k).astype(np.float64)


@dataclass(frozen=True)
class HitRateAt(RecallAt):
    """HR@K: equal to R@K, under the name of recommender systems and of retrieval libraries.

    In this field R@K asks whether any true match is found, which elsewhere is a hit rate (or success); elsewhere recall
    at K is the share of the matches that are found.

    >>> round(value_of(HitRateAt(5), matches), 1)
    66.7
    """

    def __str__(self) -> str:
        return f"HR@{self.k}"


@dataclass(frozen=True)
class NormalisedGainAt(_AtK):
    """nDCG@K: mean over queries of the normalised discounted cumulated gain of the first K, in percent.

    Source: Järvelin and Kekäläinen, ACM TOIS 20 (2002), Eq. 2, with the discount log₂(rank + 1) of trec_eval, which
    discounts from the second item on. Relevance is 0 or 1. A match at rank r adds 1 / log₂(r + 1); the sum over the
    first K is divided by the sum of a ranking with all matches first.

    The queries have 1, (0.5 + 0.431) / 1.631 and (0.315 + 0.301) / 2.131 up to rank 10:

    >>> round(value_of(NormalisedGainAt(10), matches), 2)
    62.0
    """

    def __str__(self) -> str:
        return f"nDCG@{self.k}"

    def each(self, matches: Matches) -> Values:
        """The gain by the highest there could be."""
        # Masked first: VOID + 1 would overflow.
        within = matches.ranks <= self.k
        gains = np.where(within, 1 / np.log2(np.where(within, matches.ranks, 1) + 1), 0.0).sum(1)
        most = min(self.k, int(matches.counts.max(initial=1)))
        best = np.cumsum(1 / np.log2(np.arange(1, most + 1) + 1))
        return np.asarray(gains / best[np.minimum(matches.counts, self.k) - 1])


@dataclass(frozen=True)
class MedianRank:
    """MedR: median over queries of the first true match's rank, from 1; lower is better.

    Source: Hodosh, Young and Hockenmaier, JAIR 47 (2013), section 4.2. With an even number of queries it is
    the mean of the two middle ranks, so halves occur (some released codes round down instead).

    >>> value_of(MedianRank(), matches)
    3.0
    """

    unit: ClassVar[Unit] = "rank"

    def __str__(self) -> str:
        return "MedR"

    def each(self, matches: Matches) -> Values:
        """The rank of the first match."""
        return matches.ranks[:, 0].astype(np.float64)

    def over(self, values: Values) -> float:
        """The median."""
        # Averages the two middle ranks; VSE++'s code and others floor the result.
        return float(np.median(values))


@dataclass(frozen=True)
class MeanRank(MedianRank):
    """MeanR: mean over queries of the first true match's rank, from 1; lower is better.

    Source: the companion of MedR in released evaluation code (VSE++ prints both); a few lost queries move
    it far.

    >>> value_of(MeanRank(), matches)
    4.0
    """

    def __str__(self) -> str:
        return "MeanR"

    def over(self, values: Values) -> float:
        """The mean."""
        return float(np.mean(values))


@dataclass(frozen=True)
class MeanReciprocalRank(_Share):
    """MRR: mean over queries of one by the first true match's rank, in percent.

    Source: Voorhees, TREC-8 question answering track report (1999); trec_eval calls it recip_rank. The queries have
    1, 1/3 and 1/8:

    >>> round(value_of(MeanReciprocalRank(), matches), 2)
    48.61
    """

    def __str__(self) -> str:
        return "MRR"

    def each(self, matches: Matches) -> Values:
        """One by the rank of the first match."""
        return np.asarray(matches.precisions[:, 0])


@dataclass(frozen=True)
class RecallSum(_Share):
    """rsum: R@1 + R@5 + R@10 of one direction, from 0 to 300; papers print the sum of both, from 0 to 600.

    Source: the evaluation code of VSE++ and of those that followed it.

    >>> round(value_of(RecallSum(), matches), 1)
    200.0
    """

    def __str__(self) -> str:
        return "rsum"

    def each(self, matches: Matches) -> Values:
        """How many of the three find a match."""
        return np.asarray(sum(RecallAt(k).each(matches) for k in (1, 5, 10)))


@dataclass(frozen=True)
class MeanAveragePrecision(_Share):
    """mAP: mean over queries of the plain average precision over **all** true matches, in percent.

    Source: Manning, Raghavan and Schütze, Introduction to Information Retrieval (2008), section 8.4. It is
    not the trapezoidal area that some person re-identification codes compute: a single match at rank 2
    gives 50 here and 25 there.

    The queries' average precisions are 1, (1/3 + 2/4) / 2 and (1/8 + 2/9 + 3/20) / 3:

    >>> round(value_of(MeanAveragePrecision(), matches), 2)
    52.75
    """

    def __str__(self) -> str:
        return "mAP"

    def each(self, matches: Matches) -> Values:
        """The mean precision at the ranks of the matches."""
        return np.asarray(matches.precisions.sum(1) / matches.counts)


@dataclass(frozen=True)
class TrapezoidalAveragePrecision(_Share):
    """mAP(trapezoid): mean over queries of the trapezoidal area under precision over recall, in percent.

    Source: the evaluation code of Oxford Buildings and Market-1501, from which many person re-identification codes
    come. Each match adds the mean of the precisions at it and just before it, the latter 1 before rank 1.

    >>> round(value_of(TrapezoidalAveragePrecision(), matches), 2)
    47.1
    """

    def __str__(self) -> str:
        return "mAP(trapezoid)"

    def each(self, matches: Matches) -> Values:
        """The area: the mean over matches of the two precisions' mean."""
        # From 0: the matches before this one, which is what the precision just before it counts.
        ranks, position = matches.ranks, np.arange(matches.ranks.shape[1])
        # `np.where` computes both sides, so the rank below 1 is lifted to keep 0 / 0 out.
        before = np.where(ranks > 1, position / np.maximum(ranks - 1, 1), 1.0)
        area = np.where(matches.listed, (before + matches.precisions) / 2, 0.0)
        return np.asarray(area.sum(1) / matches.counts)


@dataclass(frozen=True)
class AveragePrecisionAt(_AtK):
    """MAP@K: mean over queries of the average precision over the matches **found** among the first K, in percent.

    Source: MNiL (MM 2017), section 4.1, which takes it from the cross-modal hashing literature. The sum of precisions
    is divided by the number of matches found, so it does not fall when most matches are missed; a query with none
    among the first K has 0.

    The queries have 1, (1/3 + 2/4) / 2 and (1/8 + 2/9) / 2 up to rank 10:

    >>> round(value_of(AveragePrecisionAt(10), matches), 2)
    53.01
    """

    def __str__(self) -> str:
        return f"MAP@{self.k}"

    def each(self, matches: Matches) -> Values:
        """The mean precision at the matches found."""
        # At least 1: a query with no match among the first K has a sum of 0 as well, and so a 0.
        return np.asarray(_precision_sum(matches, self.k) / np.maximum(matches.among(self.k), 1))


@dataclass(frozen=True)
class AveragePrecisionAtMin(_AtK):
    """MAP@K(min): as `MAP@K`, divided by the number of matches that the first K could hold, min(K, matches).

    Source: the other convention in use, e.g. of recommender challenges; it does fall when matches are missed.

    The third query has (1/8 + 2/9) / 3 up to rank 10:

    >>> round(value_of(AveragePrecisionAtMin(10), matches), 2)
    51.08
    """

    def __str__(self) -> str:
        return f"MAP@{self.k}(min)"

    def each(self, matches: Matches) -> Values:
        """The sum of precisions at the matches found, by how many there could be."""
        return np.asarray(_precision_sum(matches, self.k) / np.minimum(matches.counts, self.k))


@dataclass(frozen=True)
class AveragePrecisionAtAll(MeanAveragePrecision):
    """MAP@all: MAP@K over the whole ranking, which finds every match: equal to mAP, under the name of the MNiL paper.

    >>> round(value_of(AveragePrecisionAtAll(), matches), 2)
    52.75
    """

    def __str__(self) -> str:
        return "MAP@all"


@dataclass(frozen=True)
class PrecisionAt(_AtK):
    """AP@K: mean over queries of the share of true matches among the first K, in percent.

    Source: Reed et al., CVPR 2016; identity-aware CMCE (ICCV 2017), section 4.1, with K = 50 and a query for each
    class: the mean embedding of its sentences. Elsewhere it is called precision at K. A gallery of fewer than K
    items counts as filled with wrong ones.

    >>> round(value_of(PrecisionAt(5), matches), 2)
    20.0
    """

    def __str__(self) -> str:
        return f"AP@{self.k}"

    def each(self, matches: Matches) -> Values:
        """Matches among the first K, by K."""
        # K, not the gallery's size where that is smaller: 50 places stay 50, as in Reed et al.
        return matches.among(self.k) / self.k


@dataclass(frozen=True)
class InverseNegativePenalty(_Share):
    """mINP: mean over queries of (number of matches) / (rank of the last match), in percent.

    Source: Ye et al., "Deep learning for person re-identification: a survey and outlook", TPAMI 2021, Eq. 5. It
    says how far down one has to look to find every picture of a person.

    The queries have 1/1, 2/4 and 3/20:

    >>> round(value_of(InverseNegativePenalty(), matches), 2)
    55.0
    """

    def __str__(self) -> str:
        return "mINP"

    def each(self, matches: Matches) -> Values:
        """Number of matches by the rank of the last one."""
        # The last match's rank, not the last column, which is void for queries of fewer matches.
        last = np.take_along_axis(matches.ranks, matches.counts[:, None] - 1, axis=1)[:, 0]
        return np.asarray(matches.counts / last)


@dataclass(frozen=True)
class RPrecision(_Share):
    """R-precision: mean over queries of the share of true matches among the first R, R the number of them, in percent.

    Source: Manning, Raghavan and Schütze, Introduction to Information Retrieval (2008), section 8.4.

    The queries have 1 of 1, 0 of 2 and 0 of 3:

    >>> round(value_of(RPrecision(), matches), 2)
    33.33
    """

    def __str__(self) -> str:
        return "R-precision"

    def each(self, matches: Matches) -> Values:
        """Matches among the first R, by R."""
        found = np.count_nonzero(matches.ranks <= matches.counts[:, None], axis=1)
        return np.asarray(found / matches.counts)


def _precision_sum(matches: Matches, k: int) -> Values:
    return np.asarray(np.where(matches.ranks <= k, matches.precisions, 0.0).sum(1))


# In this order a report and its table show them.
STANDARD: tuple[Measure, ...] = (
    RecallAt(1),
    RecallAt(5),
    RecallAt(10),
    MedianRank(),
    MeanRank(),
    MeanAveragePrecision(),
)
"""The measures of a report unless others are asked for."""

NAMED: tuple[Measure, ...] = (
    MedianRank(),
    MeanRank(),
    MeanReciprocalRank(),
    RecallSum(),
    MeanAveragePrecision(),
    TrapezoidalAveragePrecision(),
    AveragePrecisionAtAll(),
    InverseNegativePenalty(),
    RPrecision(),
)
"""The measures without a K."""

OF_K: dict[str, Callable[[int], Measure]] = {
    "R@K": RecallAt,
    "MAP@K": AveragePrecisionAt,
    "MAP@K(min)": AveragePrecisionAtMin,
    "AP@K": PrecisionAt,
    "nDCG@K": NormalisedGainAt,
    "HR@K": HitRateAt,
}
"""The measures of the first K items, K from 1."""


def value_of(measure: Measure, matches: Matches) -> float:
    """A measure over some queries, in its unit."""
    return measure.over(measure.each(matches))


def example() -> Matches:
    """The ranking that this module's examples measure."""
    return Matches.of([[1], [3, 4], [8, 9, 20]], gallery_size=20)
