import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from limner.errors import DataError, SettingsError
from limner.evaluation import calibration as module
from limner.evaluation.calibration import ABSENT, Calibration, FirstHits, fit, surroundings
from tests.reference.calibration import lead, logistic


def _simulated(rng: np.random.Generator, queries: int, gallery: int, ahead: float = 2.0) -> FirstHits:
    """Scores of one right picture around `ahead` and of wrong ones around 0."""
    scores = rng.normal(size=(queries, gallery))
    scores[:, 0] += ahead
    right = np.zeros((queries, gallery), bool)
    right[:, 0] = True
    return FirstHits.of(scores, right, np.arange(queries))


FITTED = Calibration(of_score=1, of_lead=3, offset=-2, floor=-0.5, right=5, wrong=50)


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(3, 14), st.sampled_from([1.0, 0.05, 20.0]))
def test_the_fit_is_that_of_the_slow_twin(seed: int, gallery: int, scale: float) -> None:
    hits = _simulated(np.random.default_rng(seed), 12, gallery)
    assume(hits.right.any() and not hits.right.all())
    scores = [row.tolist() for row in hits.scores]
    without = [[score for score in row.tolist() if score > -np.inf] for row in hits.without]
    floor = float(np.quantile([np.mean(row[:6]) for row in scores], 0.01))
    expected = logistic(scores, [row.tolist() for row in hits.right], without, ABSENT, 1e-3, floor)
    assume(abs(expected[0] + expected[1]) > 0.01)
    scaled = FirstHits(hits.scores * scale, hits.right, hits.without * scale, hits.groups)
    if expected[0] + expected[1] < 0:
        with pytest.raises(DataError, match="not higher"):
            fit(scaled)
        return
    found = fit(scaled)
    assert found.of_score * scale == pytest.approx(expected[0], rel=1e-3, abs=3e-3)
    assert found.of_lead * scale == pytest.approx(expected[1], rel=1e-3, abs=3e-3)
    assert found.offset == pytest.approx(expected[2], rel=1e-3, abs=3e-3)
    assert found.floor == pytest.approx(floor * scale)
    assert (found.right, found.wrong) == (hits.right.sum(), (~hits.right).sum())


@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
def test_the_probability_is_that_of_the_slow_twin(seed: int, count: int) -> None:
    ranking = np.sort(np.random.default_rng(seed).normal(size=count))[::-1].astype(np.float32)
    logits = [
        FITTED.of_score * score + FITTED.of_lead * lead(ranking.tolist(), place, FITTED.floor) + FITTED.offset
        for place, score in enumerate(ranking.tolist())
    ]
    found = FITTED.probability(ranking, ranking)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-np.array(logits))))
    assert (np.diff(found) <= 0).all()
    few = FITTED.probability(ranking[2:4], ranking[: min(6, count)])
    np.testing.assert_allclose(few, found[2:4])


def test_known_parameters_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ABSENT", 0)
    monkeypatch.setattr(module, "_RIDGE", 1e-9)
    rng = np.random.default_rng(0)
    scores = np.sort(rng.normal(size=(30_000, 10)) + rng.normal(size=(30_000, 1)), axis=1)[:, ::-1]
    ahead = scores - surroundings(scores, -9.0)[:, None]
    right = rng.random(scores.shape) < 1 / (1 + np.exp(1.5 - 0.5 * scores - 2 * ahead))
    found = fit(FirstHits(scores, right, scores, np.zeros(len(scores), np.int64)))
    # the floor moves the surroundings of one ranking in a hundred
    assert found.of_score == pytest.approx(0.5, abs=0.03)
    assert found.of_lead == pytest.approx(2, abs=0.06)
    assert found.offset == pytest.approx(-1.5, abs=0.03)


def test_the_surroundings_are_six_or_padded_with_the_floor() -> None:
    six = np.array([[6.0, 5, 4, 3, 2, 1, -90]])
    assert surroundings(six, 0.0).tolist() == [3.5]
    assert surroundings(six, 4.0).tolist() == [4]
    assert surroundings(six[:, :1], 0.0).tolist() == [1]
    assert surroundings(np.array([[6.0, 3, -np.inf, -np.inf]]), 1.0).tolist() == pytest.approx([13 / 6])
    assert surroundings(six[:, :0], 0.5).tolist() == [0.5]


def test_a_hit_alone_is_judged_by_its_score() -> None:
    """Its lead over itself would be 0 whatever it scores."""
    fitted = fit(_simulated(np.random.default_rng(3), 500, 50, ahead=4))
    good, bad = (fitted.probability(np.array([score]), np.array([score]))[0] for score in (4.0, 0.0))
    assert good > 0.5
    assert bad < 0.05


def test_a_small_gallery_without_a_match_is_no_certainty() -> None:
    """A few random pictures lie far apart, and the first leads them as a right one leads in a large gallery."""
    rng = np.random.default_rng(4)
    fitted = fit(_simulated(rng, 2000, 200, ahead=3.5))
    unfloored = fitted.replace(floor=-100)
    small = np.sort(rng.normal(size=(500, 8)), axis=1)[:, ::-1].copy()
    assert np.mean([fitted.probability(row[:1], row)[0] for row in small]) < 0.1
    assert np.mean([unfloored.probability(row[:1], row)[0] for row in small]) > 0.3


def test_first_hits_are_right_as_often_as_they_say_in_any_larger_gallery() -> None:
    rng = np.random.default_rng(2)
    fitted = fit(_simulated(rng, 4000, 100, ahead=3))
    for gallery in (100, 400):
        hits = _simulated(rng, 4000, gallery, ahead=3)
        likely = fitted.of_rankings(hits.scores[:, :1], surroundings(hits.scores, fitted.floor))
        assert likely.mean() == pytest.approx(hits.right[:, 0].mean(), abs=0.1)


def test_hits_parted_without_a_slip_have_a_finite_fit() -> None:
    scores = np.tile([5.0, 1, 1, 1, 1, 1, 1], (20, 1))
    right = np.tile(np.arange(7) == 0, (20, 1))
    found = fit(FirstHits.of(scores, right, np.arange(20)))
    likely = found.probability(scores[0], scores[0])
    assert likely[1] < 0.1 < 0.9 < likely[0] < 1


def test_rankings_of_one_can_be_fitted() -> None:
    scores = np.linspace(0, 1, 40)[:, None]
    right = scores + np.tile([[0.2], [-0.2]], (20, 1)) > 0.5
    found = fit(FirstHits.of(scores, right, np.arange(40)))
    assert found.probability(np.array([0.9]), np.array([0.9]))[0] > 0.6
    assert found.probability(np.array([0.1]), np.array([0.1]))[0] < 0.4


def test_what_cannot_be_fitted_is_refused() -> None:
    scores = np.random.default_rng(5).normal(size=(20, 9))
    none, groups = np.zeros(scores.shape, bool), np.arange(20)
    with pytest.raises(DataError, match="none of these matches"):
        fit(FirstHits.of(scores, none, groups))
    with pytest.raises(DataError, match="none of these does not match"):
        fit(FirstHits.of(scores, ~none, groups))
    last = scores == scores.min(1, keepdims=True)
    with pytest.raises(DataError, match="not higher than those of the 160 others"):
        fit(FirstHits.of(scores, last, groups))
    with pytest.raises(DataError, match="not higher"):
        fit(FirstHits.of(np.full((20, 9), 0.3), last, groups))


def test_any_score_has_a_probability() -> None:
    scores = np.array([1e4, 1, 0, -1, -1e4, -np.inf], np.float32)
    found = FITTED.probability(scores, scores[1:5])
    assert found[[0, 4, 5]].tolist() == [1, 0, 0]
    assert (np.diff(found) <= 0).all()
    assert len(FITTED.probability(scores[:0], scores[:0])) == 0


def test_it_is_plain_values_and_back() -> None:
    fitted = FITTED.replace(of_score=-1 / 3)
    assert Calibration.parse(fitted.model_dump()) == fitted
    assert Calibration.model_validate_json(fitted.model_dump_json()) == fitted
    for wrong in (
        {"of_lead": float("inf")},
        {"offset": float("nan")},
        {"of_lead": 0},
        {"right": 0},
        {"tilt": 1},
    ):
        with pytest.raises(SettingsError):
            fitted.parse({**fitted.model_dump(), **wrong})
