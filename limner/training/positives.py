"""Positives in training: the relevant samples of sextuples, by class or by label.

Source: MNiL, MM 2017, sections 3.2 and 4.1.
"""

from abc import ABC, abstractmethod

import numpy as np
from jaxtyping import Bool, Int64, UInt8

from limner.errors import DataError
from limner.training.pairs import TrainingPairs


class PositiveSampler(ABC):
    """The positives of every sample; a sentence has those of its image."""

    @staticmethod
    def by_class(pairs: TrainingPairs, classes: Int64[np.ndarray, " images"]) -> "PositiveSampler":
        """Positives by class: an identity, or an image with its sentences.

        Another one than itself is drawn where there is one. So of pairs that are their own class a picture's neighbour
        is itself, a sentence's are its picture's other sentences (section 4.1, on Flickr30k). Raises `DataError` for
        a single class.
        """
        # With a single class a hard negative could never be found, and the terms of it would be missing in every
        # step.
        if len(np.unique(classes)) < 2:
            raise DataError("all training pictures are of one class, so nothing is irrelevant to any of them")
        return _SameClass(pairs, classes)

    @staticmethod
    def by_label(pairs: TrainingPairs, labels: UInt8[np.ndarray, "images labels"]) -> "PositiveSampler":
        """Positives by shared label; every image needs at least one label, and all positives are equally likely to be
        drawn.

        Raises `DataError` for a label that all pictures have.
        """
        if labels.all(axis=0).any():
            raise DataError("all training pictures share a label, so nothing is irrelevant to any of them")
        return _SharedLabel(pairs, labels)

    @abstractmethod
    def images(
        self, images: Int64[np.ndarray, " batch"], rng: np.random.Generator
    ) -> Int64[np.ndarray, " batch"]:
        """A relevant image for each sample, by number."""

    @abstractmethod
    def sentences(
        self, sentences: Int64[np.ndarray, " batch"], rng: np.random.Generator
    ) -> Int64[np.ndarray, " batch"]:
        """A relevant sentence for each sample, by number."""

    @abstractmethod
    def mask(
        self, images: Int64[np.ndarray, " batch"], others: Int64[np.ndarray, " others"]
    ) -> Bool[np.ndarray, "batch others"]:
        """The relevance of images to images."""


class _SameClass(PositiveSampler):
    """Equal codes."""

    def __init__(self, pairs: TrainingPairs, classes: Int64[np.ndarray, " images"]) -> None:
        self._classes = classes
        # By position in sorted order: a draw then is one random number and one look-up, whatever the classes' sizes.
        self._of_images = _Members(classes)
        self._of_sentences = _Members(classes[pairs.sentence_image])

    def images(
        self, images: Int64[np.ndarray, " batch"], rng: np.random.Generator
    ) -> Int64[np.ndarray, " batch"]:
        return self._of_images.another(images, rng)

    def sentences(
        self, sentences: Int64[np.ndarray, " batch"], rng: np.random.Generator
    ) -> Int64[np.ndarray, " batch"]:
        return self._of_sentences.another(sentences, rng)

    def mask(
        self, images: Int64[np.ndarray, " batch"], others: Int64[np.ndarray, " others"]
    ) -> Bool[np.ndarray, "batch others"]:
        # `asarray`: a comparison of numpy arrays is typed as bool or array.
        return np.asarray(self._classes[images][:, None] == self._classes[others])


class _SharedLabel(PositiveSampler):
    """At least one label in common."""

    def __init__(self, pairs: TrainingPairs, labels: UInt8[np.ndarray, "images labels"]) -> None:
        # In float32: the mask is a matrix product, and numpy has no fast one for integers.
        self._labels = labels.astype(np.float32)
        self._owners = (np.arange(len(labels)), pairs.sentence_image)
        self._lists = [_by_label(labels, owners) for owners in self._owners]

    def images(
        self, images: Int64[np.ndarray, " batch"], rng: np.random.Generator
    ) -> Int64[np.ndarray, " batch"]:
        return self._sharing(0, images, rng)

    def sentences(
        self, sentences: Int64[np.ndarray, " batch"], rng: np.random.Generator
    ) -> Int64[np.ndarray, " batch"]:
        return self._sharing(1, sentences, rng)

    def mask(
        self, images: Int64[np.ndarray, " batch"], others: Int64[np.ndarray, " others"]
    ) -> Bool[np.ndarray, "batch others"]:
        # The number of common labels; more than none is relevant (MNiL, section 4.1).
        return np.asarray(self._labels[images] @ self._labels[others].T > 0)

    def _sharing(
        self, modality: int, items: Int64[np.ndarray, " batch"], rng: np.random.Generator
    ) -> Int64[np.ndarray, " batch"]:
        """Draw an item of a label, and keep it with a probability of one over the labels that could have drawn it."""
        owners, (members, starts, sizes) = self._owners[modality], self._lists[modality]
        # `empty_like`, since the loop leaves no place unfilled: each item shares its label with itself at least.
        found = np.empty_like(items)
        left = np.arange(len(items))
        # Rejection: a uniform draw among all that share a label without the union of the lists, which for a common
        # label is most of the set.
        while len(left):
            item_labels = self._labels[owners[items[left]]]
            # Labels are drawn by the number of their items, so that each (label, item) is equally likely.
            reach = np.cumsum(item_labels * sizes, axis=1)
            target = rng.random(len(left)) * reach[:, -1]
            # Counts the sums that are at or below the target: a `searchsorted` for each row.
            label = (reach <= target[:, None]).sum(axis=1)
            drawn = members[starts[label] + (rng.random(len(left)) * sizes[label]).astype(np.int64)]
            shared = (item_labels * self._labels[owners[drawn]]).sum(axis=1)
            kept = rng.random(len(left)) * shared < 1
            found[left[kept]] = drawn[kept]
            left = left[~kept]
        return found


class _Members:
    """The items of each class, and where each item stands among its own."""

    def __init__(self, classes: Int64[np.ndarray, " items"]) -> None:
        # "stable" keeps the order of the set within a class, so the draws are the same on every platform.
        self._order = np.argsort(classes, kind="stable")
        counts = np.bincount(classes)
        # First place of each class in that order.
        starts = np.cumsum(counts) - counts
        self._starts, self._counts = starts[classes], counts[classes]
        self._places = np.empty_like(self._order)
        self._places[self._order] = np.arange(len(classes))

    def another(
        self, items: Int64[np.ndarray, " batch"], rng: np.random.Generator
    ) -> Int64[np.ndarray, " batch"]:
        """Another item of each item's class; the item itself if there is no other."""
        others = self._counts[items] - 1
        step = (rng.random(len(items)) * others).astype(np.int64)
        offset = self._places[items] - self._starts[items]
        # counted on from itself, around the class
        # 0 where there is no other: the step then ends at the item itself.
        place = (offset + np.minimum(step + 1, others)) % self._counts[items]
        return np.asarray(self._order[self._starts[items] + place])


def _by_label(
    labels: UInt8[np.ndarray, "images labels"], owners: Int64[np.ndarray, " items"]
) -> tuple[Int64[np.ndarray, " listed"], Int64[np.ndarray, " labels"], Int64[np.ndarray, " labels"]]:
    """The items ordered by label, the start of each label's items, and their number."""
    lists = [np.flatnonzero(labels[owners, column]) for column in range(labels.shape[1])]
    sizes = np.array([len(one) for one in lists], np.int64)
    return np.concatenate(lists), np.cumsum(sizes) - sizes, sizes
