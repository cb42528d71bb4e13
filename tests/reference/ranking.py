"""Ranks and average precision typed from their definitions: one query, one sorted list, plain Python.

"Ties are broken against the model": among equal scores the wrong items stand first.
"""

import itertools
import math
from collections.abc import Sequence


def ranked_relevance(scores: Sequence[float], true: Sequence[bool]) -> list[bool]:
    """Whether each item is a true match, in the order of the ranking."""
    items = list(zip(scores, true, strict=True))
    items.sort(key=lambda item: (-item[0], item[1]))  # False sorts before True
    return [is_true for _, is_true in items]


def first_match_rank(scores: Sequence[float], true: Sequence[bool]) -> int:
    """Rank of the best true match, from 1; 0 where there is none."""
    for rank, is_true in enumerate(ranked_relevance(scores, true), start=1):
        if is_true:
            return rank
    return 0


def expected_recall_at(k: int, scores: Sequence[float], true: Sequence[bool]) -> float:
    """Share of the orders of tied items in which a true match is among the first k: every order, one by one."""
    groups = [
        [is_true for item, is_true in zip(scores, true, strict=True) if item == score]
        for score in sorted(set(scores), reverse=True)
    ]
    hits = [
        any([one for group in order for one in group][:k])
        for order in itertools.product(*(list(itertools.permutations(group)) for group in groups))
    ]
    return sum(hits) / len(hits)


def average_precision(scores: Sequence[float], true: Sequence[bool]) -> float:
    """Mean, over the true matches, of the precision at each one's rank; NaN where there is none."""
    precisions = []
    found = 0
    for rank, is_true in enumerate(ranked_relevance(scores, true), start=1):
        if is_true:
            found += 1
            precisions.append(found / rank)
    return sum(precisions) / len(precisions) if precisions else math.nan


def recall_at(k: int, ranks: Sequence[int]) -> float:
    """Percent of queries with a match whose first match is among the first k."""
    with_match = [rank for rank in ranks if rank]
    return 100 * sum(1 for rank in with_match if rank <= k) / len(with_match)


def median_rank(ranks: Sequence[int]) -> float:
    """Middle rank of the queries with a match, or the mean of the two middle ones."""
    with_match = sorted(rank for rank in ranks if rank)
    middle = len(with_match) // 2
    if len(with_match) % 2:
        return float(with_match[middle])
    return (with_match[middle - 1] + with_match[middle]) / 2


def mean_rank(ranks: Sequence[int]) -> float:
    """Mean rank of the queries with a match."""
    with_match = [rank for rank in ranks if rank]
    return sum(with_match) / len(with_match)


def match_ranks(scores: Sequence[float], true: Sequence[bool]) -> list[int]:
    """Ranks of all true matches, from 1."""
    return [rank for rank, is_true in enumerate(ranked_relevance(scores, true), start=1) if is_true]


def trapezoidal_average_precision(true: Sequence[bool]) -> float:
    """Area under precision over recall by trapezoids, of a ranked list."""
    area, found, precision_before = 0.0, 0, 1.0
    for rank, is_true in enumerate(true, start=1):
        if is_true:
            found += 1
            area += (precision_before + found / rank) / 2 / sum(true)
        precision_before = found / rank
    return area


def average_precision_at(k: int, true: Sequence[bool]) -> float:
    """Mean precision at the matches found among the first k; 0 where none is found."""
    precisions = [sum(true[:rank]) / rank for rank in range(1, min(k, len(true)) + 1) if true[rank - 1]]
    return sum(precisions) / len(precisions) if precisions else 0.0


def average_precision_at_min(k: int, true: Sequence[bool]) -> float:
    """The same sum by the number of matches that the first k could hold."""
    precisions = [sum(true[:rank]) / rank for rank in range(1, min(k, len(true)) + 1) if true[rank - 1]]
    return sum(precisions) / min(k, sum(true))


def precision_at(k: int, true: Sequence[bool]) -> float:
    """Matches among the first k, by k."""
    return sum(true[:k]) / k


def normalised_gain_at(k: int, true: Sequence[bool]) -> float:
    """Discounted gain of the first k by that of the same list with all true matches first."""
    gain = sum(1 / math.log2(rank + 1) for rank, is_true in enumerate(true[:k], start=1) if is_true)
    ideal = sorted(true, reverse=True)
    return gain / sum(1 / math.log2(rank + 1) for rank, is_true in enumerate(ideal[:k], start=1) if is_true)


def hit_rate_at(k: int, true: Sequence[bool]) -> float:
    """1 where any of the first k is a true match, else 0."""
    return 1.0 if any(true[:k]) else 0.0


def inverse_negative_penalty(true: Sequence[bool]) -> float:
    """Number of matches by the rank of the last."""
    return sum(true) / max(rank for rank, is_true in enumerate(true, start=1) if is_true)


def interpolated_precision(percent: int, true: Sequence[bool]) -> float:
    """The highest precision at any rank whose recall is at least that percentage."""
    return max(
        sum(true[:rank]) / rank
        for rank in range(1, len(true) + 1)
        if 100 * sum(true[:rank]) >= percent * sum(true)
    )


def overlap(true: Sequence[float], wrong: Sequence[float], bins: int) -> float:
    """Eq. 10 of dual-path TOMM 2020 with histograms over [−1, 1]; 1 belongs to the last bin."""
    area = 0.0
    for place in range(bins):
        low, high = 2 * place / bins - 1, 2 * (place + 1) / bins - 1
        inside = [
            sum(low <= x < high or (place == bins - 1 and x == 1) for x in values) / len(values)
            for values in (true, wrong)
        ]
        area += min(inside)
    return area
