"""Single pairs in the order in which a reranker that scores all pairs of some images and sentences wants them."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Int

AnchoredPairs = tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " images"], Int[np.ndarray, " sentences"]]
"""Places of some pairs, their images, and their sentences as places in those held; one of both is a single row."""


def anchored_pairs(
    of_images: Int[np.ndarray, " pairs"], of_sentences: Int[np.ndarray, " pairs"], held: int
) -> Iterator[tuple[Int[np.ndarray, " held"], Iterator[AnchoredPairs]]]:
    """At most `held` sentences at a time, in order, and with them their pairs: a group for each anchor.

    Anchors are the images or the sentences, whichever there are fewer of, so that there are few groups.
    """
    sentences = np.unique(of_sentences)
    by_image = len(np.unique(of_images)) <= len(sentences)
    for start in range(0, len(sentences), held):
        block = sentences[start : start + held]
        yield block, _groups(of_images, of_sentences, block, by_image=by_image)


def _groups(
    of_images: Int[np.ndarray, " pairs"],
    of_sentences: Int[np.ndarray, " pairs"],
    block: Int[np.ndarray, " held"],
    *,
    by_image: bool,
) -> Iterator[AnchoredPairs]:
    inside = np.flatnonzero(np.isin(of_sentences, block))
    anchors = (of_images if by_image else of_sentences)[inside]
    for anchor in np.unique(anchors):
        pairs = inside[anchors == anchor]
        one = pairs[:1]
        rows = np.searchsorted(block, of_sentences[pairs if by_image else one])
        yield pairs, of_images[one if by_image else pairs], rows
