import doctest

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from limner.errors import DataError, SettingsError
from limner.evaluation import calibration as module
from limner.evaluation.calibration import GRID, Calibration, PairCounts, fit
from tests.reference.calibration import platt


def _simulated(
    rng: np.random.Generator, queries: int, gallery: int, matches: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Scores of right pictures around 2 and of wrong ones around 0: the odds are those of a straight line."""
    scores = rng.normal(size=(queries, gallery))
    scores[:, :matches] += 2
    right = np.zeros((queries, gallery), bool)
    right[:, :matches] = True
    return scores, right


def test_the_documented_examples_hold() -> None:
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 30), st.sampled_from([1.0, 0.1, 20.0]))
def test_the_fit_is_that_of_the_slow_twin(seed: int, matching: int, others: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    scores = np.concatenate([rng.normal(2, 1.5, matching), rng.normal(0, 1, others)])
    right = np.arange(len(scores)) < matching
    slope, offset = platt(scores.tolist(), right.tolist())
    assume(abs(slope) > 0.01)
    pairs = PairCounts(scores * scale, right.astype(np.int64), (~right).astype(np.int64))
    if slope > 0:
        with pytest.raises(DataError, match="not higher"):
            fit(pairs, 50)
        return
    found = fit(pairs, 50)
    assert found.slope * scale == pytest.approx(-slope, rel=1e-3, abs=1e-3)
    assert found.offset == pytest.approx(-offset, rel=1e-3, abs=1e-3)
    assert (found.gallery, found.right, found.wrong) == (50, matching, others)


def test_known_parameters_are_found_again() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=200_000)
    right = rng.random(len(scores)) < 1 / (1 + np.exp(5.5 - 3 * scores))
    found = fit(PairCounts.of(scores, right), 100)
    assert found.slope == pytest.approx(3, abs=0.06)
    assert found.offset == pytest.approx(-5.5, abs=0.1)
    scores, right = _simulated(rng, 4000, 50)
    found = fit(PairCounts.of(scores.ravel(), right.ravel()), 50)
    assert found.slope == pytest.approx(2, abs=0.08)
    assert found.offset == pytest.approx(-2 - np.log(49), abs=0.15)


def test_blocks_and_order_change_nothing() -> None:
    rng = np.random.default_rng(1)
    scores = rng.choice(rng.normal(size=40), 500).astype(np.float32)  # most scores are ties
    right = rng.random(500) < 0.2
    whole = PairCounts.of(scores, right)
    assert len(whole.scores) <= 40
    assert (whole.right.sum(), whole.wrong.sum()) == (right.sum(), (~right).sum())
    order = rng.permutation(500)
    parts = [PairCounts.of(scores[some], right[some]) for some in np.array_split(order, 7)]
    joined = PairCounts.joined(parts)
    for name in ("scores", "right", "wrong"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name))


def test_pairs_are_counted_at_the_nearest_step() -> None:
    counts = PairCounts.of(np.array([0.4, 0.6, 1.0, -3.3]) * GRID, np.array([True, True, False, True]))
    assert (counts.scores / GRID).tolist() == [-3, 0, 1]
    assert counts.right.tolist() == [1, 1, 1]
    assert counts.wrong.tolist() == [0, 0, 1]


def test_a_score_that_parts_all_pairs_has_a_finite_fit() -> None:
    scores = np.array([0.0, 0.1, 0.2, 0.8, 0.9])
    found = fit(PairCounts.of(scores, scores > 0.5), 5)
    probabilities = found.probability(scores, 5)
    assert probabilities[:3].max() < 0.5 < probabilities[3:].min()
    assert probabilities.max() < 1


def test_what_cannot_be_fitted_is_refused() -> None:
    scores = np.linspace(0, 1, 10)
    none = np.zeros(10, bool)
    with pytest.raises(DataError, match="none of these matches"):
        fit(PairCounts.of(scores, none), 10)
    with pytest.raises(DataError, match="none of these does not match"):
        fit(PairCounts.of(scores, ~none), 10)
    with pytest.raises(DataError, match="not higher than those of the 5 others"):
        fit(PairCounts.of(scores, scores < 0.5), 10)
    with pytest.raises(DataError, match="not higher"):
        fit(PairCounts.of(np.full(10, 0.3), scores < 0.5), 10)
    for bad in (np.nan, np.inf):
        with pytest.raises(DataError, match="diverged"):
            PairCounts.of(np.array([0.1, bad]), np.array([True, False]))


def test_the_prior_moves_with_the_gallery() -> None:
    """Fitted where 20 pictures are searched, right where 200 are."""
    rng = np.random.default_rng(2)
    scores, right = _simulated(rng, 3000, 20)
    fitted = fit(PairCounts.of(scores.ravel(), right.ravel()), 20)
    scores, right = _simulated(rng, 3000, 200)
    likely = fitted.probability(scores.ravel(), 200).reshape(scores.shape)
    assert likely.sum() == pytest.approx(right.sum(), rel=0.1)
    for low, high in ((0.02, 0.05), (0.05, 0.1), (0.1, 0.2), (0.2, 0.4)):
        inside = (likely >= low) & (likely < high)
        assert right[inside].mean() == pytest.approx(likely[inside].mean(), rel=0.2)
    unmoved = fitted.probability(scores.ravel(), 20)
    assert unmoved.sum() > 4 * right.sum()
    anew = fit(PairCounts.of(scores.ravel(), right.ravel()), 200)
    assert anew.offset == pytest.approx(fitted.offset - np.log(10), abs=0.3)


def test_probabilities_keep_the_order_and_take_any_score() -> None:
    fitted = Calibration(slope=4, offset=-2, gallery=10, right=5, wrong=50)
    scores = np.array([-np.inf, -1e4, -1, 0, 1, 1e4], np.float32)
    probabilities = fitted.probability(scores, 10)
    assert probabilities.dtype == np.float64
    assert (np.diff(probabilities) >= 0).all()
    assert probabilities[[0, -1]].tolist() == [0, 1]
    assert (fitted.probability(scores, 1000)[2:5] < probabilities[2:5]).all()
    assert len(fitted.probability(scores[:0], 10)) == 0
    with pytest.raises(SettingsError, match="at least 1 picture"):
        fitted.probability(scores, 0)


def test_it_is_plain_values_and_back() -> None:
    fitted = Calibration(slope=1 / 3, offset=-2.1, gallery=10, right=5, wrong=50)
    assert Calibration.parse(fitted.model_dump()) == fitted
    assert Calibration.model_validate_json(fitted.model_dump_json()) == fitted
    for wrong in (
        {"slope": 0},
        {"slope": float("inf")},
        {"offset": float("nan")},
        {"gallery": 0},
        {"tilt": 1},
    ):
        with pytest.raises(SettingsError):
            fitted.parse({**fitted.model_dump(), **wrong})
