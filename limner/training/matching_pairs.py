"""Which pairs of a picture and a sentence a matcher meets in an epoch.

Source: Li et al., ICCV 2017, section 4.2: "For each visual or textual sample, we take its 20 most similar samples from
the other modality by stage-1 network".
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64

from limner.training.hard_negatives import EmbeddingBank, nearest
from limner.training.pairs import TrainingPairs
from limner.training.recipe import PairSettings


@dataclass(frozen=True)
class LabelledPairs:
    """Picture `images[i]` and sentence `sentences[i]`, and whether they are of one class."""

    images: Int64[np.ndarray, " pairs"]
    sentences: Int64[np.ndarray, " pairs"]
    labels: Bool[np.ndarray, " pairs"]


@dataclass(frozen=True)
class Candidates:
    """For each picture some sentences, and for each sentence some pictures, best first."""

    of_images: Int64[np.ndarray, "images few"]
    of_sentences: Int64[np.ndarray, "sentences as_few"]

    @classmethod
    def nearest(cls, bank: EmbeddingBank, count: int) -> "Candidates":
        """The `count` nearest of the other modality."""
        return cls(nearest(bank.images, bank.texts, count), nearest(bank.texts, bank.images, count))

    @classmethod
    def random(
        cls,
        of_images: Int64[np.ndarray, " images"],
        of_sentences: Int64[np.ndarray, " sentences"],
        count: int,
        rng: np.random.Generator,
    ) -> "Candidates":
        """At random, the first half of each row from the anchor's own class; both arguments are classes.

        **Decided**: random pairs alone would nearly all be wrong ones, of which nothing is learnt.
        """
        return cls(_drawn(of_images, of_sentences, count, rng), _drawn(of_sentences, of_images, count, rng))


def epoch_pairs(
    candidates: Candidates,
    pairs: TrainingPairs,
    classes: Int64[np.ndarray, " images"],
    settings: PairSettings,
    rng: np.random.Generator,
) -> LabelledPairs:
    """An epoch's pairs in random order; a pair that either side has found comes once for each."""
    of_texts = classes[pairs.sentence_image]
    texts = _chosen(candidates.of_images, settings.an_epoch, rng)
    images = _chosen(candidates.of_sentences, settings.an_epoch, rng)
    if settings.own:
        texts = np.concatenate([texts, _own(classes, of_texts, settings.own, rng)], axis=1)
        images = np.concatenate([images, _own(of_texts, classes, settings.own, rng)], axis=1)
    found = np.concatenate([np.repeat(np.arange(len(texts)), texts.shape[1]), images.ravel()])
    said = np.concatenate([texts.ravel(), np.repeat(np.arange(len(images)), images.shape[1])])
    order = rng.permutation(len(found))
    found, said = found[order], said[order]
    return LabelledPairs(found, said, classes[found] == of_texts[said])


def _chosen(
    candidates: Int64[np.ndarray, "anchors few"], few: int | None, rng: np.random.Generator
) -> Int64[np.ndarray, "anchors fewer"]:
    if few is None or few >= candidates.shape[1]:
        return candidates
    columns = np.argsort(rng.random(candidates.shape), axis=1)[:, :few]
    return np.take_along_axis(candidates, columns, axis=1)


def _drawn(
    anchors: Int64[np.ndarray, " anchors"],
    pool: Int64[np.ndarray, " pool"],
    count: int,
    rng: np.random.Generator,
) -> Int64[np.ndarray, "anchors few"]:
    """For each class of `anchors` positions of `pool`: the first half of its own class, the others of any."""
    own = _own(anchors, pool, count // 2, rng)
    others = rng.integers(len(pool), size=(len(anchors), count - count // 2))
    return np.concatenate([own, others], axis=1)


def _own(
    anchors: Int64[np.ndarray, " anchors"],
    pool: Int64[np.ndarray, " pool"],
    count: int,
    rng: np.random.Generator,
) -> Int64[np.ndarray, "anchors few"]:
    """Positions of each anchor's own class in the pool, with replacement; of any where it has none there."""
    order = np.argsort(pool, kind="stable")
    starts = np.searchsorted(pool[order], anchors, side="left")[:, None]
    sizes = np.searchsorted(pool[order], anchors, side="right")[:, None] - starts
    draws, spare = rng.random((len(anchors), count)), rng.integers(len(pool), size=(len(anchors), count))
    places = np.minimum(starts + (draws * sizes).astype(np.int64), len(pool) - 1)
    return np.where(sizes > 0, order[places], spare)
