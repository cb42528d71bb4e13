"""Vectors in int8 find what those in fp32 find."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from limner.site.vectors import SmallVectors


@given(
    arrays(np.float32, st.tuples(st.integers(1, 6), st.integers(1, 9)), elements=st.floats(-8, 8, width=32))
)
def test_both_values_together_are_near(matrix: np.ndarray) -> None:
    small = SmallVectors.of(matrix)
    near = small.scales[:, None] * (small.first + small.second.astype(np.float64) / 254)
    most = np.abs(matrix).max(axis=1, keepdims=True)
    assert (np.abs(near - matrix) <= most / 127 / 500 + 1e-6).all()
    assert len(small.to_bytes()) == matrix.shape[0] * (4 + 2 * matrix.shape[1])


def test_the_first_ten_are_those_of_fp32() -> None:
    draw = np.random.default_rng(0)
    matrix = draw.normal(size=(2000, 64)).astype(np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    queries = draw.normal(size=(200, 64)).astype(np.float32)
    right = np.argsort(-(queries @ matrix.T), axis=1, kind="stable")[:, :10]
    same = [
        bool((one == other).all())
        for one, other in zip(SmallVectors.of(matrix).best(queries, 10), right, strict=True)
    ]
    assert np.mean(same) >= 0.99


def test_equal_rows_keep_their_order() -> None:
    matrix = np.ones((5, 3), np.float32)
    assert SmallVectors.of(matrix).best(np.ones((1, 3), np.float32), 4)[0].tolist() == [0, 1, 2, 3]
