"""Explanations of scores: what each word of the text adds, and where a reranker looked."""

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image

from limner.data.transforms import ImageSettings
from limner.errors import ChangedPictureError, ImageError
from limner.search.image_files import open_unchanged
from limner.search.store_files import StoreFiles
from limner.types import Encoder, RegionFeatures, Reranker, RerankScores
from limner.wire import Attention, Explanation, Hit

Crop = tuple[float, float, float, float]
"""Left, top, right and bottom, as shares of the upright image's width and height."""

WHOLE: Crop = (0.0, 0.0, 1.0, 1.0)


def explanation(
    encoder: Encoder, reranker: Reranker | None, files: StoreFiles, text: str, key: str
) -> Explanation:
    """Explain an image's score for a text.

    A word's weight is how much the cosine falls without it.
    """
    # each word is left out once, which costs an embedding a word: gradients would need a network that can be
    # differentiated, and the encoder of another package or engine need not be one
    encoder.check_query(text)
    words = encoder.known_words(text)
    snapshot = files.snapshot()
    vector = snapshot.matrix[files.row_of(snapshot, key)]
    # nothing is left of a text of one word without it
    shorter = [" ".join(words[:left] + words[left + 1 :]) for left in range(len(words))] if words[1:] else []
    # in one batch, by the encoder for queries: its rows do not depend on their neighbours, so a difference of two
    # scores is the word's and not that of the rounding
    scores = encoder.encode_queries([text, *shorter]) @ vector
    weights = tuple(float(scores[0] - score) for score in scores[1:])
    attention, confidence = None, None
    regions = None if reranker is None else _regions(encoder, reranker, files, key)
    if reranker is not None and regions is not None:
        found = reranker.rerank(text, regions)
        ranked = reranker.scores(scores[:1].astype(np.float32), found.logits)
        crop = crops_of(encoder, files, [key])[0]
        attention, confidence = attention_of(found, 0, crop), float(reranker.confidences(ranked)[0])
    return Explanation(
        words=tuple(words),
        weights=weights or None,
        attention=attention,
        score=float(scores[0]),
        confidence=confidence,
        unknown=tuple(encoder.unknown_words(text)),
    )


def _regions(encoder: Encoder, reranker: Reranker, files: StoreFiles, key: str) -> RegionFeatures | None:
    """Region features of an image: the store's, or of its file; None where there are neither."""
    if files.region_shape is not None:
        return files.region_features([key])
    image = files.entry(key)
    try:
        # one pass of the network, so that nobody has to keep 75 kB an image for the few that are explained
        if image is None:
            return None
        with open_unchanged(image) as file:
            return reranker.region_features(encoder.prepare_image(file.read())[None])
    except (ChangedPictureError, ImageError):
        return None


def with_attention(
    encoder: Encoder, reranker: Reranker, files: StoreFiles, text: str, hits: Sequence[Hit]
) -> list[Hit]:
    """Add their attention to the hits that were re-ranked."""
    reranked = [place for place, hit in enumerate(hits) if hit.confidence is not None]
    found = list(hits)
    if reranked:
        keys = [hits[place].id for place in reranked]
        # read by the reranker a second time, for the hits alone: ranking keeps only the logits of all that it re-ranks
        scores, crops = reranker.rerank(text, files.region_features(keys)), crops_of(encoder, files, keys)
        for number, place in enumerate(reranked):
            attention = attention_of(scores, number, crops[number])
            found[place] = hits[place].model_copy(update={"attention": attention})
    return found


def attention_of(found: RerankScores, place: int, crop: Crop) -> Attention:
    """Make the attention of a reranker over one of its images; `crop` is the part that it saw."""
    regions, words = found.of_regions, found.of_words
    return Attention(
        words=found.words,
        of_regions=None if regions is None else regions[place].tolist(),
        of_words=None if words is None else words[place].tolist(),
        reader=found.reader,
        crop=crop,
    )


def crop_of(width: int, height: int, settings: ImageSettings) -> Crop:
    """Compute the part of an upright image that `centre_crop(load(…))` of `limner.data.transforms` keeps.

    >>> crop_of(400, 200, ImageSettings(resize=100, crop=(100, 100)))
    (0.25, 0.0, 0.75, 1.0)
    """
    kept, sizes = settings.resized(width, height)
    left, right = _along(width, kept[0], sizes[0], settings.crop[1])
    top, bottom = _along(height, kept[1], sizes[1], settings.crop[0])
    return left, top, right, bottom


def crops_of(encoder: Encoder, files: StoreFiles, ids: Sequence[str]) -> list[Crop]:
    """Crops of images of the store by their keys, in order, from the sizes of their thumbnails: exact to about 0.5 %.

    An image without a thumbnail counts as seen whole, and so does every image if the encoder does not name its
    transform.
    """
    images = getattr(encoder, "images", None)
    if not isinstance(images, ImageSettings):
        return [WHOLE] * len(ids)
    return [
        # the thumbnail has the proportions of its image, whose file may be gone; Pillow reads no more than its header
        WHOLE if file is None else crop_of(*Image.open(io.BytesIO(file)).size, images)
        for file in files.thumbnails(ids)
    ]


def _along(length: int, kept: int, resized: int, crop: int) -> tuple[float, float]:
    """Compute the first and last share of one side: `kept` of its `length` pixels in the middle become `resized`."""
    # rounded down, as the crop itself is: the attention would lie a pixel aside
    first = (length - kept) // 2
    start = (resized - crop) // 2
    return (first + start * kept / resized) / length, (first + (start + crop) * kept / resized) / length
