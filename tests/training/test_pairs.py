from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limner.data.records import Dataset, Record
from limner.data.tokenizers import WordTokenizer
from limner.errors import DataError
from limner.training.pairs import Batch, TrainingPairs, epoch_batches, generator, steps_per_epoch
from limner.training.recipe import StageSettings

WORDS = 6
TOKENIZER = WordTokenizer(tuple("abcdefghij"))


def _pairs(counts: list[int], groups: list[str] | None = None) -> TrainingPairs:
    """Picture i has `counts[i]` sentences of one word each."""
    records = [
        Record(
            Path(f"{i}.png"),
            tuple("abcdefghij"[(i + j) % 10] for j in range(count)),
            groups[i] if groups else str(i),
        )
        for i, count in enumerate(counts)
    ]
    return TrainingPairs.of(Dataset("folder:x", "identity", tuple(records)), TOKENIZER, 10)


def _epoch(pairs: TrainingPairs, stage: StageSettings, *where: int) -> list[Batch]:
    return list(epoch_batches(pairs, stage, WORDS, generator(*(where or (0, 0, 0)))))


def _flat(batches: list[Batch], field: str) -> list[int]:
    return [int(value) for batch in batches for value in getattr(batch, field)]


@given(st.lists(st.integers(1, 4), min_size=2, max_size=23), st.integers(2, 9), st.integers(0, 99))
def test_one_every_picture_at_most_once_with_a_sentence_of_its_own(
    counts: list[int], size: int, seed: int
) -> None:
    pairs, stage = _pairs(counts), StageSettings(name="s", batch=size)
    batches = _epoch(pairs, stage, seed, 0, 0)
    images, sentences = _flat(batches, "images"), _flat(batches, "sentences")
    assert len(set(images)) == len(images)
    # a last batch that is not full is left out; a set smaller than one batch is one batch
    assert len(images) == (len(counts) // size * size or len(counts))
    assert len(batches) == steps_per_epoch(pairs, stage)
    assert all(
        pairs.sentence_image[sentence] == image for image, sentence in zip(images, sentences, strict=True)
    )
    assert _flat(batches, "groups") == [int(pairs.groups[image]) for image in images]


def test_every_sentence_of_a_picture_is_drawn_about_equally_often() -> None:
    pairs, stage = _pairs([4, 4]), StageSettings(name="s", batch=2)
    drawn = Counter(s for epoch in range(400) for s in _flat(_epoch(pairs, stage, 0, 0, epoch), "sentences"))
    assert set(drawn) == set(range(8))
    # 400 draws a picture: a deviation of 8.7 around 100
    assert all(abs(count - 100) < 45 for count in drawn.values())


def test_group_pairing_takes_sentences_of_the_whole_identity() -> None:
    pairs = _pairs([2, 2, 0, 3], ["p", "q", "p", "q"])
    seen: dict[int, set[int]] = {image: set() for image in range(4)}
    for epoch in range(60):
        for batch in _epoch(pairs, StageSettings(name="s", batch=4, pairing="group"), 0, 0, epoch):
            for image, sentence in zip(batch.images, batch.sentences, strict=True):
                seen[int(image)].add(int(sentence))
    assert seen == {0: {0, 1}, 2: {0, 1}, 1: {2, 3, 4, 5, 6}, 3: {2, 3, 4, 5, 6}}


def test_picture_without_sentence_borrows_one_of_its_group() -> None:
    pairs = _pairs([2, 0], ["p", "p"])
    for batch in _epoch(pairs, StageSettings(name="s", batch=2)):
        assert set(batch.sentences.tolist()) <= {0, 1}
        assert sorted(batch.images.tolist()) == [0, 1]


def test_all_takes_every_sentence_once_with_its_picture() -> None:
    pairs = _pairs([1, 4, 0, 3, 2], ["a", "b", "b", "c", "d"])
    batches = _epoch(pairs, StageSettings(name="s", batch=5, sentences="all"))
    assert sorted(_flat(batches, "sentences")) == list(range(10))
    assert Counter(_flat(batches, "images")) == {0: 1, 1: 4, 3: 3, 4: 2}


@given(st.lists(st.integers(0, 4), min_size=3, max_size=23), st.integers(2, 9), st.integers(0, 99))
def test_together_puts_the_sentences_of_a_picture_side_by_side(
    counts: list[int], size: int, seed: int
) -> None:
    counts = [*counts, 1, 1]  # at least one step
    # a group of all: a picture without a sentence of its own is left out, as with "all"
    pairs = _pairs(counts, ["g"] * len(counts))
    stage = StageSettings(name="s", batch=size, sentences="together")
    batches = _epoch(pairs, stage, seed, 0, 0)
    sentences, images = _flat(batches, "sentences"), _flat(batches, "images")
    assert len(set(sentences)) == len(sentences) == (sum(counts) // size * size or sum(counts))
    assert images == pairs.sentence_image[sentences].tolist()
    assert len(batches) == steps_per_epoch(pairs, stage)
    # each picture begins once: the last one alone may be cut off
    begins = [image for before, image in zip([None, *images], images, strict=False) if image != before]
    assert len(begins) == len(set(begins))
    assert all(images.count(image) == counts[image] for image in begins[:-1])


@pytest.mark.parametrize("sentences", ["one", "all", "together"])
def test_an_epoch_is_a_function_of_seed_stage_and_epoch(sentences: str) -> None:
    pairs = _pairs([2] * 20)
    stage = StageSettings.parse({"name": "s", "batch": 7, "sentences": sentences})

    def drawn(*where: int) -> list[list[int]]:
        return [batch.sentences.tolist() for batch in _epoch(pairs, stage, *where)]

    first = drawn(1, 0, 0)
    assert drawn(1, 0, 0) == first
    assert all(drawn(*other) != first for other in ((2, 0, 0), (1, 1, 0), (1, 0, 1)))


def test_another_remainder_is_left_out_each_epoch() -> None:
    pairs, stage = _pairs([1] * 5), StageSettings(name="s", batch=4)
    left = {
        next(iter(set(range(5)) - set(_flat(_epoch(pairs, stage, 0, 0, epoch), "images"))))
        for epoch in range(40)
    }
    assert left == set(range(5))


def test_position_shift_moves_the_words_and_left_alignment_does_not() -> None:
    pairs = _pairs([1] * 12)
    left = _epoch(pairs, StageSettings(name="s", batch=12, position_shift=False))[0]
    expected = [[pairs.sentences[s][0], 0, 0, 0, 0, 0] for s in left.sentences]
    np.testing.assert_array_equal(left.token_ids, expected)
    shifted = _epoch(pairs, StageSettings(name="s", batch=12))[0]
    assert len({int(row.argmax()) for row in shifted.token_ids}) > 2
    np.testing.assert_array_equal(
        shifted.token_ids.sum(axis=1), [pairs.sentences[s][0] for s in shifted.sentences]
    )


def test_group_without_a_sentence_is_refused() -> None:
    with pytest.raises(DataError, match="group '1' has no sentence"):
        _pairs([1, 0])
