import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limner.errors import DataError
from limner.evaluation.calibration import HITS, FirstHits

NAMES = ("scores", "right", "without", "groups")


@given(st.integers(0, 2**32 - 1), st.integers(1, 25), st.sampled_from([0.0, 0.1, 0.9, 1.0]))
def test_they_are_those_of_a_full_sort(seed: int, gallery: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.choice([-1.0, -0.5, 0.0, 0.25, 3.0], (4, gallery)).astype(np.float32)  # most are ties
    right = rng.random(scores.shape) < share
    hits = FirstHits.of(scores, right, np.arange(4))
    for row in range(4):
        pairs = sorted(
            zip(scores[row].tolist(), right[row].tolist(), strict=True), key=lambda pair: (-pair[0], pair[1])
        )
        shown = pairs[:HITS]
        assert hits.scores[row].tolist() == [score for score, _ in shown]
        assert hits.right[row].tolist() == [matches for _, matches in shown]
        left = [score for score, matches in pairs if not matches][:HITS]
        assert hits.without[row].tolist() == left + [-np.inf] * (len(shown) - len(left))


def test_blocks_and_parts_change_nothing() -> None:
    rng = np.random.default_rng(1)
    scores, right = rng.normal(size=(30, 40)), rng.random((30, 40)) < 0.1
    groups = rng.integers(0, 5, 30)
    whole = FirstHits.of(scores, right, groups)
    parts = np.array_split(np.arange(30), 7)
    joined = FirstHits.joined([FirstHits.of(scores[some], right[some], groups[some]) for some in parts])
    for name in NAMES:
        np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name))
    some = whole.of_queries(groups == 2)
    for name in NAMES:
        np.testing.assert_array_equal(getattr(some, name), getattr(whole, name)[groups == 2])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_scores_that_are_no_numbers_are_refused(bad: float) -> None:
    with pytest.raises(DataError, match="diverged"):
        FirstHits.of(np.array([[0.1, bad]]), np.array([[True, False]]), np.array([0]))
