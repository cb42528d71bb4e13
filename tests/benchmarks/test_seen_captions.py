"""`benchmarks.seen_captions`: what counts as found, and a difference of differences that is nought or as planted."""

import json

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("sentence_transformers")

from benchmarks.seen_captions import NEW, _differences, _of_same_pictures, first_is_own, nearest_of_same


def unit(rows: np.ndarray) -> np.ndarray:
    found: np.ndarray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_the_nearest_are_those_of_a_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # few directions, so that some are nearest alike
    rows = unit(rng.integers(1, 4, (24, 2)).astype(float))
    groups = rng.permutation(np.arange(24) // 3)
    expected = np.zeros(8)
    for query in range(24):
        scores = {other: rows[query] @ rows[other] for other in range(24) if other != query}
        best = [other for other, score in scores.items() if score > max(scores.values()) - 1e-6]
        expected[groups[query]] += sum(groups[other] == groups[query] for other in best) / len(best) / 3
    assert nearest_of_same(rows, groups) == pytest.approx(expected)


def test_a_query_finds_its_own_row_or_a_part_of_it() -> None:
    gallery = unit(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 1.0]]))
    assert first_is_own(gallery[[0, 1, 2, 1]], gallery).tolist() == [1.0, 0.5, 0.5, 0.0]


def test_a_difference_of_differences_is_what_was_planted() -> None:
    rng = np.random.default_rng(0)
    hard = rng.random(400)
    seen = {"MiniLM": hard + 0.3, "reference": hard}
    same = {"MiniLM": hard / 2 + 0.3, "reference": hard / 2}
    for paired in (True, False):
        nought = _differences(seen, same, paired=paired)["reference"]
        assert nought["value"] == pytest.approx(0)
        planted = _differences(
            {**seen, "MiniLM": seen["MiniLM"] + 0.1 * rng.random(400)}, same, paired=paired
        )
        low, high = planted["reference"]["interval"]
        assert 0 < low < planted["reference"]["value"] < high < 10
        assert planted["reference"]["value"] == pytest.approx(5, abs=1)


def test_queries_are_of_the_pictures_with_new_sentences_and_the_gallery_is_of_all() -> None:
    names = [f"{place:02d}" for place in range(20)]
    published = {name: [f"{name} {number}" for number in range(5)] for name in names}
    new = {name: [f"{name} new", f"{name} newer"] for name in names[7:12]}
    asked: list[int] = []

    def encode(sentences: list[str], _: object) -> np.ndarray:
        asked.append(len(sentences))
        # published ones are known by their picture, new ones are all alike
        return np.stack([np.eye(20)[0 if "new" in text else int(text[:2])] for text in sentences])

    found = _of_same_pictures(new, published, [], {"MiniLM": encode})  # type: ignore[dict-item]
    assert asked == [20] * 5 + [5] * 2
    assert {name: hits["MiniLM"].tolist() for name, hits in found.items()} == {
        "published among 1,000": [1.0] * 5,
        "new among 1,000": [0.0] * 5,
        "published among 100": [1.0] * 5,
        # alike: a fifth of a find each
        "new among 100": pytest.approx([0.2] * 5),
    }


def test_there_are_two_new_sentences_for_each_of_a_hundred_pictures() -> None:
    new = json.loads(NEW.read_text(encoding="utf-8"))
    assert len(new) == 100
    sentences = [text for of in new.values() for text in of]
    assert len(set(sentences)) == 200 == 2 * len(new)
    assert all(text.endswith(".") and 4 < len(text.split()) < 25 for text in sentences)
