"""Explanations of scores: what the score does without each word, and where a reranker looked."""

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image

from limner.data.transforms import WHOLE, Crop, ImageSettings, crop_of
from limner.errors import ChangedPictureError, ImageError, SettingsError
from limner.inference.word_effects import DEFAULT, METHODS, Design, joined, known_to
from limner.search.image_files import open_unchanged
from limner.store.contents import region_features, thumbnails
from limner.store.files import StoreFiles
from limner.types import Encoder, RegionFeatures, Reranker, RerankScores
from limner.wire import Attention, Explanation, Hit, WordMethodName


def explanation(
    encoder: Encoder,
    reranker: Reranker | None,
    files: StoreFiles,
    text: str,
    key: str,
    method: WordMethodName = DEFAULT,
) -> Explanation:
    """Explain an image's score for a text.

    A word's weight is how much the cosine falls without it, as `limner.inference.word_effects` computes it.
    """
    if method not in METHODS:
        raise SettingsError(f"method: expected {', '.join(METHODS)}, got {method!r}")
    encoder.check_query(text)
    words = tuple(encoder.known_words(text))
    snapshot = files.snapshot()
    vector = snapshot.vectors[snapshot.expect_row(key)]
    # nothing is left of a text of one word without it
    design = (
        METHODS[method].design(words, known_to(encoder)) if words[1:] else Design([words], np.zeros((1, 1)))
    )
    # in one batch, by the encoder for queries: its rows do not depend on their neighbours, so a difference of two
    # scores is the word's and not that of the rounding
    scores = encoder.encode_queries([text, *(" ".join(variant) for variant in design.variants)]) @ vector
    weights, phrases = joined(design, scores[1:]) if words[1:] else (None, ())
    attention, confidence = None, None
    regions = None if reranker is None else _regions(encoder, reranker, files, key)
    if reranker is not None and regions is not None:
        found = reranker.rerank(text, regions)
        ranked = reranker.scores(scores[:1].astype(np.float32), found.logits)
        crop = crops_of(encoder, files, [key])[0]
        attention, confidence = attention_of(found, 0, crop), float(reranker.confidences(ranked)[0])
    return Explanation(
        words=words,
        weights=weights,
        phrases=phrases,
        method=method,
        attention=attention,
        score=float(scores[0]),
        confidence=confidence,
        unknown=tuple(encoder.unknown_words(text)),
    )


def _regions(encoder: Encoder, reranker: Reranker, files: StoreFiles, key: str) -> RegionFeatures | None:
    """Region features of an image: the store's, or of its file; None where there are neither."""
    if files.region_shape is not None:
        return region_features(files, [key])
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
        scores, crops = reranker.rerank(text, region_features(files, keys)), crops_of(encoder, files, keys)
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
        for file in thumbnails(files, ids)
    ]
