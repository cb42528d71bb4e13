import numpy as np
import pytest
import torch

from limner.errors import SettingsError
from limner.training.hard_negatives import EmbeddingBank, nearest
from limner.training.pairs import TrainingPairs
from limner.training.recipe import PairSettings
from limner.training.rerank_stage import Candidates, epoch_pairs

IMAGES = np.array([0, 0, 1, 2, 2])
SENTENCE_IMAGE = np.array([0, 1, 2, 2, 3, 4, 4])


def pairs() -> TrainingPairs:
    own = tuple(tuple(np.flatnonzero(image == SENTENCE_IMAGE).tolist()) for image in range(5))
    groups = IMAGES[SENTENCE_IMAGE]
    of_group = tuple(tuple(np.flatnonzero(groups == group).tolist()) for group in range(3))
    return TrainingPairs(IMAGES, 3, tuple((1,) for _ in SENTENCE_IMAGE), SENTENCE_IMAGE, own, of_group)


def bank(seed: int = 0) -> EmbeddingBank:
    torch.manual_seed(seed)
    return EmbeddingBank(torch.randn(5, 4), IMAGES, torch.randn(7, 4), IMAGES[SENTENCE_IMAGE])


def test_the_nearest_are_those_of_a_full_sort() -> None:
    found = bank()
    expected = np.argsort(-(found.images @ found.texts.T).numpy(), axis=1)[:, :3]
    assert (nearest(found.images, found.texts, 3) == expected).all()
    candidates = Candidates.nearest(found, 9)
    assert candidates.of_images.shape == (5, 7)
    assert candidates.of_sentences.shape == (7, 5)


def test_an_epoch_takes_all_pairs_once_and_labels_them_by_class() -> None:
    candidates = Candidates.nearest(bank(), 3)
    found = epoch_pairs(candidates, pairs(), IMAGES, PairSettings(count=3), np.random.default_rng(0))
    expected = [(image, text) for image in range(5) for text in candidates.of_images[image]]
    expected += [(image, text) for text in range(7) for image in candidates.of_sentences[text]]
    ours = list(zip(found.images.tolist(), found.sentences.tolist(), strict=True))
    assert sorted(ours) == sorted(expected)
    assert ours != expected
    for (image, text), label in zip(ours, found.labels, strict=True):
        assert label == (IMAGES[image] == IMAGES[SENTENCE_IMAGE[text]])


def test_each_picture_may_be_its_own_class() -> None:
    candidates = Candidates.nearest(bank(), 7)
    found = epoch_pairs(candidates, pairs(), np.arange(5), PairSettings(count=7), np.random.default_rng(0))
    assert (found.labels == (found.images == SENTENCE_IMAGE[found.sentences])).all()


def test_an_epoch_may_take_a_few_of_each_samples_pairs() -> None:
    candidates = Candidates.nearest(bank(), 4)
    settings = PairSettings(count=4, an_epoch=2)
    epochs = [epoch_pairs(candidates, pairs(), IMAGES, settings, np.random.default_rng(n)) for n in (0, 1)]
    assert [len(found.labels) for found in epochs] == [5 * 2 + 7 * 2] * 2
    assert set(zip(epochs[0].images, epochs[0].sentences, strict=True)) != set(
        zip(epochs[1].images, epochs[1].sentences, strict=True)
    )


def test_random_candidates_are_half_of_the_own_class() -> None:
    of_texts = IMAGES[SENTENCE_IMAGE]
    found = Candidates.random(IMAGES, of_texts, 6, np.random.default_rng(0))
    assert found.of_images.shape == (5, 6)
    assert (of_texts[found.of_images[:, :3]] == IMAGES[:, None]).all()
    assert len(set(of_texts[found.of_images[:, 3:]].ravel().tolist())) == 3
    assert (IMAGES[found.of_sentences[:, :3]] == of_texts[:, None]).all()


def test_no_more_pairs_an_epoch_than_there_are() -> None:
    with pytest.raises(SettingsError, match="an_epoch=5 is more than the count=4"):
        PairSettings.parse({"count": 4, "an_epoch": 5})


def test_own_pairs_stand_beside_the_nearest() -> None:
    candidates = Candidates.nearest(bank(), 2)
    found = epoch_pairs(candidates, pairs(), IMAGES, PairSettings(count=2, own=3), np.random.default_rng(0))
    assert len(found.labels) == (5 + 7) * (2 + 3)
    assert found.labels.sum() >= (5 + 7) * 3
