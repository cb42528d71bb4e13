"""Intervals of measures, and tests of the difference between two systems on the same queries.

Queries of one image or one person are not independent: the five sentences of a photograph are found or missed together.
So whole clusters are drawn, never single queries. The gallery stays as it is: an interval says how far a figure would
move with other queries of the same kind, not with another gallery or another training.

Sources: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13 (percentile intervals); Field and
Welsh, "Bootstrapping clustered data", JRSS B 69 (2007), section 3 (clusters drawn with replacement, whole); Smucker,
Allan and Carterette, CIKM 2007 (tests of retrieval measures, of which randomisation and the bootstrap agree).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from limner.documented import Result
from limner.evaluation.measures import MeanRank, Measure, MedianRank
from limner.evaluation.per_query import QueryValues

RESAMPLES = 2000
"""Draws of an interval."""

FLIPS = 10_000
"""Draws of a test: a p-value of 0.05 then has a standard error of 0.002."""

_BLOCK = 1 << 21
"""Numbers drawn at once, 16 MB."""

Interval = tuple[float, float]
"""Lower and upper end, in the measure's unit."""


def intervals(
    queries: QueryValues, measures: Mapping[str, Measure], *, level: float = 0.95, seed: int = 0
) -> dict[str, Interval]:
    """Percentile intervals of measures by name, from whole clusters drawn with replacement.

    With folds, clusters are drawn within each and values averaged over folds, as the measures are. Where there are
    fewer than two clusters nothing can be said, and the result is empty. A measure whose value is the same for every
    query has an interval without width, which says that none differed and not that the figure is exact.
    """
    return intervals_of_each([(queries, measures)], level=level, seed=seed)[0]


def intervals_of_each(
    asked: Sequence[tuple[QueryValues, Mapping[str, Measure]]], *, level: float = 0.95, seed: int = 0
) -> list[dict[str, Interval]]:
    """`intervals` of several sets of queries; those with as many clusters share their draws."""
    drawn: list[dict[str, Float[np.ndarray, " resamples"]]] = []
    sharing: dict[tuple[int, int], list[_Drawn]] = {}
    for queries, measures in asked:
        parts = [np.flatnonzero(queries.folds == fold) for fold in np.unique(queries.folds)]
        members = [np.unique(queries.clusters[rows], return_inverse=True)[1] for rows in parts]
        drawn.append({})
        if not parts or min(int(of.max()) for of in members) < 1:
            continue
        drawn[-1].update({name: np.zeros(RESAMPLES) for name in measures})
        for fold, (rows, of) in enumerate(zip(parts, members, strict=True)):
            values = {name: queries.values[name][rows] for name in measures}
            sharing.setdefault((fold, int(of.max()) + 1), []).append(
                _Drawn(measures, values, of, 1 / len(parts), drawn[-1])
            )
    # A generator a fold: one more fold moves no other's draws.
    for (fold, clusters), sets in sorted(sharing.items()):
        for start, weights in _draws(np.random.default_rng([seed, fold]), clusters, RESAMPLES):
            for one in sets:
                one.add(start, weights)
    ends = [50 * (1 - level), 50 * (1 + level)]
    return [{name: _pair(np.percentile(values, ends)) for name, values in one.items()} for one in drawn]


def ratio_interval(
    numerators: Float[np.ndarray, " queries"],
    denominators: Float[np.ndarray, " queries"],
    clusters: Int[np.ndarray, " queries"],
    *,
    level: float = 0.95,
    seed: int = 0,
) -> Interval | None:
    """Interval of a ratio of two sums over queries, whole clusters drawn; None below two clusters.

    A mean is one, with ones as denominators.
    """
    of = np.unique(clusters, return_inverse=True)[1]
    if not len(of) or not of.max():
        return None
    above, below = (np.bincount(of, weights=values) for values in (numerators, denominators))
    drawn = np.concatenate(
        [
            (weights @ above) / (weights @ below)
            for _, weights in _draws(np.random.default_rng([seed, 3]), len(above), RESAMPLES)
        ]
    )
    return _ends(drawn, level)


def auc_interval(
    low: Float[np.ndarray, " low"],
    high: Float[np.ndarray, " high"],
    clusters_of_low: Int[np.ndarray, " low"],
    clusters_of_high: Int[np.ndarray, " high"],
    *,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[float, Interval | None]:
    """Area under the ROC curve, and its interval, whole clusters drawn; None below two clusters.

    The area is the share of pairs of a low and a high value in which the low one is lower; equal ones count half
    (Hanley and McNeil, 1982). Clusters that both have are the same clusters.
    """
    of = np.unique(np.concatenate([clusters_of_low, clusters_of_high]), return_inverse=True)[1]
    members = np.eye(int(of.max()) + 1)
    first, second = members[of[: len(low)]], members[of[len(low) :]]
    right = (low[:, None] < high) + 0.5 * (low[:, None] == high)
    # pairs of each two clusters, so that a draw is a product and not a sort
    pairs, counts = first.T @ right @ second, np.outer(first.sum(0), second.sum(0))
    if len(members) < 2:
        return float(right.mean()), None
    drawn = np.concatenate(
        [
            ((weights @ pairs) * weights).sum(1) / ((weights @ counts) * weights).sum(1)
            for _, weights in _draws(np.random.default_rng([seed, 4]), len(members), RESAMPLES)
        ]
    )
    return float(right.mean()), _ends(drawn, level)


class Difference(Result):
    """The difference of a measure between two systems on the same queries, second minus first."""

    first: float
    """Value of the first system."""
    second: float
    """Value of the second system."""
    difference: float
    """Second minus first, in the measure's unit."""
    interval: Interval | None
    """95 % percentile interval of the difference, clusters drawn with replacement; null below two clusters."""
    p: float
    """Two-sided probability of a difference at least so large if the systems were exchangeable, by exchanging both
    systems' values in whole clusters at random."""
    queries: int
    """Queries."""
    clusters: int
    """Clusters of them."""


def difference(
    first: Float[np.ndarray, " queries"],
    second: Float[np.ndarray, " queries"],
    clusters: Int[np.ndarray, " queries"],
    measure: Measure | None = None,
    *,
    level: float = 0.95,
    seed: int = 0,
) -> Difference:
    """Compare two systems by the values of the same queries.

    `measure` turns values into a figure; None = their plain mean, for measures of others.
    """
    over = _mean if measure is None else measure.over
    of = np.unique(clusters, return_inverse=True)[1]
    count = int(of.max()) + 1
    observed = over(second) - over(first)
    exceeded, drawn = 0, 0
    for signs in _exchanges(np.random.default_rng([seed, 1]), count):
        # +1: as they are; −1: both systems' values of the cluster exchanged.
        if _is_linear(measure):
            sums = np.bincount(of, weights=second - first, minlength=count)
            shifted = (signs @ sums) * (over(np.ones(1)) / len(of))
        else:
            shifted = np.array(
                [
                    over(np.where(row[of] > 0, second, first)) - over(np.where(row[of] > 0, first, second))
                    for row in signs
                ]
            )
        # A hair below: the same sum in another order must count as equal.
        exceeded += int(np.count_nonzero(np.abs(shifted) >= abs(observed) * (1 - 1e-9) - 1e-12))
        drawn += len(signs)
    # Of random draws the data as they are count as one, so that p is never 0 (Phipson and Smyth, 2010).
    every = count <= _FEW
    p = exceeded / drawn if every else (exceeded + 1) / (drawn + 1)
    interval = None
    if count > 1:
        resampled = np.concatenate(
            [
                _resampled(measure, second, of, weights) - _resampled(measure, first, of, weights)
                for _, weights in _draws(np.random.default_rng([seed, 2]), count, RESAMPLES)
            ]
        )
        interval = _pair(np.percentile(resampled, [50 * (1 - level), 50 * (1 + level)]))
    return Difference(
        first=over(first),
        second=over(second),
        difference=observed,
        interval=interval,
        p=min(1.0, p),
        queries=len(of),
        clusters=count,
    )


def holm(values: Float[np.ndarray, " tests"]) -> Float[np.ndarray, " tests"]:
    """p-values adjusted for their number (Holm, 1979): the smallest times n, the next times n − 1, never falling.

    >>> holm(np.array([0.04, 0.01, 0.03])).round(3).tolist()
    [0.06, 0.03, 0.06]
    """
    order = np.argsort(values, kind="stable")
    adjusted = np.minimum(1.0, np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1)))
    return np.asarray(adjusted[np.argsort(order, kind="stable")])


_FEW = 12
"""Up to so many clusters all 2ⁿ exchanges are gone through."""


def _exchanges(
    generator: np.random.Generator, clusters: int
) -> Iterator[Float[np.ndarray, "block clusters"]]:
    """Signs of the clusters: every combination where there are few clusters, else random ones."""
    if clusters <= _FEW:
        numbers = np.arange(2**clusters)[:, None]
        yield 1.0 - 2.0 * (numbers >> np.arange(clusters) & 1)
        return
    step = max(1, _BLOCK // clusters)
    for start in range(0, FLIPS, step):
        bits = generator.integers(0, 2, size=(min(step, FLIPS - start), clusters), dtype=np.int8)
        yield 1.0 - 2.0 * bits


def _draws(
    generator: np.random.Generator, clusters: int, resamples: int
) -> Iterator[tuple[int, Float[np.ndarray, "block clusters"]]]:
    """How often each cluster is drawn, with the number of the first resample of a block."""
    step = max(1, _BLOCK // clusters)
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        drawn = generator.integers(0, clusters, size=(rows, clusters)) + np.arange(rows)[:, None] * clusters
        counts = np.bincount(drawn.ravel(), minlength=rows * clusters).reshape(rows, clusters)
        # float64 holds them exactly, and has fast products
        yield start, counts.astype(np.float64)


@dataclass(frozen=True, eq=False)
class _Drawn:
    """The values of some queries and their clusters, and what draws give for each measure, added to `drawn`."""

    measures: Mapping[str, Measure]
    values: Mapping[str, Float[np.ndarray, " queries"]]
    of: Int[np.ndarray, " queries"]
    share: float
    drawn: dict[str, Float[np.ndarray, " resamples"]]

    def add(self, start: int, weights: Float[np.ndarray, "block clusters"]) -> None:
        """Add the draws from `start` on."""
        part = slice(start, start + len(weights))
        linear = [name for name, measure in self.measures.items() if _is_linear(measure)]
        means = _means([self.values[name] for name in linear], self.of, weights)
        for name, found in zip(linear, means, strict=True):
            self.drawn[name][part] += self.measures[name].over(np.ones(1)) * found * self.share
        for name in self.measures.keys() - linear:
            self.drawn[name][part] += _medians(self.values[name], self.of, weights) * self.share


def _resampled(
    measure: Measure | None,
    values: Float[np.ndarray, " queries"],
    of: Int[np.ndarray, " queries"],
    weights: Float[np.ndarray, "block clusters"],
) -> Float[np.ndarray, " block"]:
    """The measure over the queries of the clusters that were drawn."""
    if _is_linear(measure):
        scale = 1.0 if measure is None else measure.over(np.ones(1))
        return np.asarray(scale * _means([values], of, weights)[0])
    return _medians(values, of, weights)


def _medians(
    values: Float[np.ndarray, " queries"],
    of: Int[np.ndarray, " queries"],
    weights: Float[np.ndarray, "block clusters"],
) -> Float[np.ndarray, " block"]:
    """The median by counting: the two middle values of all draws at once.

    Only queries around the middle of all are counted one by one, as many as the medians of the draws need.
    """
    order, clusters = np.argsort(values), weights.shape[1]
    ranked, belonging = values[order], of[order]
    half = round(4 * len(values) / math.sqrt(clusters)) + 1
    while True:
        begin, end = max(0, len(values) // 2 - half), len(values) // 2 + half
        # of each cluster the queries before the window, in it, and after it
        parts = [np.bincount(part, minlength=clusters) for part in np.split(belonging, (begin, end))]
        before, within, after = np.array(parts, np.float64) @ weights.T
        totals = before + within + after
        low, high = (totals - 1) // 2, totals // 2
        if (before <= low).all() and (before + within > high).all():
            break
        half *= 2
    ranked, belonging, blocks = ranked[begin:end], belonging[begin:end], []
    if ranked[0] == ranked[-1]:
        return np.full(len(weights), ranked[0])
    for rows in np.array_split(np.arange(len(weights)), -(-len(weights) * len(ranked) // _BLOCK)):
        counts = before[rows, None] + np.cumsum(weights[rows][:, belonging], axis=1)
        blocks.append(sum(ranked[(counts > place[rows, None]).argmax(axis=1)] for place in (low, high)) / 2)
    return np.concatenate(blocks)


def _means(
    values: Sequence[Float[np.ndarray, " queries"]],
    of: Int[np.ndarray, " queries"],
    weights: Float[np.ndarray, "block clusters"],
) -> Float[np.ndarray, "measures block"]:
    """The means over the queries of the clusters that were drawn."""
    # Means need the sums of clusters alone, so that all draws of all measures are one matrix product.
    columns = [*values, np.ones(len(of))]
    sums = [np.bincount(of, weights=column, minlength=weights.shape[1]) for column in columns]
    found = np.array(sums) @ weights.T
    return np.asarray(found[:-1] / found[-1])


def _is_linear(measure: Measure | None) -> bool:
    # Of all measures the median alone is no mean of the queries' values; the mean rank derives from it.
    return not isinstance(measure, MedianRank) or isinstance(measure, MeanRank)


def _mean(values: Float[np.ndarray, " queries"]) -> float:
    return float(np.mean(values))


def _ends(drawn: Float[np.ndarray, " resamples"], level: float) -> Interval:
    # a draw without any query that counts has no value
    kept = drawn[np.isfinite(drawn)]
    return _pair(np.percentile(kept, [50 * (1 - level), 50 * (1 + level)]))


def _pair(ends: Float[np.ndarray, " two"]) -> Interval:
    return float(ends[0]), float(ends[1])
