import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from limner.errors import DataError, SettingsError
from limner.evaluation.curves import CURVES
from limner.evaluation.measures import NAMED, OF_K, Matches, MeanAveragePrecision, value_of
from limner.evaluation.ranking import (
    RankingResult,
    average_precisions,
    first_match_ranks,
    rank_embeddings,
    rank_scores,
)
from limner.evaluation.relevance import Relevance
from limner.evaluation.scores import BINS, Overlap, of_embeddings
from tests.reference.ranking import average_precision, first_match_rank, match_ranks, overlap

MAP = MeanAveragePrecision()

Case = tuple[np.ndarray, list[int], list[int]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Scores from a tiny set (many ties) or at random, with and without matches."""
    queries, gallery = draw(st.integers(1, 9)), draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    levels = draw(st.sampled_from([1, 2, 4, 0]))
    shape = (queries, gallery)
    scores = rng.integers(0, levels, shape) - 1 if levels else rng.standard_normal(shape)
    groups = draw(st.integers(1, 12))
    return (
        scores.astype(draw(st.sampled_from([np.float32, np.float64]))),
        rng.integers(0, groups + 1, queries).tolist(),
        rng.integers(0, groups, gallery).tolist(),
    )


def expected(scores: np.ndarray, queries: list[int], gallery: list[int]) -> tuple[list[int], list[float]]:
    rows = [
        (row.tolist(), [item == query for item in gallery])
        for row, query in zip(scores, queries, strict=True)
    ]
    return [first_match_rank(*row) for row in rows], [average_precision(*row) for row in rows]


def check(ranking: RankingResult, ranks: list[int], precisions: list[float]) -> None:
    assert ranking.first_ranks.tolist() == ranks
    np.testing.assert_allclose(ranking.each(MAP), precisions, rtol=1e-12)
    assert ranking.without_match == ranks.count(0)


@settings(max_examples=150)
@given(cases(), st.sampled_from([None, 1, 2, 5]))
def test_scores_are_ranked_as_by_sorted_lists(case: Case, block: int | None) -> None:
    scores, queries, gallery = case
    before = scores.copy()
    relevance = Relevance.from_groups(queries, gallery)
    ranks, precisions = expected(*case)
    check(rank_scores(scores, relevance, block=block), ranks, precisions)
    check(rank_scores(torch.from_numpy(scores).T.contiguous().T, relevance, block=block), ranks, precisions)
    np.testing.assert_array_equal(scores, before)


@settings(max_examples=80)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.sampled_from([1, 3, 20]), st.integers(1, 7))
def test_embeddings_are_ranked_as_by_sorted_lists(seed: int, items: int, groups: int, block: int) -> None:
    # Small integers, so that every product is exact in any order and ties are frequent.
    rng = np.random.default_rng(seed)
    q = rng.integers(-2, 3, (6, 3)).astype(np.float32)
    g = rng.integers(-2, 3, (items, 3)).astype(np.float32)
    queries, gallery = rng.integers(0, groups + 1, 6).tolist(), rng.integers(0, groups, items).tolist()
    ranks, precisions = expected(q @ g.T, queries, gallery)
    relevance = Relevance.from_groups(queries, gallery)
    check(rank_embeddings(q, g, relevance), ranks, precisions)
    check(
        rank_embeddings(torch.from_numpy(q).bfloat16(), torch.from_numpy(g), relevance, block=block),
        ranks,
        precisions,
    )
    assert first_match_ranks(q, g, queries, gallery).tolist() == ranks
    np.testing.assert_allclose(average_precisions(q, g, queries, gallery), precisions, rtol=1e-12)


@settings(max_examples=60)
@given(cases(), st.randoms(use_true_random=False))
def test_order_of_queries_and_items_changes_nothing(case: Case, random: object) -> None:
    scores, queries, gallery = case
    rng = np.random.default_rng(len(gallery))
    rows, columns = rng.permutation(len(queries)), rng.permutation(len(gallery))
    plain = rank_scores(scores, Relevance.from_groups(queries, gallery))
    moved = rank_scores(
        scores[rows][:, columns], Relevance.from_groups(np.array(queries)[rows], np.array(gallery)[columns])
    )
    assert moved.first_ranks.tolist() == plain.first_ranks[rows].tolist()
    np.testing.assert_allclose(moved.each(MAP), plain.each(MAP)[rows], rtol=1e-12)


@pytest.mark.parametrize("captions", [1, 5])
def test_a_collapsed_model_is_not_above_chance(captions: int) -> None:
    # One real-valued row for everything: rounding in a matrix product must not break these ties.
    images, dim = 37, 131
    row = np.random.default_rng(0).standard_normal(dim).astype(np.float32)
    q, g = np.tile(row, (images, 1)), np.tile(row, (images * captions, 1))
    groups = np.arange(images)
    for block in (1, 4, None):
        relevance = Relevance.from_groups(groups, np.repeat(groups, captions))
        ranks = rank_embeddings(q, g, relevance, block=block).first_ranks
        assert set(ranks.tolist()) == {(images - 1) * captions + 1}


def test_equal_rows_tie_wherever_they_stand() -> None:
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((40, 515)).astype(np.float32)
    gallery = np.concatenate([rows, rows, rows[::-1]])
    groups = np.concatenate([np.arange(40), np.full(80, 99)])  # each true row has two wrong copies
    for block in (1, 3, None):
        ranking = rank_embeddings(rows, gallery, Relevance.from_groups(np.arange(40), groups), block=block)
        assert ranking.first_ranks.tolist() == [3] * 40


def test_hundreds_of_matches_a_query() -> None:
    rng = np.random.default_rng(2)
    scores = rng.standard_normal((12, 700)).astype(np.float32).round(1)
    queries, gallery = rng.integers(0, 3, 12).tolist(), rng.integers(0, 2, 700).tolist()
    ranks, precisions = expected(scores, queries, gallery)
    check(rank_scores(scores, Relevance.from_groups(queries, gallery)), ranks, precisions)


def test_a_single_item() -> None:
    one = np.ones((1, 4), dtype=np.float32)
    assert first_match_ranks(one, one, [3], [3]).tolist() == [1]
    assert average_precisions(one, one, [3], [3]).tolist() == [1.0]
    assert first_match_ranks(one, one, [3], [4]).tolist() == [0]
    assert np.isnan(average_precisions(one, one, [3], [4])).all()


def test_read_only_and_reversed_arrays_are_taken() -> None:
    rows = np.eye(3, dtype=np.float32)
    rows.flags.writeable = False
    assert first_match_ranks(rows[::-1], rows, [2, 1, 0], [0, 1, 2]).tolist() == [1, 1, 1]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(bad: float) -> None:
    good, spoilt = np.ones((3, 2), dtype=np.float32), np.ones((3, 2), dtype=np.float32)
    spoilt[1, 1] = bad
    relevance = Relevance.from_groups([0, 1, 2], [0, 1, 2])
    with pytest.raises(DataError, match="query embeddings: row 1"):
        rank_embeddings(spoilt, good, relevance)
    with pytest.raises(DataError, match="gallery embeddings: row 1"):
        rank_embeddings(good, spoilt, relevance)
    with pytest.raises(DataError, match="rows 1 to 1"):
        rank_scores(spoilt, Relevance.from_groups([0, 1, 2], [0, 1]), block=1)


def test_products_that_overflow_are_refused() -> None:
    rows = np.full((2, 2), 3e30, dtype=np.float32)
    with pytest.raises(DataError, match="overflow"):
        rank_embeddings(rows, rows, Relevance.from_groups([0, 1], [0, 1]))
    assert first_match_ranks(rows.astype(np.float64), rows, [0, 1], [0, 1]).tolist() == [2, 2]


@pytest.mark.parametrize(("dtype", "size"), [(np.float32, 1e-30), (np.float64, 1e-170)])
def test_products_that_vanish_are_refused(dtype: type, size: float) -> None:
    rows: np.ndarray = np.eye(3, 4, dtype=dtype)
    tiny: np.ndarray = (rows * size).astype(dtype)
    for queries in (tiny, np.vstack([rows[:2], tiny[2:]])):
        with pytest.raises(DataError, match="L2-normalise"):
            of_embeddings(queries, tiny)
    # a row of zeros has no product that could be lost, and one small row of a gallery none that could decide
    of_embeddings(np.vstack([rows[:2], rows[2:] * 0]), np.vstack([rows[:2], tiny[2:]]))
    of_embeddings(rows * 0, rows * 0)
    # float64 holds what float32 does not
    if dtype is np.float32:
        of_embeddings(tiny.astype(np.float64), tiny.astype(np.float64))


def test_shapes_that_do_not_fit_are_refused() -> None:
    two, three = np.ones((2, 2), dtype=np.float32), np.ones((2, 3), dtype=np.float32)
    relevance = Relevance.from_groups([0, 1], [0, 1])
    with pytest.raises(DataError, match="2 columns, gallery embeddings 3"):
        rank_embeddings(two, three, relevance)
    with pytest.raises(DataError, match="give one code an item"):
        rank_embeddings(two, two, Relevance.from_groups([0, 1, 2], [0, 1]))
    with pytest.raises(DataError, match="give one code an item"):
        rank_scores(three, relevance)
    with pytest.raises(SettingsError, match="at least 1 query"):
        rank_scores(two, relevance, block=0)


ALL = (*NAMED, *(make(k) for make in OF_K.values() for k in (1, 3, 50)))


@settings(max_examples=100)
@given(cases(), st.sampled_from([None, 1, 2, 5]))
def test_all_measures_at_once_are_those_of_sorted_lists(case: Case, block: int | None) -> None:
    scores, queries, gallery = case
    relevance = Relevance.from_groups(queries, gallery)
    ranking = rank_scores(scores, relevance, [*ALL, *CURVES], block=block)
    lists = [
        match_ranks(row.tolist(), [item == query for item in gallery])
        for row, query in zip(scores, queries, strict=True)
    ]
    assert ranking.matched.tolist() == [bool(ranks) for ranks in lists]
    if not any(lists):
        with pytest.raises(DataError, match="no query has a true match"):
            ranking.value(MAP)
        with pytest.raises(DataError, match="no query has a true match"):
            ranking.curve(CURVES[0])
        return
    matches = Matches.of([ranks for ranks in lists if ranks], len(gallery))
    for measure in ALL:
        assert ranking.value(measure) == pytest.approx(value_of(measure, matches)), str(measure)
        assert np.isnan(ranking.each(measure)).tolist() == [not ranks for ranks in lists]
    for curve in CURVES:
        drawn = ranking.curve(curve)
        assert list(drawn[curve.x]) == list(curve.places(len(gallery)))
        np.testing.assert_allclose(drawn["precision"], curve.each(matches).mean(0), rtol=1e-12)


@settings(max_examples=60)
@given(cases(), st.integers(1, 4), st.sampled_from([None, 1, 3]))
def test_shared_labels_are_ranked_as_by_sorted_lists(case: Case, labels: int, block: int | None) -> None:
    scores, queries, gallery = case
    rng = np.random.default_rng(len(gallery))
    of_queries = rng.integers(0, 2, (len(queries), labels))
    of_gallery = rng.integers(0, 2, (len(gallery), labels))
    ranking = rank_scores(scores, Relevance.from_labels(of_queries, of_gallery), [MAP], block=block)
    true = (of_queries @ of_gallery.T > 0).tolist()
    rows = list(zip(scores.tolist(), true, strict=True))
    assert ranking.first_ranks.tolist() == [first_match_rank(*row) for row in rows]
    np.testing.assert_allclose(ranking.each(MAP), [average_precision(*row) for row in rows], rtol=1e-12)


@pytest.mark.parametrize("block", [None, 1, 4])
def test_overlap_counts_each_pair_once_in_either_direction(block: int | None) -> None:
    rng = np.random.default_rng(0)
    images, texts = (
        rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in rng.standard_normal((2, 30, 8))
    )
    groups = np.arange(30) // 2
    scores = images @ texts.T
    true = groups[:, None] == groups
    expected = overlap(scores[true].tolist(), scores[~true].tolist(), BINS)
    for queries, gallery in ((images, texts), (texts, images)):
        ranking = rank_embeddings(
            queries, gallery, Relevance.from_groups(groups, groups), [Overlap()], block=block
        )
        assert ranking.value(Overlap()) == pytest.approx(expected)


@pytest.mark.parametrize("kind", [">f8", "f2", "f8"])
def test_every_kind_of_float_is_taken(kind: str) -> None:
    rng = np.random.default_rng(3)
    rows = rng.integers(-4, 5, (6, 3)).astype(float)
    expected = first_match_ranks(rows, rows[::-1], range(6), range(6))
    found = first_match_ranks(rows.astype(kind), rows[::-1].astype(kind), range(6), range(6))
    assert found.tolist() == expected.tolist()


def test_groups_beyond_64_bits_are_refused() -> None:
    with pytest.raises(DataError, match="does not fit into 64 bits"):
        first_match_ranks(np.eye(1), np.eye(1), np.array([2**64 - 1], np.uint64), [-1])
