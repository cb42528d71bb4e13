import doctest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limner.errors import DataError, SettingsError
from limner.evaluation import measures as module
from limner.evaluation.measures import (
    STANDARD,
    MeanAveragePrecision,
    MeanRank,
    MedianRank,
    RecallAt,
    example,
    parse_measure,
)
from limner.evaluation.ranking import Ranking
from tests.reference.ranking import mean_rank, median_rank, recall_at


def ranking_of(ranks: list[int]) -> Ranking:
    array = np.array(ranks)
    precisions = np.array([1 / rank if rank else np.nan for rank in ranks])
    return Ranking(array, precisions, max(ranks, default=0) + 1)


@settings(deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1).filter(any), st.integers(1, 30))
def test_measures_equal_their_definitions(ranks: list[int], k: int) -> None:
    ranking = ranking_of(ranks)
    there = [rank for rank in ranks if rank]
    assert RecallAt(k).of(ranking) == pytest.approx(recall_at(k, ranks))
    assert MedianRank().of(ranking) == median_rank(ranks)
    assert MeanRank().of(ranking) == pytest.approx(mean_rank(ranks))
    assert MeanAveragePrecision().of(ranking) == pytest.approx(
        100 * sum(1 / rank for rank in there) / len(there)
    )


@pytest.mark.parametrize("measure", [*STANDARD, RecallAt(1000)])
def test_names_print_and_parse_back(measure: module.Measure) -> None:
    assert parse_measure(str(measure)) == measure
    with pytest.raises(DataError, match="no query has a true match"):
        measure.of(ranking_of([0, 0]))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("map", "'mAP'"),
        ("R@0", "did you mean 'R@1"),
        ("R@٣", "R@"),
        ("r@5", "'R@5'"),
        ("x", "known: R@K"),
        ("", "known"),
        ("R@" + "9" * 99, ""),
    ],
)
def test_unknown_names_are_refused(name: str, hint: str) -> None:
    with pytest.raises(SettingsError, match="unknown measure") as caught:
        parse_measure(name)
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_recall_below_one_is_refused() -> None:
    with pytest.raises(SettingsError, match="at least 1"):
        RecallAt(0)


def test_worked_examples() -> None:
    result = doctest.testmod(module, extraglobs={"ranking": example()})
    assert result.attempted >= 7
    assert not result.failed
