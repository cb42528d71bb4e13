from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from limner.data.records import Dataset, Record, label_matrices
from limner.data.tokenizers import WordTokenizer
from limner.errors import DataError
from limner.training.pairs import TrainingPairs
from limner.training.positives import PositiveSampler

LABELS = [("dog",), ("dog", "car"), ("car", "tree"), ("tree",), ("dog", "car", "tree"), ("boat",)]
SENTENCES = (2, 1, 3, 1, 2, 1)


@pytest.fixture
def dataset() -> Dataset:
    records = [
        Record(
            Path(f"{i}.jpg"), tuple(f"word {n}" for n in range(count)), "ab"[i % 2], "train", labels=labels
        )
        for i, (labels, count) in enumerate(zip(LABELS, SENTENCES, strict=True))
    ]
    return Dataset("folder:x", "identity", tuple(records))


@pytest.fixture
def pairs(dataset: Dataset) -> TrainingPairs:
    return TrainingPairs.of(dataset, WordTokenizer.build(["word"]), 10)


def counted(draw: object, item: int, many: int) -> Counter[int]:
    assert callable(draw)
    return Counter(draw(np.full(many, item), np.random.default_rng(0)).tolist())


def even(counts: Counter[int], among: set[int], many: int) -> None:
    """Each of `among` and nothing else, about equally often (five standard deviations)."""
    assert set(counts) == among
    share = 1 / len(among)
    for count in counts.values():
        assert abs(count - many * share) < 5 * np.sqrt(many * share * (1 - share)) + 1e-9


def test_by_class_another_one_is_drawn(pairs: TrainingPairs) -> None:
    relevant = PositiveSampler.by_class(pairs, pairs.groups)
    for image in range(6):
        even(
            counted(relevant.images, image, 3000),
            {i for i in range(6) if i % 2 == image % 2 and i != image},
            3000,
        )
    for sentence, owner in enumerate(pairs.sentence_image.tolist()):
        others = {
            other
            for other, its in enumerate(pairs.sentence_image.tolist())
            if its % 2 == owner % 2 and other != sentence
        }
        even(counted(relevant.sentences, sentence, 3000), others, 3000)


def test_of_pairs_that_are_their_own_class_a_picture_is_its_own_neighbour(pairs: TrainingPairs) -> None:
    relevant = PositiveSampler.by_class(pairs, np.arange(6))
    rng = np.random.default_rng(0)
    assert relevant.images(np.arange(6), rng).tolist() == list(range(6))
    even(counted(relevant.sentences, 3, 2000), {4, 5}, 2000)  # the third picture's other sentences
    assert relevant.sentences(np.array([2]), rng).tolist() == [2]  # the second picture has one


def test_by_label_everything_that_shares_one_is_equally_likely(
    pairs: TrainingPairs, dataset: Dataset
) -> None:
    relevant = PositiveSampler.by_label(pairs, label_matrices(dataset)[0])
    for image, own in enumerate(LABELS):
        sharing = {i for i, labels in enumerate(LABELS) if set(own) & set(labels)}
        even(counted(relevant.images, image, 4000), sharing, 4000)
    owners = pairs.sentence_image.tolist()
    for sentence in (0, 4, 9):
        its = set(LABELS[owners[sentence]])
        sharing = {other for other, owner in enumerate(owners) if its & set(LABELS[owner])}
        even(counted(relevant.sentences, sentence, 4000), sharing, 4000)


def test_masks_say_what_is_relevant(pairs: TrainingPairs, dataset: Dataset) -> None:
    rows, others = np.array([4, 0]), np.array([5, 3, 0])
    by_label = PositiveSampler.by_label(pairs, label_matrices(dataset)[0]).mask(rows, others)
    assert by_label.tolist() == [[False, True, True], [False, False, True]]
    by_class = PositiveSampler.by_class(pairs, pairs.groups).mask(rows, others)
    assert by_class.tolist() == [[False, False, True], [False, False, True]]


def test_where_nothing_is_irrelevant_it_says_so(pairs: TrainingPairs) -> None:
    with pytest.raises(DataError, match="all training pictures are of one class"):
        PositiveSampler.by_class(pairs, np.zeros(6, np.int64))
    labels = np.array([[1, 0], [1, 1], [1, 0], [1, 0], [1, 1], [1, 0]], np.uint8)
    with pytest.raises(DataError, match="all training pictures share a label"):
        PositiveSampler.by_label(pairs, labels)
