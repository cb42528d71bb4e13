import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limner.errors import DataError
from limner.evaluation import reliability as module
from limner.evaluation.reliability import BINS, FirstHits, Reliability
from tests.reference.calibration import calibration_error


def test_the_documented_examples_hold() -> None:
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed


def test_ties_of_the_first_hit_are_against_the_model() -> None:
    scores = np.array([[0.9, 0.5, 0.1], [0.5, 0.5, 0.1], [0.1, 0.9, 0.2], [0.3, 0.2, 0.1]], np.float32)
    right = np.array([[1, 0, 0], [1, 0, 0], [1, 0, 0], [1, 1, 1]], bool)
    hits = FirstHits.of(scores, right)
    np.testing.assert_array_equal(hits.scores, scores.max(1))
    assert hits.right.tolist() == [True, False, False, True]
    np.testing.assert_array_equal(hits.astray, np.array([0.5, 0.5, 0.9, -np.inf], np.float32))
    halves = FirstHits.joined([FirstHits.of(scores[:1], right[:1]), FirstHits.of(scores[1:], right[1:])])
    for name in ("scores", "right", "astray"):
        np.testing.assert_array_equal(getattr(halves, name), getattr(hits, name))


def test_nothing_right_is_no_right_hit() -> None:
    hits = FirstHits.of(np.array([[0.1, 0.4]]), np.zeros((1, 2), bool))
    assert hits.right.tolist() == [False]
    assert hits.scores.tolist() == hits.astray.tolist() == [0.4]


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
    assert (found.good, found.good_right, found.good_astray) == (0, None, 0)
    assert Reliability.parse(found.model_dump()) == found
