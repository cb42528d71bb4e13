from pathlib import Path

import ir_measures
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_measures import AP, P, Rprec, Success

from limner.errors import DataError, SettingsError
from limner.evaluation.names import parse_measures
from limner.evaluation.ranking import rank_scores
from limner.evaluation.relevance import Relevance
from limner.evaluation.scores import of_embeddings, of_matrix
from limner.evaluation.trec import score_run, write_qrels, write_run

ASKED = parse_measures("R@1 R@5 mAP AP@5 R-precision MAP@5 MAP@5(min) mINP PR-curve")


def _files(folder: Path, scores: np.ndarray, true: np.ndarray, *, depth: int = 1000) -> tuple[Path, Path]:
    queries, items = (
        [f"{side}{number}" for number in range(count)] for side, count in zip("qi", scores.shape, strict=True)
    )
    relevance = Relevance.from_labels(np.eye(len(true), dtype=int), true.T.astype(int))
    write_run(folder / "run", queries, items, of_matrix(scores), relevance, depth=depth)
    write_qrels(folder / "qrels", queries, items, relevance)
    return folder / "run", folder / "qrels"


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 30))
def test_a_whole_run_measures_what_its_scores_do(
    tmp_path_factory: pytest.TempPathFactory, seed: int, queries: int, items: int
) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(-3, 4, (queries, items)).astype(np.float32)
    true = rng.random((queries, items)) < 0.3
    true[0, 0] = True
    run, qrels = _files(tmp_path_factory.mktemp("trec"), scores, true)
    found = score_run(run, qrels, ASKED)
    relevance = Relevance.from_labels(np.eye(queries, dtype=int), true.T.astype(int))
    ranking = rank_scores(scores, relevance, ASKED)
    assert (found.counts["queries"], found.counts["queries_without_match"]) == (
        ranking.matched.sum(),
        ranking.without_match,
    )
    for measure in ASKED[:-1]:
        assert found.values[str(measure)] == pytest.approx(ranking.value(measure))  # type: ignore[arg-type]
    np.testing.assert_allclose(found.curves["PR-curve"]["precision"], ranking.curve(ASKED[-1])["precision"])  # type: ignore[arg-type]


def test_chance_is_of_the_items_that_are_named(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("q0 Q0 a 1 2.0 x\nq0 Q0 b 2 1.0 x\nq1 Q0 c 1 1.0 x\n", encoding="utf-8")
    # d is in no list, and counts: it is known to be in the gallery
    (tmp_path / "qrels").write_text("q0 0 a 1\nq1 0 d 1\nq1 0 a 1\n", encoding="utf-8-sig")
    found = score_run(tmp_path / "run", tmp_path / "qrels", parse_measures("R@1 R@5 mAP"))
    assert (found.counts["items"], found.values["R@1"]) == (4, 50.0)
    assert found.chance == {"R@1": pytest.approx(100 * (1 / 4 + 2 / 4) / 2), "R@5": 100.0}
    # of a whole run it is that of its scores
    rng = np.random.default_rng(0)
    scores, true = rng.standard_normal((3, 12)), np.eye(3, 12, dtype=bool)
    found = score_run(*_files(tmp_path, scores, true), parse_measures("R@1"))
    assert found.chance["R@1"] == pytest.approx(100 / 12)


@given(st.integers(0, 2**32 - 1))
def test_queries_that_a_run_leaves_out_are_missed_and_counted(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    scores, true = rng.standard_normal((5, 8)), rng.random((5, 8)) < 0.3
    true[:, 0] = True
    run, qrels = _files(tmp_path_factory.mktemp("trec"), scores, true)
    whole = score_run(run, qrels)
    left_out = rng.choice(5, rng.integers(1, 5), replace=False)
    lines = run.read_text(encoding="utf-8").splitlines(keepends=True)
    gone = tuple(f"q{number} " for number in left_out)
    run.write_text("".join(line for line in lines if not line.startswith(gone)), encoding="utf-8")
    found = score_run(run, qrels)
    assert (whole.counts["queries_unanswered"], found.counts["queries_unanswered"]) == (0, len(left_out))
    assert found.counts["queries"] == 5
    # the mean of all of the qrels' queries, as `trec_eval -c` has it
    first = whole.per_query.values["mAP"].copy()
    first[left_out] = 0
    assert found.values["mAP"] == pytest.approx(100 * first.mean())
    assert {"MedR", "MeanR"} <= whole.values.keys() - found.values.keys()
    with pytest.raises(DataError, match="MedR needs the rank"):
        score_run(run, qrels, parse_measures("MedR"))


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
def test_a_short_run_counts_what_it_does_not_list_as_missed(
    tmp_path_factory: pytest.TempPathFactory, seed: int, depth: int
) -> None:
    rng = np.random.default_rng(seed)
    # many of them tied, so that others see our order of ties
    scores, true = rng.integers(-3, 4, (4, 20)) / 7, rng.random((4, 20)) < 0.3
    true[0, 0] = True
    run, qrels = _files(tmp_path_factory.mktemp("trec"), scores, true, depth=depth)
    found = score_run(run, qrels, ASKED).values
    theirs = ir_measures.calc_aggregate(
        [Success @ 5, AP, P @ 5, Rprec],
        list(ir_measures.read_trec_qrels(str(qrels))),  # type: ignore[no-untyped-call]
        list(ir_measures.read_trec_run(str(run))),  # type: ignore[no-untyped-call]
    )
    for name, other in (("R@5", Success @ 5), ("mAP", AP), ("AP@5", P @ 5), ("R-precision", Rprec)):
        assert found[name] == pytest.approx(100 * theirs[other]), name


def test_embeddings_are_written_as_their_products(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows, others = (
        rng.standard_normal((3, 4)).astype(np.float32),
        rng.standard_normal((5, 4)).astype(np.float32),
    )
    names = ["a", "b", "c"], ["1", "2", "3", "4", "5"]
    relevance = Relevance.from_groups([0, 1, 2], [0, 1, 2, 3, 4])
    write_run(tmp_path / "rows", *names, of_embeddings(rows, others), relevance, depth=2)
    write_run(tmp_path / "scores", *names, of_matrix(rows @ others.T), relevance, depth=2)
    assert (tmp_path / "rows").read_text() == (tmp_path / "scores").read_text()
    first = (tmp_path / "rows").read_text().splitlines()[0].split()
    assert first[:2] == ["a", "Q0"]
    assert first[3:5] == ["1", "2"]


def test_order_survives_scores_that_single_precision_cannot_tell_apart(tmp_path: Path) -> None:
    scores, true = 1000 + np.array([[1.0, 3.0, 2.0]]) * 1e-9, np.array([[False, True, False]])
    run, qrels = _files(tmp_path, scores, true)
    assert [line.split()[2] for line in run.read_text().splitlines()] == ["i1", "i2", "i0"]
    assert score_run(run, qrels, parse_measures("R@1")).values == {"R@1": 100}


def test_ties_are_written_against_the_model(tmp_path: Path) -> None:
    run, qrels = _files(tmp_path, np.ones((5, 5)), np.eye(5, dtype=bool))
    theirs = ir_measures.calc_aggregate(
        [Success @ 1, Success @ 5],
        list(ir_measures.read_trec_qrels(str(qrels))),  # type: ignore[no-untyped-call]
        list(ir_measures.read_trec_run(str(run))),  # type: ignore[no-untyped-call]
    )
    assert theirs == {Success @ 1: 0, Success @ 5: 1}


def test_measures_that_a_run_cannot_give(tmp_path: Path) -> None:
    scores, true = np.array([[1.0, 2.0, 3.0]]), np.array([[True, False, False]])
    run, qrels = _files(tmp_path, scores, true, depth=2)
    with pytest.raises(DataError, match="MedR needs the rank of a match of every query, and 1 have none"):
        score_run(run, qrels, parse_measures("MedR"))
    with pytest.raises(DataError, match="overlap-S needs the score of every pair"):
        score_run(run, qrels, parse_measures("overlap-S"))
    assert score_run(run, qrels, parse_measures("R@1")).values == {"R@1": 0}


@pytest.mark.parametrize(
    ("run", "qrels", "message"),
    [
        ("q Q0 i 1 0.5", "q 0 i 1", "run, line 1: expected 'query Q0 item rank score tag'"),
        ("q Q0 i 1 x t", "q 0 i 1", "run, line 1: expected a finite number, got 'x'"),
        ("q Q0 i 1 nan t", "q 0 i 1", "run, line 1: expected a finite number"),
        ("q Q0 i 1 1 t\n\nq Q0 i 2 0 t", "q 0 i 1", "run, line 3: item 'i' is there twice"),
        ("", "q 0 i 1", "an empty run"),
        ("q Q0 i 1 1 t", "q i 1", "qrels, line 1: expected 'query 0 item relevance'"),
        ("q Q0 i 1 1 t", "q 0 i 1\nq 0 i 1\nq 0 i 0", "line 3: 'i' is both relevant and not for query 'q'"),
        ("q Q0 i 1 1 t", "q 0 i 0", "no query has a true match"),
        ("q Q0 i 1 1 t", "i 0 q 1", "no query in common; is the run of the other direction?"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, run: str, qrels: str, message: str) -> None:
    (tmp_path / "run").write_text(run)
    (tmp_path / "qrels").write_text(qrels)
    with pytest.raises(DataError) as caught:
        score_run(tmp_path / "run", tmp_path / "qrels")
    assert message in str(caught.value)


def test_other_refusals(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="none: cannot be read"):
        score_run(tmp_path / "none", tmp_path / "none")
    (tmp_path / "bytes").write_bytes(b"\xff")
    with pytest.raises(DataError, match="UTF-8"):
        score_run(tmp_path / "bytes", tmp_path / "bytes")
    one, pair = of_matrix(np.ones((1, 1), np.float32)), Relevance.from_pairs(1)
    with pytest.raises(DataError, match="'a b'"):
        write_run(tmp_path / "run", ["a b"], ["i"], one, pair)
    with pytest.raises(DataError, match="'i' is there twice"):
        write_run(tmp_path / "run", ["a"], ["i", "i"], of_matrix(np.ones((1, 2))), pair)
    with pytest.raises(SettingsError, match="at least 1"):
        write_run(tmp_path / "run", ["a"], ["i"], one, pair, depth=0)
