"""The methods for words against scores whose parts are known, and against slow twins."""

import itertools
import math

import numpy as np
import pytest

from limner.inference.word_effects import (
    METHODS,
    Design,
    LeaveOneOut,
    MaskedRegression,
    Substitution,
    Words,
    known_to,
)
from tests.search.fake import FakeEncoder

TEXT = ("a", "lady", "in", "red", "trousers")
WORTH = {
    "a": 0.01,
    "lady": 0.2,
    "man": 0.1,
    "in": -0.02,
    "red": 0.3,
    "blue": -0.1,
    "trousers": 0.25,
    "jeans": 0.05,
}
EXACT = MaskedRegression(ridge=0.0)


def additive(words: Words) -> float:
    return 0.5 + sum(WORTH[word] for word in words)


def interacting(words: Words) -> float:
    return additive(words) + 0.1 * ("red" in words and "trousers" in words) + 0.05 * len(words) ** 2


def effects(design: Design, score: object) -> np.ndarray:
    assert callable(score)
    return np.asarray(design.matrix @ np.array([score(words) for words in design.variants]))


def known(word: str) -> bool:
    return word in WORTH


def test_an_additive_score_is_taken_apart() -> None:
    own = [WORTH[word] for word in TEXT]
    assert effects(LeaveOneOut().design(TEXT, known), additive) == pytest.approx(own)
    assert effects(EXACT.design(TEXT, known), additive) == pytest.approx(own)
    long = tuple(itertools.islice(itertools.cycle(TEXT), 40))  # more words than masks can be gone through
    assert effects(EXACT.design(long, known), additive) == pytest.approx([WORTH[word] for word in long])


def shapley_like(words: Words, score: object, keep: float) -> list[float]:
    """The twin: weighted least squares over all masks but the empty one, by the normal equations, loop by loop."""
    assert callable(score)
    count = len(words)
    left, right = np.zeros((count + 1, count + 1)), np.zeros(count + 1)
    for mask in itertools.product((0, 1), repeat=count):
        if any(mask):
            weight = math.prod(keep if kept else 1 - keep for kept in mask)
            row = [1, *mask]
            value = score(tuple(word for word, kept in zip(words, mask, strict=True) if kept))
            for i in range(count + 1):
                right[i] += weight * row[i] * value
                for j in range(count + 1):
                    left[i, j] += weight * row[i] * row[j]
    return list(np.linalg.solve(left, right)[1:])


@pytest.mark.parametrize("keep", [0.5, 0.8])
def test_the_regression_over_all_masks_is_weighted_least_squares(keep: float) -> None:
    design = MaskedRegression(keep=keep, ridge=0.0).design(TEXT, known)
    assert len(design.variants) == 1 + 2**5 - 1
    assert effects(design, interacting) == pytest.approx(shapley_like(TEXT, interacting, keep))


def test_the_ridge_is_its_definition() -> None:
    words = tuple(WORTH)
    design = MaskedRegression(masks=64, ridge=0.05).design(words, known)
    scores = np.array([interacting(variant) for variant in design.variants[1:]])
    kept = np.array([[word in variant for word in words] for variant in design.variants[1:]], float)
    # centred, so that the intercept is free; the penalty is a share of the masks
    x = kept - kept.mean(0)
    by_hand = np.linalg.solve(x.T @ x + 0.05 * len(kept) * np.eye(len(words)), x.T @ (scores - scores.mean()))
    assert effects(design, interacting) == pytest.approx(by_hand)


def test_masks_are_the_same_for_every_caller_and_keep_a_word() -> None:
    first, second = (MaskedRegression().design(TEXT * 5, known).variants for _ in range(2))
    assert first == second
    assert len(first) == 129
    assert all(first)
    assert len(MaskedRegression().design(TEXT * 20, known).variants) == 401  # four masks a word


def test_a_word_is_held_against_its_kind() -> None:
    found = effects(Substitution().design(TEXT, known), additive)
    # lady: man is known of the other persons, but not boy and girl; red: blue; trousers: jeans
    by_hand = [0.01, 0.2 - 0.1, -0.02, 0.3 + 0.1, 0.25 - 0.05]
    assert found == pytest.approx(by_hand)
    every = Substitution(most=3).design(("red",), lambda word: True)
    assert len(every.variants) == 4
    assert Substitution().design(("red",), lambda word: False).matrix.tolist() == [[0.0]]


def test_noise_is_the_error_of_the_regression_or_a_word_without_a_meaning() -> None:
    words = tuple(f"w{number}" for number in range(9))
    design = MaskedRegression(ridge=0.0).design(words, known)
    generator = np.random.default_rng(0)
    scores = generator.normal(size=len(design.variants))
    kept = np.array([[word in variant for word in words] for variant in design.variants[1:]], float)
    columns = np.hstack([np.ones((len(kept), 1)), kept])
    # the textbook: s² (XᵀX)⁻¹
    solved, *_ = np.linalg.lstsq(columns, scores[1:], rcond=None)
    residuals = scores[1:] - columns @ solved
    covariance = np.linalg.inv(columns.T @ columns) * (residuals @ residuals) / (len(kept) - 10)
    found = design.noise(scores)
    assert found == pytest.approx(1.96 * np.sqrt(np.diag(covariance)[1:]))
    pair = np.zeros((1, 9), bool)
    pair[0, :2] = True
    together = design.noise(scores, pair)
    assert together == pytest.approx([1.96 * math.sqrt(covariance[1:3, 1:3].sum())])
    left_out = LeaveOneOut().design(TEXT, known)
    scores = np.array([additive(variant) for variant in left_out.variants])
    assert left_out.noise(scores) == pytest.approx([0.02] * 5)  # that of "in"
    assert LeaveOneOut().design(("red", "trousers"), known).noise(np.ones(3)) is None


@pytest.mark.parametrize("name", METHODS)
def test_short_texts(name: str) -> None:
    for count in (1, 2, 3):
        design = METHODS[name].design(TEXT[:count], known)
        assert design.variants[0] == TEXT[:count]
        assert design.matrix.shape == (count, len(design.variants))
        assert np.isfinite(design.matrix).all()
        assert all(design.variants)


def test_known_words_are_asked_for_once() -> None:
    encoder = FakeEncoder()
    asked: list[str] = []
    encoder.known_words = lambda sentence: asked.append(sentence) or [sentence]  # type: ignore[method-assign,func-returns-value]
    known = known_to(encoder)
    assert known("red")
    assert known("red")
    assert asked == ["red"]
