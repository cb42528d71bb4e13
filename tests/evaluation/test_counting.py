"""Counts of scores at bounds, and both directions from one product, against one direction after the other."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from limner.errors import DataError
from limner.evaluation import counting, ranking
from limner.evaluation.counting import Reached, at_least
from limner.evaluation.curves import CURVES
from limner.evaluation.measures import NAMED, OF_K, MeanAveragePrecision, Measure
from limner.evaluation.names import AnyMeasure
from limner.evaluation.ranking import RankingResult, rank_both, rank_embeddings
from limner.evaluation.relevance import Relevance
from limner.evaluation.scores import Overlap
from tests.reference.ranking import average_precision, first_match_rank

MEAN_AVERAGE_PRECISION = MeanAveragePrecision()
RANKS: tuple[AnyMeasure, ...] = (*NAMED, *(make(k) for make in OF_K.values() for k in (1, 5)), *CURVES)
ALL: tuple[AnyMeasure, ...] = (*RANKS, Overlap())
SEEDS = st.integers(0, 2**32 - 1)
# of codes of ±1, of rows that are all the same, and of noise around groups
KINDS = ("codes", "constant", "noise", "copies")


def embeddings(
    kind: str, seed: int, images: int, sentences: int, groups: int, dim: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    of_images, of_sentences = rng.integers(0, groups, images), rng.integers(0, groups, sentences)
    centres = rng.standard_normal((groups + 1, dim))
    if kind == "codes":
        rows = [rng.choice([-1.0, 1.0], (count, dim)) for count in (images, sentences)]
    elif kind == "constant":
        rows = [np.repeat(centres[:1], count, axis=0) for count in (images, sentences)]
    else:
        spread = 0.7 * (kind == "noise")
        rows = [
            centres[of] + spread * rng.standard_normal((len(of), dim)) for of in (of_images, of_sentences)
        ]
    unit = [(part / np.linalg.norm(part, axis=1, keepdims=True)).astype(np.float32) for part in rows]
    return unit[0], unit[1], of_images, of_sentences


def expect_equal(found: RankingResult, expected: RankingResult) -> None:
    assert found.first_ranks.tolist() == expected.first_ranks.tolist()
    assert found.counts.tolist() == expected.counts.tolist()
    for name, values in vars(expected.ties).items():
        found_values = vars(found.ties)[name]
        assert found_values[expected.matched].tolist() == values[expected.matched].tolist()
    for measure in (one for one in RANKS if isinstance(one, Measure)):
        np.testing.assert_array_equal(found.each(measure), expected.each(measure))
    if expected.matched.any():
        for curve in CURVES:
            np.testing.assert_allclose(
                found.curve(curve)["precision"], expected.curve(curve)["precision"], rtol=1e-12
            )


@settings(max_examples=60)
@given(
    st.sampled_from(KINDS),
    SEEDS,
    st.tuples(st.integers(1, 14), st.integers(1, 40), st.integers(1, 9), st.sampled_from([1, 3, 16, 130])),
    st.sampled_from([None, 1, 2, 3, 7]),
    st.sampled_from([1, 16, 64, 1 << 17]),
)
def test_one_product_gives_what_two_give(
    kind: str, seed: int, sizes: tuple[int, int, int, int], block: int | None, chunk: int
) -> None:
    images, sentences, of_images, of_sentences = embeddings(kind, seed, *sizes)
    for one, other, of_one, of_other in (
        (images, sentences, of_images, of_sentences),
        (sentences, images, of_sentences, of_images),
    ):
        forward = Relevance.from_groups(of_one, of_other)
        backward = Relevance.from_groups(of_other, of_one)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ranking, "_SEEN", chunk)
            found = rank_both(one, other, forward, backward, ALL, block=block)
        expected = rank_embeddings(one, other, forward, ALL), rank_embeddings(other, one, backward, RANKS)
        for both, alone in zip(found, expected, strict=True):
            expect_equal(both, alone)
        assert found[1].similarities is None
        if not expected[0].matched.any():
            continue
        similarities = found[0].similarities
        assert similarities is not None
        assert similarities.every.sum() == len(one) * len(other)
        assert similarities.true.sum() == forward.counts.sum()


@settings(max_examples=80)
@given(SEEDS, st.integers(1, 9), st.integers(1, 60), st.sampled_from([1, 3, 20]), st.integers(1, 7))
def test_both_directions_are_ranked_as_by_sorted_lists(
    seed: int, images: int, sentences: int, groups: int, block: int
) -> None:
    # small integers, so that every product is exact in any order and ties are frequent
    rng = np.random.default_rng(seed)
    one, other = (rng.integers(-2, 3, (count, 3)).astype(np.float32) for count in (images, sentences))
    of_one, of_other = (rng.integers(0, groups, count) for count in (images, sentences))
    found = rank_both(
        *(one, other, Relevance.from_groups(of_one, of_other), Relevance.from_groups(of_other, of_one)),
        *((MEAN_AVERAGE_PRECISION,),),
        block=block,
    )
    for result, scores, of_rows, of_columns in (
        (found[0], one @ other.T, of_one, of_other),
        (found[1], other @ one.T, of_other, of_one),
    ):
        true = [(of_columns == group).tolist() for group in of_rows]
        rows = list(zip(scores.tolist(), true, strict=True))
        assert result.first_ranks.tolist() == [first_match_rank(*row) for row in rows]
        np.testing.assert_allclose(
            result.each(MEAN_AVERAGE_PRECISION), [average_precision(*row) for row in rows], rtol=1e-12
        )


@settings(max_examples=100)
@given(SEEDS, st.integers(1, 9), st.integers(1, 50), st.integers(1, 14), st.sampled_from([0.0, 1.0, 3.0]))
def test_chunks_are_counted_as_the_whole(seed: int, rows: int, columns: int, bounds: int, far: float) -> None:
    rng = np.random.default_rng(seed)
    scores = torch.from_numpy(rng.standard_normal((rows, columns)).astype(np.float32).round(1))
    for axis in (0, 1):
        asked = torch.from_numpy((rng.standard_normal((scores.shape[axis], bounds)) + far).astype(np.float32))
        asked = asked.round(decimals=1)
        seen = Reached(asked, axis=axis)
        step = int(rng.integers(1, rows + 1))
        for start in range(0, rows, step):
            seen.add(scores[start : start + step].clone(), 0 if axis else start)
        along = scores if axis == 0 else scores.T
        assert torch.equal(seen.counts(), (along[:, None] >= asked[:, :, None]).sum(2))
        assert torch.equal(at_least(along.clone(memory_format=torch.contiguous_format), asked), seen.counts())


def test_what_is_picked_out_is_counted_before_it_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_PICKED", 3)
    scores = torch.arange(4000.0).reshape(4, 1000)
    seen = Reached(torch.tensor([[995.0], [1990.0], [3001.0], [3999.0]]), axis=0)
    for start in range(4):
        seen.add(scores[start : start + 1].clone(), start)
    assert seen.counts().tolist() == [[5], [10], [0], [1]]


def test_copies_of_a_long_row_tie_in_both_directions() -> None:
    # of so long a row the products' rounding is beyond the tolerance, which goes by the median norm
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((97, 515)).astype(np.float32)
    long = 1e5 * np.repeat(rows.mean(axis=0, keepdims=True), 41, axis=0).astype(np.float32)
    copied = np.concatenate([rows[:50], long])
    # the last copy alone is a match, of every row
    of_rows, of_copied = np.ones(len(rows), int), np.arange(len(copied)) // (len(copied) - 1)
    forward, backward = Relevance.from_groups(of_rows, of_copied), Relevance.from_groups(of_copied, of_rows)
    above = rows @ long[0] > rows @ rows[:50].T.max(axis=1)
    for found in (
        rank_both(rows, copied, forward, backward)[0],
        rank_both(copied, rows, backward, forward)[1],
    ):
        assert set(found.first_ranks[above].tolist()) == {41}


def test_a_true_pair_is_in_the_bin_of_its_score() -> None:
    # codes of ±0.1, whose cosines all lie on edges of bins: rounding decides, and once for a pair
    rng = np.random.default_rng(0)
    images, sentences = ((rng.choice([-1, 1], (count, 100)) / 10).astype(np.float32) for count in (40, 90))
    # all pairs are true, so that each bin has as many true ones as scores
    pair = Relevance.from_groups([0] * 40, [0] * 90), Relevance.from_groups([0] * 90, [0] * 40)
    similarities = rank_both(images, sentences, *pair, [Overlap()])[0].similarities
    assert similarities is not None
    assert similarities.every.tolist() == similarities.true.tolist()


def test_a_short_chunk_is_counted_behind_a_long_one() -> None:
    # what was seen of the long chunk lies behind the short one's place
    long, short = torch.zeros(1, 8000), torch.zeros(1, 4000)
    long[0, 7990] = 5.0
    seen = Reached(torch.ones(2, 1), axis=0)
    seen.add(long, 0)
    seen.add(short, 1)
    assert seen.counts().tolist() == [[1], [0]]


@pytest.mark.parametrize("most", [0, 1 << 20])
def test_many_matches_are_ranked_either_way(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(ranking, "_PAIRS", most)
    images, sentences, of_images, of_sentences = embeddings("noise", 3, 60, 300, 3, 16)
    forward = Relevance.from_groups(of_images, of_sentences)
    backward = Relevance.from_groups(of_sentences, of_images)
    found = rank_both(images, sentences, forward, backward, ALL)
    expect_equal(found[0], rank_embeddings(images, sentences, forward, ALL))
    expect_equal(found[1], rank_embeddings(sentences, images, backward, RANKS))
    assert found[0].value(Overlap()) == pytest.approx(
        rank_embeddings(images, sentences, forward, ALL).value(Overlap())
    )


def test_what_no_product_can_be_made_of_is_refused() -> None:
    rows = np.eye(3, dtype=np.float32)
    relevance = Relevance.from_groups([0, 1, 2], [0, 1, 2])
    with pytest.raises(DataError, match="give one code an item"):
        rank_both(rows, rows[:2], relevance, relevance)
    with pytest.raises(DataError, match="gallery embeddings: row 0"):
        rank_both(rows, rows * np.nan, relevance, relevance)
    # both directions are asked whether products vanish
    with pytest.raises(DataError, match="L2-normalise"):
        rank_both(np.vstack([rows[:2], rows[2:] * 1e-30]) * 1e-10, rows, relevance, relevance)
