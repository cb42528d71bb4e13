"""Accuracy on minimal pairs, with models whose figures are known beforehand."""

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from limner.data.minimal_pairs import MinimalPair, PairSet
from limner.data.words import words
from limner.errors import DataError
from limner.evaluation.minimal_pairs import (
    PairScores,
    bench_embeddings,
    pair_scores,
    read_embeddings,
    render_pairs,
    report_pairs,
    write_embeddings,
)

COLOURS = ("red", "blue", "green", "white")


def _set(pictures: int = 24) -> PairSet:
    """Pictures of a shirt and trousers in two colours, with one lie each of a colour, of two, and of a twin."""
    names: list[str] = []
    sentences: list[str] = []
    groups: list[int | None] = []
    pairs: list[MinimalPair] = []
    for number in range(pictures):
        top, bottom = COLOURS[number % 4], COLOURS[(number + 1) % 4]
        names.append(f"{number}.jpg")
        true = len(sentences)
        sentences += [
            f"{top} shirt and {bottom} trousers",
            f"{bottom} shirt and {top} trousers",
            f"{COLOURS[(number + 2) % 4]} shirt and {bottom} trousers",
        ]
        groups += [number, None, None]
        pairs += [
            MinimalPair("binding", "shirt and trousers", number // 2, number, true, number, true + 1),
            MinimalPair("attribute", "shirt", number // 2, number, true, number, true + 2),
            MinimalPair("near-twins", "shirt", number // 2, number, true, (number + 1) % pictures, true),
        ]
    return PairSet(
        *("toys", "1", names, names, range(pictures), sentences, groups, pairs),
        kinds={"attribute": "", "binding": "", "near-twins": ""},
    )


PAIRS = _set()


def _oracle(pairs: PairSet) -> tuple[np.ndarray, np.ndarray]:
    """A column a picture: sentences are at 1 where they are true, at −1 where they are known to be false."""
    sentences = np.zeros((len(pairs.sentences), len(pairs.image_names)), np.float32)
    for pair in pairs.pairs:
        sentences[pair.false_sentence, pair.false_image] = -1
    for pair in pairs.pairs:
        sentences[pair.sentence, pair.image] = 1
    return np.eye(len(pairs.image_names), dtype=np.float32), sentences


def test_an_oracle_has_100_and_its_contrary_0() -> None:
    images, sentences = _oracle(PAIRS)
    for sign, figure in ((1, 100.0), (-1, 0.0)):
        report = bench_embeddings(PAIRS, images, sign * sentences)
        assert list(report.kinds) == ["attribute", "binding", "near-twins"]
        for of in report.kinds.values():
            assert (of.cases, of.clusters) == (24, 12)
            assert (of.accuracy, of.ties_at_random, of.ties) == (figure, figure, 0)
            assert of.interval == (figure, figure)
    assert bench_embeddings(PAIRS, images, sentences).retrieval is not None


def test_ties_count_as_wrong_and_as_half_at_random() -> None:
    report = bench_embeddings(PAIRS, np.ones((24, 5)), np.ones((72, 5)))
    for of in report.kinds.values():
        assert (of.accuracy, of.ties, of.ties_at_random) == (0.0, 24, 50.0)


def test_a_bag_of_words_is_at_chance_where_colours_are_exchanged() -> None:
    """Also where the order in which words are added up changes the last digits."""
    rng = np.random.default_rng(0)
    table = {
        word: rng.standard_normal(300).astype(np.float32) for word in (*COLOURS, "shirt", "trousers", "and")
    }
    sentences = np.stack(
        [np.sum([table[word] for word in words(text)], axis=0, dtype=np.float32) for text in PAIRS.sentences]
    )
    sentences /= np.linalg.norm(sentences, axis=1, keepdims=True)
    assert (sentences[0] != sentences[1]).any()
    # a picture is the bag of its own sentence
    report = bench_embeddings(PAIRS, sentences[::3], sentences)
    assert report.kinds["attribute"].accuracy == 100
    binding = report.kinds["binding"]
    assert (binding.accuracy, binding.ties, binding.ties_at_random) == (0, 24, 50)


def test_guesses_are_at_chance_and_the_interval_says_so() -> None:
    many = _set(800)
    rng = np.random.default_rng(1)
    report = bench_embeddings(many, rng.standard_normal((800, 8)), rng.standard_normal((2400, 8)))
    for of in report.kinds.values():
        assert of.interval is not None
        assert of.interval[0] < 50 < of.interval[1]
        assert 5 < of.interval[1] - of.interval[0] < 9


def test_scores_are_dot_products_and_scale_with_the_vectors() -> None:
    rng = np.random.default_rng(2)
    images, sentences = rng.standard_normal((24, 6)), rng.standard_normal((72, 6))
    scores = pair_scores(PAIRS, images, sentences)
    for place, pair in enumerate(PAIRS.pairs):
        assert scores.true[place] == pytest.approx(images[pair.image] @ sentences[pair.sentence])
        assert scores.false[place] == pytest.approx(images[pair.false_image] @ sentences[pair.false_sentence])
    larger = pair_scores(PAIRS, 1000 * images, sentences)
    assert np.allclose(larger.tolerance, 1000 * scores.tolerance)
    assert (larger.right == scores.right).all()


@pytest.mark.parametrize(("kind", "accuracy"), [("f4", 0), ("f8", 100)])
def test_the_tolerance_goes_by_the_type_of_the_embeddings(kind: str, accuracy: int) -> None:
    # all are one vector, but for 1e-9 by which what is true differs from what is false
    truth = np.zeros((len(PAIRS.sentences), 2))
    truth[:, 0] = 1
    of_texts = np.array([pair.image == pair.false_image for pair in PAIRS.pairs])
    for place in np.flatnonzero(of_texts).tolist():
        truth[PAIRS.pairs[place].false_sentence, 1] = -1e-9
    images = np.repeat([[0.5**0.5, 0.5**0.5]], len(PAIRS.images), axis=0)
    scores = pair_scores(PAIRS, images.astype(kind), truth.astype(kind))
    assert 100 * scores.right[of_texts].mean() == accuracy
    assert (scores.tied[of_texts] == (accuracy == 0)).all()


def test_given_scores_are_compared_as_they_are() -> None:
    count = len(PAIRS.pairs)
    close = PairScores(np.full(count, 1 + 1e-12), np.ones(count), np.zeros(count))
    assert report_pairs(PAIRS, close).kinds["binding"].accuracy == 100


def test_controls_and_the_unread_are_in_the_table() -> None:
    pairs = replace(PAIRS, controls=["near-twins"])
    images, sentences = _oracle(pairs)
    unread = np.array([pair.kind == "binding" for pair in pairs.pairs])
    scores = pair_scores(pairs, images, sentences)
    report = report_pairs(pairs, scores, unread=unread, unknown_words=["shirt"])
    assert report.kinds["binding"].unread == 24
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(render_pairs(report, details=True))
    shown = console.export_text()
    assert "near-twins (control)" in shown
    assert "unread" in shown
    assert "  shirt and trousers" in shown
    assert "at random" not in shown
    assert "chance 50.0" in shown
    assert report.retrieval is None
    assert json.loads(json.dumps(report.model_dump()))["kinds"]["binding"]["unread"] == 24


def test_embeddings_are_read_as_they_were_written(tmp_path: Path) -> None:
    images, sentences = _oracle(PAIRS)
    write_embeddings(tmp_path / "ours.npz", PAIRS, images, sentences)
    found = read_embeddings(tmp_path / "ours.npz", PAIRS)
    assert (found[0] == images).all()
    assert (found[1] == sentences).all()


def test_embeddings_of_another_set_order_or_shape_are_refused(tmp_path: Path) -> None:
    images, sentences = _oracle(PAIRS)
    right = {
        "images": images,
        "sentences": sentences,
        "image_names": np.array(PAIRS.image_names),
        "sentence_texts": np.array(PAIRS.sentences),
        "digest": np.array(PAIRS.digest),
    }
    hole = images.copy()
    hole[3, 3] = np.nan
    file = tmp_path / "theirs.npz"
    for changes, message in (
        ({"digest": np.array("0" * 64)}, "is of another set .*expected .* of toys 1"),
        (
            {"image_names": right["image_names"][::-1]},
            r"'image_names' is in another order .*row 0 is '23\.jpg'",
        ),
        ({"sentence_texts": right["sentence_texts"][1:]}, "'sentence_texts' has 71 entries, the set 72"),
        ({"images": images[:5]}, "'images' must be floats of 24 rows, got float32 of shape"),
        ({"sentences": sentences[:, :5]}, "'images' has 24 columns, 'sentences' 5"),
        ({"sentences": sentences.astype(int)}, "must be floats"),
        ({"images": hole}, "'images' holds NaN"),
        ({"images": None}, "lacks the array 'images'"),
    ):
        arrays = {name: value for name, value in {**right, **changes}.items() if value is not None}
        np.savez(file, **arrays)  # type: ignore[arg-type]
        with pytest.raises(DataError, match=message):
            read_embeddings(file, PAIRS)
    file.write_bytes(b"no archive")
    with pytest.raises(DataError, match=r"not an \.npz file"):
        read_embeddings(file, PAIRS)
