"""Ranks and average precision typed from their definitions: one query, one sorted list, plain Python.

"Ties are broken against the model": among equal scores the wrong items stand first.
"""

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
