import numpy as np
import pytest

from limner.errors import DataError
from limner.evaluation.calibration import Calibration, PairCounts, fit
from limner.evaluation.evidence import FOLDS, Evidence
from limner.evaluation.reliability import FirstHits, Reliability


@pytest.fixture
def block() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 12, 60)
    right = groups[:, None] == np.arange(24) // 2
    return (rng.normal(size=right.shape) + 2 * right).astype(np.float32), right, groups


def test_all_of_it_is_fitted_whatever_the_blocks(block: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    scores, right, groups = block
    expected = fit(PairCounts.of(scores.ravel(), right.ravel()), 24)
    for size in (60, 7, 1):
        evidence = Evidence()
        for start in range(0, 60, size):
            rows = slice(start, start + size)
            evidence.add(scores[rows], right[rows], groups[rows])
        assert evidence.fit(24) == expected
        measured = evidence.measure(expected, 48, 0.3)
        assert measured.queries == 60
        likely = expected.probability(scores.max(1), 48)
        assert measured.brier == pytest.approx(np.mean((likely - FirstHits.of(scores, right).right) ** 2))


def test_no_sentence_is_measured_by_what_its_identity_was_fitted_with(
    block: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    scores, right, groups = block
    evidence = Evidence()
    evidence.add(scores, right, groups)
    likely, astray, hits = np.zeros(60), np.zeros(60), FirstHits.of(scores, right)
    for fold in range(FOLDS):
        own = groups % FOLDS == fold
        others = fit(PairCounts.of(scores[~own].ravel(), right[~own].ravel()), 24)
        likely[own] = others.probability(hits.scores[own], 24)
        astray[own] = others.probability(hits.astray[own], 24)
    expected = Reliability.of(likely, hits.right, astray, 0.5)
    found = evidence.cross_validated(24, 0.5)
    for name, value in expected.model_dump().items():
        assert getattr(found, name) == pytest.approx(value), name


def test_one_group_cannot_be_cross_validated() -> None:
    evidence = Evidence()
    evidence.add(np.array([[0.9, 0.1]]), np.array([[True, False]]), np.array([3]))
    assert isinstance(evidence.fit(2), Calibration)
    with pytest.raises(DataError, match="one group is not enough"):
        evidence.cross_validated(2, 0.5)
