"""Which images fit a sentence that describes another one, told by the other sentences of the set."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int

from limner.errors import DataError

# chosen by people's judgements of 22,259 pairs of a caption of Flickr8k with another picture: with 0.2 as many fit as
# people say, by MiniLM's sentences and by a trained tower's (docs/log/2026-11-29.md)
_FURTHER = 0.2
"""Share of the sentences whose nearest sentence of the same image is further away than what still fits."""

Matching = Callable[[Int[np.ndarray, " rows"]], Bool[np.ndarray, "rows images"]]
"""Says which images are right for some sentences, by their positions."""


def fitting(
    sentences: Float[np.ndarray, "sentences dim"],
    sentence_groups: Int[np.ndarray, " sentences"],
    image_groups: Int[np.ndarray, " images"],
) -> Matching:
    """A function that says which images fit sentences; `sentences` are embeddings of unit length, none of them alone.

    An image fits a sentence if one of its own sentences is as near to it as sentences of one image are to each other:
    no further than the nearest other sentence of the same image is of four sentences in five. Where annotators
    described one image each, other images that a sentence fits are not marked, and this finds about as many of them as
    people do. Sentences of a group are those of each image of it; an image of whose group there is none fits nothing.
    Raises `DataError` if no group has two sentences.
    """
    order = np.argsort(sentence_groups, kind="stable")
    groups, starts = np.unique(sentence_groups[order], return_index=True)
    columns = np.searchsorted(groups, image_groups)
    known = np.isin(image_groups, groups)
    columns[~known] = 0
    gallery = np.ascontiguousarray(sentences[order].T)

    def nearest(rows: Int[np.ndarray, " rows"]) -> Float[np.ndarray, "rows groups"]:
        cosines = sentences[rows] @ gallery
        # a sentence says nothing of its own image: it would always be the nearest
        cosines[order[None] == rows[:, None]] = -np.inf
        return np.asarray(np.maximum.reduceat(cosines, starts, axis=1))

    own = np.concatenate(
        [
            nearest(rows)[np.arange(len(rows)), np.searchsorted(groups, sentence_groups[rows])]
            for rows in np.array_split(np.arange(len(sentences)), 1 + len(sentences) // 1024)
        ]
    )
    own = own[np.isfinite(own)]
    if not len(own):
        raise DataError(
            "which images fit a sentence is told by the other sentences, and no image has two of them; take "
            "'described' as the question"
        )
    bound = float(np.quantile(own, _FURTHER))
    return lambda rows: (nearest(rows)[:, columns] >= bound) & known
