import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limner.errors import DataError
from limner.evaluation.calibration import (
    BINS,
    ENOUGH,
    FOLDS,
    FirstHits,
    Reliability,
    cross_validated,
    fit,
    measured,
    why_unusable,
)
from tests.reference.calibration import calibration_error, threshold_is_used


@given(st.integers(0, 2**32 - 1), st.integers(1, 60))
def test_the_calibration_error_is_that_of_the_slow_twin(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    probabilities = rng.choice([0.0, 1.0, *rng.random(20)], count)
    right = rng.random(count) < probabilities
    found = Reliability.of(probabilities, right, probabilities, 0.5)
    assert found.ece == pytest.approx(calibration_error(probabilities.tolist(), right.tolist(), BINS))
    assert found.brier == pytest.approx(np.mean((probabilities - right) ** 2))


def test_true_probabilities_have_almost_no_error() -> None:
    rng = np.random.default_rng(3)
    probabilities = rng.random(40_000)
    right = rng.random(40_000) < probabilities
    found = Reliability.of(probabilities, right, 1 - probabilities, 0.75)
    assert found.ece < 0.01
    assert found.brier == pytest.approx(1 / 6, abs=0.005)
    assert found.good == pytest.approx(found.good_astray, abs=0.01)
    assert found.good_right == pytest.approx(7 / 8, abs=0.01)
    assert Reliability.of(probabilities**2, right, probabilities, 0.5).ece > 0.1


def test_no_query_and_no_good_hit() -> None:
    none = np.zeros(0)
    with pytest.raises(DataError, match="there are none"):
        Reliability.of(none, none.astype(bool), none, 0.5)
    found = Reliability.of(np.array([0.2]), np.array([True]), np.array([0.0]), 0.5)
    assert (found.good, found.good_right, found.right_good, found.good_astray) == (0, None, 0, 0)
    assert Reliability.parse(found.model_dump()) == found


@pytest.fixture
def hits() -> FirstHits:
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 12, 60)
    right = groups[:, None] == np.arange(24) // 2
    return FirstHits.of((rng.normal(size=right.shape) + 2 * right).astype(np.float32), right, groups)


def test_each_first_hit_is_measured_by_its_probability(hits: FirstHits) -> None:
    fitted = fit(hits)
    likely, astray = (
        np.array([fitted.probability(row[:1], row)[0] for row in rankings])
        for rankings in (hits.scores, hits.without)
    )
    found = measured(hits, fitted, 0.3)
    assert found == Reliability.of(likely, hits.right[:, 0], astray, 0.3)
    assert found.queries == 60


def test_no_query_is_measured_by_what_its_group_was_fitted_with(hits: FirstHits) -> None:
    right, errors, good = 0, 0.0, 0
    for fold in range(FOLDS):
        own = hits.groups % FOLDS == fold
        found = measured(hits.of_queries(own), fit(hits.of_queries(~own)), 0.5)
        right += round(found.right * found.queries)
        errors += found.brier * found.queries
        good += round(found.good_astray * found.queries)
    found = cross_validated(hits, 0.5)
    assert found.queries == 60
    assert found.right == right / 60
    assert found.brier == pytest.approx(errors / 60)
    assert found.good_astray == good / 60


def test_folds_do_not_depend_on_the_numbers_of_groups(hits: FirstHits) -> None:
    # as where most pictures have no sentence: these numbers are all of one fold by themselves
    gaps = FirstHits(hits.scores, hits.right, hits.without, hits.groups * FOLDS + 1)
    assert cross_validated(gaps, 0.5) == cross_validated(hits, 0.5)


def test_where_no_wrong_picture_is_left_none_goes_astray(hits: FirstHits) -> None:
    few = FirstHits(hits.scores, hits.right, np.full_like(hits.without, -np.inf), hits.groups)
    assert measured(few, fit(hits), 0.01).good_astray == 0


def test_one_group_cannot_be_cross_validated(hits: FirstHits) -> None:
    with pytest.raises(DataError, match="one group is not enough"):
        cross_validated(hits.of_queries(hits.groups == 3), 0.5)


def test_half_of_the_right_ones_must_reach_a_threshold() -> None:
    right = np.array([True] * 20 + [False] * 30)
    for reached, used in ((10, True), (9, False)):
        # all of the wrong ones reach it: they do not count
        probabilities = np.where((np.arange(50) < reached) | ~right, 0.9, 0.1)
        reason = why_unusable(Reliability.of(probabilities, right, probabilities, 0.5), 0.5)
        assert (reason is None) == used
    assert reason == "only 45% of the right first hits reach 0.5"


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]))
def test_a_threshold_is_used_as_the_slow_twin_says(seed: int, count: int, threshold: float) -> None:
    rng = np.random.default_rng(seed)
    # few values, so that some hits lie exactly at the threshold and some shares exactly at the limit
    probabilities, right = rng.choice([0.0, 0.25, 0.5, 0.75, 1.0], count), rng.random(count) < 0.5
    found = Reliability.of(probabilities, right, probabilities, threshold)
    used = threshold_is_used(probabilities.tolist(), right.tolist(), threshold, ENOUGH)
    assert (why_unusable(found, threshold) is None) == used
    # neither the order of the queries nor the wrong ones decide
    order = rng.permutation(count)
    again = Reliability.of(probabilities[order], right[order], probabilities, threshold)
    assert why_unusable(again, threshold) == why_unusable(found, threshold)
    if right.any():
        only = Reliability.of(probabilities[right], right[right], probabilities[right], threshold)
        assert why_unusable(only, threshold) == why_unusable(found, threshold)
        # whoever asks for less is not refused what was granted
        assert not used or why_unusable(Reliability.of(probabilities, right, probabilities, 0.0), 0.0) is None
