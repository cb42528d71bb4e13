"""Ties: the same codes stored in another way have the same ranks, and what ties decide is counted."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from threadpoolctl import threadpool_limits

from limner.evaluation.both_directions import evaluate, evaluate_scores
from limner.evaluation.measures import RecallAt
from limner.evaluation.names import parse_measures
from limner.evaluation.ranking import RankingResult, rank_both, rank_embeddings, rank_scores
from limner.evaluation.relevance import Relevance
from limner.evaluation.report import Report, render
from limner.evaluation.reranking import PairReranking
from limner.evaluation.scores import of_embeddings
from limner.evaluation.ties import FirstTies, row_norms, tolerance_of_unit_rows
from limner.evaluation.trec import score_run, write_qrels, write_run
from tests.reference.ranking import expected_recall_at

MEASURES = parse_measures("R@1 R@5 MedR mAP")


def _rotation(rng: np.random.Generator, dim: int) -> np.ndarray:
    return np.asarray(np.linalg.qr(rng.standard_normal((dim, dim)))[0])


def _stored(codes: np.ndarray, way: str, kind: str, rotation: np.ndarray) -> np.ndarray:
    """Codes as somebody may have computed them in a type."""
    rows = codes.astype(kind)
    if "cosine" in way:
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    if "rotated" in way:
        rows = rows @ rotation.astype(kind)
    return np.asarray(rows)


def _same(found: RankingResult, exact: RankingResult) -> None:
    assert found.first_ranks.tolist() == exact.first_ranks.tolist()
    for name in ("above", "wrong", "true"):
        assert getattr(found.ties, name).tolist() == getattr(exact.ties, name).tolist(), name
    for measure in MEASURES:
        np.testing.assert_array_equal(found.each(measure), exact.each(measure))  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 2, 3, 8, 16, 64, 256, 1024]),
    st.sampled_from(["plain", "cosine", "rotated", "cosine, rotated"]),
    st.sampled_from(["f4", "f8"]),
    st.sampled_from([1, 3, 20]),
    st.sampled_from([None, 3]),
)
def test_codes_rank_alike_however_they_are_stored(
    seed: int, dim: int, way: str, kind: str, matches: int, block: int | None
) -> None:
    rng = np.random.default_rng(seed)
    # Few different bits, so that many pairs tie, at any width.
    bits = min(dim, 8)
    queries, gallery = (rng.choice([-1, 1], (count, bits)).repeat(dim // bits, axis=1) for count in (7, 60))
    flipped = rng.permutation(dim)
    queries, gallery = queries[:, flipped], gallery[:, flipped]
    relevance = Relevance.from_groups(np.arange(7), np.arange(60) // matches)
    exact = rank_scores((queries @ gallery.T).astype(np.float64), relevance, MEASURES)
    rotation = _rotation(rng, dim)
    stored = [_stored(side, way, kind, rotation) for side in (queries, gallery)]
    _same(rank_embeddings(stored[0], stored[1], relevance, MEASURES, block=block), exact)


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize(
    ("values", "way"),
    [
        *(((-1, 1), way) for way in ("plain", "cosine", "rotated", "cosine, rotated")),
        # Their norms differ, so their cosines are other scores.
        *(((0, 1), way) for way in ("plain", "rotated")),
    ],
)
@pytest.mark.parametrize("dim", [64, 256])
def test_dense_codes_rank_alike_too(dim: int, values: tuple[int, int], way: str, kind: str) -> None:
    rng = np.random.default_rng(dim)
    # Queries are noisy copies, so that matches stand in front, where the ties decide R@1.
    gallery = rng.choice(values, (1500, dim))
    noise = {64: 0.42, 256: 0.75}[dim]
    queries = np.where(rng.random((300, dim)) < noise, rng.choice(values, (300, dim)), gallery[:300])
    relevance = Relevance.from_groups(np.arange(300), np.arange(1500))
    exact = rank_scores((queries @ gallery.T).astype(np.float64), relevance, MEASURES)
    assert exact.tied_recalls(MEASURES)["R@5"].queries
    rotation = _rotation(rng, dim)
    stored = [_stored(side, way, kind, rotation) for side in (queries, gallery)]
    _same(rank_embeddings(stored[0], stored[1], relevance, MEASURES), exact)


@pytest.mark.parametrize(("kind", "eps"), [("f4", 2**-23), ("f8", 2**-52)])
def test_the_tolerance_is_where_it_is_said_to_be(kind: str, eps: float) -> None:
    tolerance = tolerance_of_unit_rows(2, eps)
    assert tolerance == pytest.approx(eps * 102**0.5)
    for gap, rank in ((0.0, 2), (0.9, 2), (1.1, 1)):
        # cosines 0.5 of the match and 0.5 less the gap of the wrong item
        gallery = np.array([[0.5, 0.75**0.5], [0.5 - gap * tolerance, 0.0]])
        gallery[1, 1] = (1 - gallery[1, 0] ** 2) ** 0.5
        for scale in (1.0, 2.0**-40, 2.0**40):  # relative to the norms
            found = rank_embeddings(
                np.array([[3.0, 0.0]], kind),
                (gallery * scale).astype(kind),
                Relevance.from_groups([0], [0, 1]),
            )
            assert found.first_ranks.tolist() == [rank], (gap, scale)


def test_one_side_in_float64_is_enough() -> None:
    gallery = np.array([[1.0, 0.0], [1 - 1e-9, 0.0]])
    query, relevance = np.ones((1, 2)), Relevance.from_groups([0], [0, 1])
    for kinds, rank in (
        (("f8", "f8"), 1),
        (("f4", "f8"), 1),
        (("f4", "f4"), 2),
        (("f2", "f4"), 2),
        (("f2", "f2"), 2),
    ):
        found = rank_embeddings(query.astype(kinds[0]), gallery.astype(kinds[1]), relevance)
        assert found.first_ranks.tolist() == [rank], kinds


WIDTHS = st.sampled_from([1, 2, 3, 8, 17, 64, 100, 256, 515, 1024, 2048, 3072])


def _unit(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def _both(
    images: torch.Tensor, sentences: torch.Tensor, groups: np.ndarray, block: int | None, threads: int
) -> list[RankingResult]:
    """All ways to rank both directions, one image a group and several sentences."""
    forward = Relevance.from_groups(np.arange(len(images)), groups)
    backward = Relevance.from_groups(groups, np.arange(len(images)))
    with threadpool_limits(threads):
        both = rank_both(images, sentences, forward, backward, MEASURES, block=block)
        return [
            *both,
            rank_embeddings(images, sentences, forward, MEASURES, block=block),
            rank_embeddings(sentences, images, backward, MEASURES, block=block),
        ]


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    WIDTHS,
    st.sampled_from(["f8", "f4", "f2", "bf16"]),
    st.sampled_from(["even", "positive", "one column above all"]),
    st.booleans(),
    st.sampled_from([None, 1, 3, 7]),
    st.sampled_from([1, 2]),
)
def test_constant_embeddings_are_all_ties(
    seed: int, dim: int, kind: str, spread: str, again: bool, block: int | None, threads: int
) -> None:
    """Of one direction, bit for bit or scaled and normalised anew in their type, in any blocks: never above chance."""
    rng = np.random.default_rng(seed)
    half = kind in ("f2", "bf16")
    computed = np.dtype("f4" if half else kind)
    sides = []
    for count in (19, 38):
        rows = rng.standard_normal((1, dim))
        if spread == "positive":
            rows = np.abs(rows)
        elif spread != "even":
            rows[:, 0] = 30 * dim**0.5
        # Half precision stores what differs by float32's roundings alike or a whole step apart, which is no tie.
        scales = rng.uniform(1, 2, (count, 1)) if again and not half else np.ones((count, 1))
        unit = torch.from_numpy(_unit((rows * scales).astype(computed)))
        sides.append(unit.to({"f2": torch.float16, "bf16": torch.bfloat16}.get(kind, unit.dtype)))
    for found in _both(sides[0], sides[1], np.arange(38) // 2, block, threads):
        wrong = found.gallery_size - found.counts
        assert found.first_ranks.tolist() == (wrong + 1).tolist()
        assert found.ties.above.tolist() == [0] * len(wrong)
        assert found.ties.wrong.tolist() == wrong.tolist()
        chance = found.chance(MEASURES)
        for name, tied in found.tied_recalls(MEASURES).items():
            assert tied.pessimistic <= chance[name]
            assert tied.expected == pytest.approx(chance[name])


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([40, 64, 100, 256, 515, 1024, 2048]),
    st.sampled_from(["f8", "f4"]),
    st.sampled_from([1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6, 3e-7, 1e-7]),
    st.booleans(),
    st.sampled_from([None, 1, 3, 7]),
    st.sampled_from([1, 2]),
)
def test_collapsed_embeddings_of_a_certain_order_are_ranked(
    seed: int, dim: int, kind: str, deviation: float, both: bool, block: int | None, threads: int
) -> None:
    """All rows are one vector but for a small part that tells each apart: scores differ by the deviation, or by its
    square where queries are as near each other. In float64, and as far as the bound goes in float32, all matches are
    first; what differs by much less than the bound is all ties."""
    rng = np.random.default_rng(seed)
    # A common direction and 19 others, all orthogonal.
    axes = np.linalg.qr(rng.standard_normal((dim, 20)))[0].T
    apart = axes[1:].repeat(2, axis=0)
    images = _unit(axes[0] + (deviation if both else 1.0) * axes[1:]).astype(kind)
    sentences = _unit(axes[0] + deviation * apart).astype(kind)
    gap = deviation**2 if both else deviation / 2**0.5
    tolerance = tolerance_of_unit_rows(dim, float(np.finfo(kind).eps))
    # Between the two, rounding may decide; by Cauchy and Schwarz rows of float32 move a score by `eps` at most.
    certain, tied = gap > 2 * tolerance, gap < tolerance / 4
    results = _both(torch.from_numpy(images), torch.from_numpy(sentences), np.arange(38) // 2, block, threads)
    for found in results:
        if certain:
            assert found.first_ranks.tolist() == [1] * len(found.counts)
            assert all(tied.pessimistic == 100 for tied in found.tied_recalls(MEASURES[:1]).values())
        elif tied:
            assert (found.first_ranks == found.gallery_size - found.counts + 1).all()
    # At these widths the square of 3e-7 is certain in float64.
    assert certain or kind == "f4" or (both and deviation < 3e-7)


def test_a_row_of_a_huge_norm_does_not_make_others_tie() -> None:
    rng = np.random.default_rng(0)
    gallery = rng.standard_normal((50, 16)).astype(np.float32)
    before = rank_embeddings(gallery, gallery, Relevance.from_pairs(50))
    gallery[-1] *= -1e9
    after = rank_embeddings(gallery[:-1], gallery, Relevance.from_groups(np.arange(49), np.arange(50)))
    # the long row stands before a match, or far behind it
    assert set((after.first_ranks - before.first_ranks[:-1]).tolist()) <= {0, 1}


def test_scores_that_are_given_are_compared_as_they_are() -> None:
    # A sure classifier: the probabilities differ in the ninth digit.
    scores = np.array([[1 - 2e-9, 1 - 1e-9]])
    assert rank_scores(scores, Relevance.from_groups([0], [1, 0])).first_ranks.tolist() == [1]
    assert rank_scores(scores[:, ::-1], Relevance.from_groups([0], [0, 1])).first_ranks.tolist() == [1]


def test_no_tolerance_between_reranked_items() -> None:
    # So many that the steps between their levels are smaller than the tolerance of similarities.
    items = 1_000_000
    rng = np.random.default_rng(0)
    gallery = rng.standard_normal((items, 4)).astype(np.float32)
    gallery /= np.linalg.norm(gallery, axis=1, keepdims=True)
    query = gallery[:1].copy()
    assert 1 / items < tolerance_of_unit_rows(4, 2**-23)
    groups = np.ones(items, np.int64)
    groups[items - 2] = 0  # second by the reranker
    report = evaluate(
        query,
        gallery,
        [0],
        groups,
        protocol="p",
        split="s",
        measures=parse_measures("MeanR"),
        reranking=PairReranking(lambda _, sentences: sentences.astype(np.float32), "all"),
    )
    assert report.image_to_text["MeanR"] == 2


def test_what_is_not_reranked_keeps_its_tolerance() -> None:
    rng = np.random.default_rng(0)
    codes = rng.choice([-1, 1], (60, 16))
    noisy = np.where(rng.random(codes.shape) < 0.3, -codes, codes)
    # A wrong copy of each image: no other item reaches it, so which one is matched does not hang on rounding.
    texts = np.concatenate([noisy, codes])
    rotation = _rotation(rng, 16)

    def report(way: str) -> Report:
        return evaluate(
            _stored(codes, way, "f4", rotation),
            _stored(texts, way, "f4", rotation),
            np.arange(60),
            np.concatenate([np.arange(60), np.arange(60) + 100]),
            protocol="p",
            split="s",
            reranking=PairReranking(lambda images, _: np.zeros(len(images), np.float32), 1),
        )

    plain, rotated = report("cosine"), report("cosine, rotated")
    assert plain.image_to_text == rotated.image_to_text
    assert plain.ties["image_to_text"] == rotated.ties["image_to_text"]
    assert plain.ties["image_to_text"]["R@5"].queries


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 7), st.integers(1, 4), st.integers(1, 8))
def test_expected_recall_is_the_mean_over_every_order(seed: int, items: int, levels: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, levels, (4, items)).astype(np.float64)
    true = rng.random((4, items)) < 0.4
    true[:, 0] = True
    relevance = Relevance.from_labels(np.eye(4, dtype=int), true.T.astype(int))
    found = rank_scores(scores, relevance, [RecallAt(k)])
    expected = [
        expected_recall_at(k, row.tolist(), of.tolist()) for row, of in zip(scores, true, strict=True)
    ]
    np.testing.assert_allclose(found.ties.expected(k), expected, rtol=1e-9, atol=1e-12)
    assert found.ties.decide(k).tolist() == [0 < share < 1 for share in expected]
    tied = found.tied_recalls([RecallAt(k)])[f"R@{k}"]
    assert (tied.queries, tied.pessimistic) == (sum(0 < s < 1 for s in expected), found.value(RecallAt(k)))
    assert tied.expected == pytest.approx(100 * np.mean(expected))


def test_expected_recall_among_thousands() -> None:
    found = FirstTies(np.array([3, 0]), np.array([100_000, 999]), np.array([1, 1])).expected(13)
    np.testing.assert_allclose(found, [10 / 100_001, 13 / 1000], rtol=1e-7)


def test_constant_scores_are_below_chance_and_at_it_with_ties_at_random() -> None:
    ones = np.ones((20, 8), np.float32)
    report = evaluate(ones, ones, range(20), range(20), protocol="p", split="s")
    assert report.image_to_text["R@1"] == 0
    assert report.ties["image_to_text"]["R@1"].expected == pytest.approx(100 / 20)
    assert report.ties["image_to_text"]["R@1"].queries == 20


def _text(report: Report) -> str:
    console = Console(width=150)
    with console.capture() as capture:
        console.print(render(report))
    return capture.get()


def test_the_report_says_what_ties_decide() -> None:
    scores = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    report = evaluate_scores(
        scores, range(3), range(3), protocol="p", split="s", measures=parse_measures("R@1 MedR")
    )
    tied = {"queries": 1, "pessimistic": pytest.approx(200 / 3), "expected": pytest.approx(250 / 3)}
    assert report.model_dump()["ties"] == {
        "image_to_text": {"R@1": tied},
        "text_to_image": {"R@1": tied},
    }
    text = _text(report)
    assert text.count("ties at random") == 2
    assert "83.3" in text
    assert "ties decide R@1 of 1 image, R@1 of 1 sentence" in " ".join(text.split())


def test_without_ties_a_report_is_as_before() -> None:
    report = evaluate_scores(
        np.eye(3) + np.arange(9).reshape(3, 3) / 100, range(3), range(3), protocol="p", split="s"
    )
    assert report.ties == {"image_to_text": {}, "text_to_image": {}}
    assert "ties" not in report.model_dump()
    assert "ties" not in _text(report)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 7), st.integers(1, 8))
def test_chance_is_the_mean_over_every_order(seed: int, items: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    true = rng.random((4, items)) < 0.4
    true[:2, 0] = True  # the others may have none
    relevance = Relevance.from_labels(np.eye(4, dtype=int), true.T.astype(int))
    found = rank_scores(rng.random((4, items)), relevance, [RecallAt(k)]).chance([RecallAt(k)])
    every = [expected_recall_at(k, [0.0] * items, row.tolist()) for row in true if row.any()]
    assert found == {f"R@{k}": pytest.approx(100 * np.mean(every))}


def test_a_report_has_chance_and_names_what_no_ranking_can_miss() -> None:
    rows = np.random.default_rng(0).standard_normal((6, 4))
    report = evaluate(rows, rows, range(6), range(6), protocol="p", split="s")
    assert report.model_dump()["chance"]["text_to_image"] == pytest.approx(
        {"R@1": 100 / 6, "R@5": 500 / 6, "R@10": 100}
    )
    text = " ".join(_text(report).split())
    assert "chance: image → text R@1 16.7, text → image R@1 16.7" in text
    assert "100 whatever the model, the gallery being so small: image → text R@10, text → image R@10" in text


def test_folds_have_the_mean_of_their_expected_values() -> None:
    ones = np.ones((6, 2), np.float32)
    ones[3:] = np.array([[0, 1], [1, 0], [1, 1]])
    report = evaluate(ones, ones, range(6), range(6), protocol="p", split="s", folds=2)
    tied = report.ties["image_to_text"]["R@1"]
    assert tied.queries == 3 + 2
    # three that all tie; and (0, 1) with (1, 1), (1, 0) with (1, 1), and (1, 1) alone
    assert tied.expected == pytest.approx((100 / 3 + 100 * (0.5 + 0.5 + 1) / 3) / 2)
    assert tied.pessimistic == report.image_to_text["R@1"]


def test_a_trec_run_has_the_ranks_of_the_report(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    codes = rng.choice([-1, 1], (40, 32))
    noisy = np.where(rng.random(codes.shape) < 0.3, -codes, codes)
    rotation = _rotation(rng, 32)
    relevance = Relevance.from_groups(np.arange(40) // 2, np.arange(40) // 2)
    exact = rank_scores((noisy @ codes.T).astype(np.float64), relevance, MEASURES)
    names = [str(number) for number in range(40)]
    stored = [_stored(side, "cosine, rotated", "f4", rotation) for side in (noisy, codes)]
    write_run(tmp_path / "run", names, names, of_embeddings(stored[0], stored[1]), relevance)
    write_qrels(tmp_path / "qrels", names, names, relevance)
    found = score_run(tmp_path / "run", tmp_path / "qrels", MEASURES)
    assert found.values == pytest.approx({str(one): exact.value(one) for one in MEASURES})  # type: ignore[arg-type]
    assert not found.ties  # its scores fall by one from item to item


def test_a_trec_run_of_others_says_what_its_ties_decide(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a Q0 x 1 2.5 t\na Q0 y 2 2.5 t\nb Q0 y 1 1 t\nc Q0 x 1 1 t\n")
    (tmp_path / "qrels").write_text("a 0 x 1\nb 0 y 1\nc 0 y 1\n")
    found = score_run(tmp_path / "run", tmp_path / "qrels", parse_measures("R@1 R@2"))
    assert vars(found.ties["R@1"]) == {
        "queries": 1,
        "pessimistic": pytest.approx(100 / 3),
        "expected": pytest.approx(50),
    }
    assert set(found.ties) == {"R@1"}


def test_norms_at_the_ends_of_float32() -> None:
    rows = torch.tensor([[3.0, 4.0], [3e30, 4e30], [3e-30, 4e-30], [0.0, 0.0]])
    np.testing.assert_allclose(row_norms(rows).numpy(), [5, 5e30, 5e-30, 0], rtol=1e-6)
