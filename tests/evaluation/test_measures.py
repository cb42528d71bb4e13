import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limner.errors import SettingsError
from limner.evaluation import curves as curves_module
from limner.evaluation import measures as module
from limner.evaluation.curves import PrecisionRecall, PrecisionScope
from limner.evaluation.measures import (
    NAMED,
    AveragePrecisionAt,
    AveragePrecisionAtAll,
    AveragePrecisionAtMin,
    HitRateAt,
    InverseNegativePenalty,
    Matches,
    MeanAveragePrecision,
    MeanRank,
    Measure,
    MedianRank,
    NormalisedGainAt,
    PrecisionAt,
    RecallAt,
    RPrecision,
    TrapezoidalAveragePrecision,
    example,
    value_of,
)
from tests.reference import ranking as twin

ranked_lists = st.lists(st.lists(st.booleans(), min_size=30, max_size=30).filter(any), min_size=1, max_size=6)


def matches_of(lists: list[list[bool]]) -> Matches:
    return Matches.of(
        [[rank for rank, true in enumerate(row, start=1) if true] for row in lists], len(lists[0])
    )


@given(ranked_lists, st.integers(1, 35))
def test_measures_equal_their_definitions(lists: list[list[bool]], k: int) -> None:
    matches = matches_of(lists)
    expected: dict[Measure, list[float]] = {
        RecallAt(k): [float(any(row[:k])) for row in lists],
        MeanAveragePrecision(): [twin.average_precision_at(30, row) for row in lists],
        AveragePrecisionAtAll(): [twin.average_precision_at(30, row) for row in lists],
        TrapezoidalAveragePrecision(): [twin.trapezoidal_average_precision(row) for row in lists],
        AveragePrecisionAt(k): [twin.average_precision_at(k, row) for row in lists],
        AveragePrecisionAtMin(k): [twin.average_precision_at_min(k, row) for row in lists],
        PrecisionAt(k): [twin.precision_at(k, row) for row in lists],
        NormalisedGainAt(k): [twin.normalised_gain_at(k, row) for row in lists],
        HitRateAt(k): [twin.hit_rate_at(k, row) for row in lists],
        InverseNegativePenalty(): [twin.inverse_negative_penalty(row) for row in lists],
        RPrecision(): [twin.precision_at(sum(row), row) for row in lists],
    }
    for measure, values in expected.items():
        np.testing.assert_allclose(measure.each(matches), values, rtol=1e-12, err_msg=str(measure))
        assert value_of(measure, matches) == pytest.approx(100 * sum(values) / len(values)), str(measure)
    firsts = [row.index(True) + 1 for row in lists]
    assert value_of(MedianRank(), matches) == twin.median_rank(firsts)
    assert value_of(MeanRank(), matches) == pytest.approx(twin.mean_rank(firsts))


@given(ranked_lists)
def test_curves_equal_their_definitions(lists: list[list[bool]]) -> None:
    matches = matches_of(lists)
    np.testing.assert_allclose(
        PrecisionRecall().each(matches),
        [[twin.interpolated_precision(percent, row) for percent in range(101)] for row in lists],
    )
    scopes = [int(scope) for scope in PrecisionScope().places(30)]
    assert scopes == [1, 2, 5, 10, 20]
    np.testing.assert_allclose(
        PrecisionScope().each(matches), [[twin.precision_at(scope, row) for scope in scopes] for row in lists]
    )


def test_two_known_confusions_of_average_precision() -> None:
    second = Matches.of([[2]], gallery_size=4)
    assert value_of(MeanAveragePrecision(), second) == 50
    assert value_of(TrapezoidalAveragePrecision(), second) == 25
    half_found = Matches.of([[1, 9]], gallery_size=20)
    assert value_of(AveragePrecisionAt(5), half_found) == 100
    assert value_of(AveragePrecisionAtMin(5), half_found) == 50


@pytest.mark.parametrize(
    "make", [RecallAt, AveragePrecisionAt, AveragePrecisionAtMin, PrecisionAt, NormalisedGainAt]
)
def test_k_below_one_is_refused(make: type[RecallAt]) -> None:
    with pytest.raises(SettingsError, match=r"@0.*at least 1"):
        make(0)


def test_each_is_a_measure() -> None:
    assert all(isinstance(measure, Measure) for measure in (*NAMED, RecallAt(3)))


def test_worked_examples() -> None:
    for checked in (module, curves_module):
        result = doctest.testmod(checked, extraglobs={"matches": example()})
        assert result.attempted
        assert not result.failed
