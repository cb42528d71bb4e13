"""Exact search against its slow twin, a stable sort of the scores of all rows, over data that is hard for codes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limner.store import vectors as module
from limner.store.int8_codes import Int8Codes, kernel
from limner.store.vectors import Vectors, top

Rows = Any  # arrays of numpy, whose arithmetic has no types

pytest.importorskip("numkong")


@given(st.lists(st.integers(-2, 2), max_size=30), st.integers(1, 40))
def test_top_is_the_head_of_a_stable_sort(values: list[int], k: int) -> None:
    expected = sorted(range(len(values)), key=lambda index: -values[index])[:k]
    assert top(np.array(values, np.float32), k).tolist() == expected


def twin(matrix: Rows, query: Rows, k: int, rows: Rows | None = None) -> tuple[list[int], list[float]]:
    """The slow twin: every row scored alone, and all of them sorted."""
    taking_part = range(len(matrix)) if rows is None else rows.tolist()
    scores = {row: float(np.einsum("d,d->", matrix[row], query)) for row in taking_part}
    best = sorted(taking_part, key=lambda row: -scores[row])[:k]
    return best, [scores[row] for row in best]


def random(rng: np.random.Generator, count: int, dim: int) -> Rows:
    return rng.normal(size=(count, dim))


def clusters(rng: np.random.Generator, count: int, dim: int) -> Rows:
    return random(rng, 3, dim)[rng.integers(0, 3, count)] + 0.01 * random(rng, count, dim)


def copies(rng: np.random.Generator, count: int, dim: int) -> Rows:
    return random(rng, 5, dim)[rng.integers(0, 5, count)]


def below_a_step(rng: np.random.Generator, count: int, dim: int) -> Rows:
    return random(rng, 2, dim)[rng.integers(0, 2, count)] + 1e-6 * random(rng, count, dim)


def last_bits(rng: np.random.Generator, count: int, dim: int) -> Rows:
    return random(rng, 1, dim) * (1 + 2.0**-23 * rng.integers(-2, 3, (count, dim)))


def zeros(rng: np.random.Generator, count: int, dim: int) -> Rows:
    return random(rng, count, dim) * (rng.random((count, 1)) < 0.3)


def spikes(rng: np.random.Generator, count: int, dim: int) -> Rows:
    return 0.01 * random(rng, count, dim) + 10 * (np.arange(dim) == rng.integers(0, dim, (count, 1)))


def lengths(rng: np.random.Generator, count: int, dim: int) -> Rows:
    return random(rng, count, dim) * 10.0 ** rng.integers(-6, 6, (count, 1))


def between_codes(rng: np.random.Generator, count: int, dim: int) -> Rows:
    # each number is as far from a code as it can be
    rows = rng.integers(-63, 63, (count, dim)) + 0.5
    rows[:, 0] = 127
    return rows


KINDS = [random, clusters, copies, below_a_step, last_bits, zeros, spikes, lengths, between_codes]


def queries_of(rng: np.random.Generator, matrix: Rows, count: int) -> Rows:
    near = matrix[rng.integers(0, len(matrix), count)]
    noise = rng.normal(size=near.shape) * rng.choice([0, 1e-6, 1, 100], (count, 1))
    return (near * rng.choice([-1, 0, 1, 1], (count, 1)) + noise).astype(np.float32)


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 10_000),
    count=st.sampled_from([1, 17, 300, 500]),
    dim=st.sampled_from([1, 5, 64, 131]),
    k=st.sampled_from([1, 2, 10, 40, 1000]),
    share=st.sampled_from([1.0, 0.9, 0.2, 0.02]),
)
def test_the_first_rows_are_those_of_the_slow_twin(
    kind: object, seed: int, count: int, dim: int, k: int, share: float
) -> None:
    assert callable(kind)
    rng = np.random.default_rng(seed)
    matrix = kind(rng, count, dim).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CODED_FROM", 1)
        # as many rows need at a time as only the largest stores have: so that the blocks end within these
        patch.setattr(module, "_PRODUCTS", 800)
        patch.setattr(module, "_WAITING", int(rng.choice([100, 2000, 1 << 20])))
        patch.setattr(module, "_BLOCK", 7)
        vectors = Vectors(matrix)
        vectors.prepare()
        queries = queries_of(rng, matrix, 9)
        expected = [twin(matrix, query, k) for query in queries]
        together = vectors.first_of_each(queries, k)
        for query, (rows, scores), several in zip(queries, expected, together, strict=True):
            for found in (vectors.first(query, k), several):
                assert found[0].tolist() == rows
                assert found[1].tolist() == scores
        some = np.flatnonzero(rng.random(count) < share)
        rows, scores = twin(matrix, queries[0], k, some)
        found = vectors.first(queries[0], k, some)
        assert found[0].tolist() == rows
        assert found[1].tolist() == scores


@settings(max_examples=100, deadline=None)
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 10_000), dim=st.sampled_from([1, 2, 31, 64, 1000]))
def test_no_product_of_codes_is_further_off_than_its_bound(kind: object, seed: int, dim: int) -> None:
    assert callable(kind)
    rng = np.random.default_rng(seed)
    matrix = kind(rng, 60, dim).astype(np.float32)
    codes = Int8Codes.of(matrix)
    assert codes is not None
    for query in queries_of(rng, matrix, 5):
        coarse, error = codes.products(query)
        for exact in (matrix.astype(np.float64) @ query.astype(np.float64), Vectors(matrix).scores(query)):
            assert (np.abs(coarse.astype(np.float64) - exact) <= error).all()


@pytest.mark.parametrize("dim", [1, 3, 384, 512, 1000, 1024, 8192])
def test_a_score_depends_on_its_row_alone(dim: int) -> None:
    rng = np.random.default_rng(dim)
    matrix = rng.normal(size=(67, dim)).astype(np.float32)
    query = rng.normal(size=dim).astype(np.float32)
    vectors = Vectors(matrix)
    alone = [float(np.einsum("d,d->", row.copy(), query)) for row in matrix]
    assert vectors.scores(query).tolist() == alone
    for some in (np.arange(66, 0, -1), np.array([66]), np.array([5, 5, 7]), np.arange(0, 67, 3)):
        assert vectors.scores(query, some).tolist() == [alone[row] for row in some]


@pytest.mark.parametrize("dim", [1, 7, 64, 513, 2048])
def test_the_kernel_is_exact_at_the_ends_of_its_range(dim: int) -> None:
    product = kernel()
    assert product is not None
    signs = np.where(np.random.default_rng(0).random((40, dim)) < 0.5, -127, 127).astype(np.int8)
    signs[:2] = [[127], [-127]]
    found = np.asarray(product(signs[:1], signs, metric="dot", out_dtype="float32"))[0]
    assert found.tolist() == (signs.astype(np.int64) @ signs[0].astype(np.int64)).astype(np.float32).tolist()


def test_the_first_search_makes_no_codes_and_the_second_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CODED_FROM", 100)
    matrix = np.random.default_rng(0).normal(size=(200, 8)).astype(np.float32)
    vectors, few = Vectors(matrix), Vectors(matrix[:99])
    answers = []
    for _ in range(3):
        answers.append(vectors.first(matrix[3], 5))
        few.first(matrix[3], 5)
    assert all(rows.tolist() == answers[0][0].tolist() for rows, _ in answers)
    assert vectors._codes is not None
    assert few._codes is None
    once = Vectors(matrix)
    once.first(matrix[3], 5)
    assert once._codes is None


def test_codes_that_are_arranged_while_they_are_made_are_there_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CODED_FROM", 1)
    rng = np.random.default_rng(0)
    matrix = clusters(rng, 2000, 8).astype(np.float32)
    vectors = Vectors(matrix, on_disk=True)
    made = vectors._make_codes

    def late(order: Rows | None = None) -> Int8Codes | None:
        codes = made(order)
        if order is None:
            vectors.arrange(rng.permutation(2000).astype(np.int32))
        return codes

    monkeypatch.setattr(vectors, "_make_codes", late)
    vectors.prepare()
    assert vectors.coded is not None
    assert vectors._codes is None
    found, expected = vectors.first(matrix[3], 5), Vectors(matrix).first(matrix[3], 5)
    assert found[0].tolist() == expected[0].tolist()


def test_without_the_kernel_the_answers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CODED_FROM", 1)
    rng = np.random.default_rng(0)
    matrix = clusters(rng, 400, 32).astype(np.float32)
    queries = queries_of(rng, matrix, 12)
    coded = Vectors(matrix)
    coded.prepare()
    assert coded._codes is not None
    with monkeypatch.context() as patch:
        patch.setattr("limner.store.int8_codes.kernel", lambda: None)
        plain = Vectors(matrix)
        plain.prepare()
        assert plain._codes is None
        expected = [plain.first(query, 10) for query in queries]
    for query, (rows, scores) in zip(queries, expected, strict=True):
        found = coded.first(query, 10)
        assert found[0].tolist() == rows.tolist()
        assert found[1].tolist() == scores.tolist()
