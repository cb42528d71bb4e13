import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from limner.search.ranking import best_of_identities, best_of_near_duplicates
from limner.store.vectors import Vectors


def test_the_best_of_each_identity() -> None:
    names = ["a", "b", "a", None, None, "b", "c"]
    ranked = np.array([5, 2, 0, 3, 1, 4])
    assert best_of_identities(ranked, names, 10) == [(5, 2), (2, 2), (3, 1), (4, 1)]
    assert best_of_identities(ranked, names, 2) == [(5, 2), (2, 2)]
    assert best_of_identities(np.empty(0, np.int64), names, 2) == []


def test_the_best_of_nearly_equal_pictures() -> None:
    angles = np.array([0.0, 0.05, 0.1, 2.0, 2.01, 0.19])
    matrix = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    ranked = np.array([1, 0, 3, 5, 2, 4])
    # 0.98 is an angle of 0.2: from row 1, rows 0, 2 and 5 are within it
    assert best_of_near_duplicates(ranked, Vectors(matrix), 5) == [(1, 4), (3, 2)]
    assert best_of_near_duplicates(ranked, Vectors(matrix), 1) == [(1, 4)]
    assert best_of_near_duplicates(ranked, Vectors(matrix), 9, near=1.1) == [
        (row, 1) for row in ranked.tolist()
    ]


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 8), st.floats(-1, 1))
def test_groups_part_the_ranking(seed: int, count: int, k: int, near: float) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(count, 3)).astype(np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    ranked = rng.permutation(count)
    groups = best_of_near_duplicates(ranked, Vectors(matrix), count, near)
    assert sum(size for _, size in groups) == count
    assert groups[:k] == best_of_near_duplicates(ranked, Vectors(matrix), k, near)
    free, expected = list(ranked.tolist()), []
    while free:
        group = [row for row in free if row == free[0] or matrix[row] @ matrix[free[0]] >= near]
        expected.append((free[0], len(group)))
        free = [row for row in free if row not in group]
    assert groups == expected


def test_few_of_many_are_grouped_alike() -> None:
    rng = np.random.default_rng(1)
    matrix = rng.normal(size=(40, 3)).astype(np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    few = rng.permutation(40)[:7]
    assert best_of_near_duplicates(few, Vectors(matrix), 7, 0.5) == [
        (int(few[row]), size)
        for row, size in best_of_near_duplicates(np.arange(7), Vectors(matrix[few]), 7, 0.5)
    ]
