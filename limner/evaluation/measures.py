"""The measures: small values with one definition each, whose names print and parse back.

A measure reads a `Ranking` and is taken over the queries that have a true match in the gallery; how many
have none is reported beside it, never scored. The examples below rank for four queries: first matches at
ranks 1, 3, 6 and 12, and a fifth query without a match.

>>> ranking = example()
>>> [str(measure) for measure in STANDARD]
['R@1', 'R@5', 'R@10', 'MedR', 'MeanR', 'mAP']
"""

import difflib
import re
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from limner.errors import DataError, SettingsError
from limner.evaluation.ranking import Ranking


@runtime_checkable
class Measure(Protocol):
    """What every measure has; two of one name are equal."""

    @property
    def key(self) -> str:
        """Name in JSON reports."""

    @property
    def percent(self) -> bool:
        """Whether the value is in percent (0–100); otherwise it is a rank, from 1."""

    def of(self, ranking: Ranking) -> float:
        """The value. Raises `DataError` where no query has a match."""


@dataclass(frozen=True)
class RecallAt:
    """R@K, also rank-K: percent of queries with at least one true match among the first K.

    Source: Hodosh, Young and Hockenmaier, JAIR 47 (2013), section 4.2, there for one match a query; ties
    are against the model. Raises `SettingsError` for K below 1.

    >>> RecallAt(1).of(ranking), RecallAt(5).of(ranking), RecallAt(10).of(ranking)
    (25.0, 50.0, 75.0)
    """

    k: int
    percent: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.k < 1:
            raise SettingsError(f"R@K: expected K of at least 1, got {self.k}")

    def __str__(self) -> str:
        return f"R@{self.k}"

    @property
    def key(self) -> str:
        """Name in JSON reports."""
        return str(self)

    def of(self, ranking: Ranking) -> float:
        """Percent of matched queries whose first rank is at most K."""
        return 100.0 * float(np.mean(_first(ranking) <= self.k))


@dataclass(frozen=True)
class MedianRank:
    """MedR: median over queries of the first true match's rank, from 1; lower is better.

    Source: Hodosh, Young and Hockenmaier, JAIR 47 (2013), section 4.2. With an even number of queries it is
    the mean of the two middle ranks, so halves occur (some released codes round down instead).

    >>> MedianRank().of(ranking)
    4.5
    """

    key: ClassVar[str] = "median_rank"
    percent: ClassVar[bool] = False

    def __str__(self) -> str:
        return "MedR"

    def of(self, ranking: Ranking) -> float:
        """Median first rank of the matched queries."""
        return float(np.median(_first(ranking)))


@dataclass(frozen=True)
class MeanRank:
    """MeanR: mean over queries of the first true match's rank, from 1; lower is better.

    Source: the companion of MedR in released evaluation code (VSE++ prints both); a few lost queries move
    it far.

    >>> MeanRank().of(ranking)
    5.5
    """

    key: ClassVar[str] = "mean_rank"
    percent: ClassVar[bool] = False

    def __str__(self) -> str:
        return "MeanR"

    def of(self, ranking: Ranking) -> float:
        """Mean first rank of the matched queries."""
        return float(np.mean(_first(ranking)))


@dataclass(frozen=True)
class MeanAveragePrecision:
    """mAP: mean over queries of the plain average precision over **all** true matches, in percent.

    Source: Manning, Raghavan and Schütze, Introduction to Information Retrieval (2008), section 8.4. It is
    not the trapezoidal area that some person re-identification codes compute: a single match at rank 2
    gives 50 here and 25 there.

    The example's queries have one match each, so their precisions are 1, 1/3, 1/6 and 1/12:

    >>> round(MeanAveragePrecision().of(ranking), 4)
    39.5833
    """

    key: ClassVar[str] = "mAP"
    percent: ClassVar[bool] = True

    def __str__(self) -> str:
        return "mAP"

    def of(self, ranking: Ranking) -> float:
        """Mean average precision of the matched queries, in percent."""
        _first(ranking)
        return 100.0 * float(np.mean(ranking.average_precisions[ranking.matched]))


STANDARD: tuple[Measure, ...] = (
    RecallAt(1),
    RecallAt(5),
    RecallAt(10),
    MedianRank(),
    MeanRank(),
    MeanAveragePrecision(),
)
"""What a report holds unless it is asked for something else."""

_BY_NAME: dict[str, Measure] = {
    str(measure): measure for measure in (MedianRank(), MeanRank(), MeanAveragePrecision())
}


def parse_measure(name: str) -> Measure:
    """The measure that prints as `name`.

    Raises `SettingsError` with the nearest known name.

    >>> parse_measure("R@50"), parse_measure("MedR")
    (RecallAt(k=50), MedianRank())
    """
    if name in _BY_NAME:
        return _BY_NAME[name]
    # A bounded number of plain digits: no gallery has 10**12 items, and int() would take other scripts'
    # digits.
    if match := re.fullmatch(r"R@([1-9][0-9]{0,11})", name):
        return RecallAt(int(match[1]))
    names = {known.lower(): known for known in ("R@1", "R@5", "R@10", *_BY_NAME)}
    near = difflib.get_close_matches(name.lower(), names, n=1)
    known = ", ".join(("R@K (K from 1)", *_BY_NAME))
    hint = f"did you mean '{names[near[0]]}'?" if near else f"known: {known}"
    raise SettingsError(f"unknown measure {name[:40]!r}; {hint}")


def example() -> Ranking:
    """The ranking that this module's examples measure: ranks 1, 3, 6 and 12, and a query without a match."""
    ranks = np.array([1, 3, 6, 12, 0])
    precisions = np.array([1, 1 / 3, 1 / 6, 1 / 12, np.nan])
    return Ranking(ranks, precisions, gallery_size=20)


def _first(ranking: Ranking) -> Int[np.ndarray, " matched"]:
    ranks: Int[np.ndarray, " matched"] = ranking.first_ranks[ranking.matched]
    if not len(ranks):
        raise DataError(
            "no query has a true match in the gallery; are the group codes of both sides the same?"
        )
    return ranks
