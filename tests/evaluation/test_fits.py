"""Which images fit a sentence by the other sentences of the set: the rule in loops, and its bound."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limner.errors import DataError
from limner.evaluation.fits import fitting


def unit(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def slow_twin(sentences: np.ndarray, of_sentence: list[int], of_image: list[int]) -> np.ndarray:
    """How much nearer the nearest sentence of each image is than four of five nearest sisters are."""
    cosines = [[float(one @ other) for other in sentences] for one in sentences]
    numbers = range(len(sentences))
    sisters = [[m for m in numbers if m != n and of_sentence[m] == of_sentence[n]] for n in numbers]
    own = [max(cosines[n][m] for m in sisters[n]) for n in numbers if sisters[n]]
    nearest = [
        [
            max([cosines[n][m] for m in numbers if m != n and of_sentence[m] == image] or [-9])
            for image in of_image
        ]
        for n in numbers
    ]
    return np.array(nearest) - np.quantile(own, 0.2)


@given(st.lists(st.integers(0, 5), min_size=7, max_size=30), st.integers(0, 1000))
def test_it_is_the_rule(of_sentence: list[int], seed: int) -> None:
    """In any order of sentences, with images of one identity, and images that no sentence describes."""
    rng = np.random.default_rng(seed)
    of_image = [*range(7), 2, 2]
    middles = rng.normal(size=(6, 8))
    sentences = unit(middles[of_sentence] + 0.7 * rng.normal(size=(len(of_sentence), 8)))
    matching = fitting(sentences, np.array(of_sentence), np.array(of_image))
    rows = rng.permutation(len(of_sentence))
    nearer = slow_twin(sentences, of_sentence, of_image)[rows]
    # products may round otherwise at the bound, which is a cosine itself
    sure = np.abs(nearer) > 1e-6
    assert (matching(rows) == (nearer > 0))[sure].all()
    assert not matching(rows)[:, 6].any()


def test_a_sentence_that_is_said_of_two_images_fits_both() -> None:
    rng = np.random.default_rng(0)
    sentences = unit(rng.normal(size=(12, 16)))
    sentences[1::2] = unit(sentences[::2] + 0.1 * rng.normal(size=(6, 16)))
    sentences[2] = sentences[0]
    groups = np.arange(12) // 2
    found = fitting(sentences, groups, np.arange(6))(np.arange(12))
    assert found[0, 1]
    assert found[2, 0]
    assert found.sum() <= 12 + 4


def test_without_a_second_sentence_there_is_no_measure() -> None:
    with pytest.raises(DataError, match="no image has two of them"):
        fitting(unit(np.eye(4)), np.arange(4), np.arange(4))
