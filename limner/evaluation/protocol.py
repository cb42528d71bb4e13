"""Evaluate both directions of an image-sentence set."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from limner.evaluation.curves import Curve, CurveMeasure
from limner.evaluation.measures import STANDARD, Measure
from limner.evaluation.overlap import Overlap
from limner.evaluation.ranking import Array, rank_embeddings
from limner.evaluation.relevance import Relevance, group_codes
from limner.evaluation.report import Report
from limner.evaluation.tally import AnyMeasure, Ranking


def evaluate(
    image_embeddings: Float[Array, "images image_dim"],
    sentence_embeddings: Float[Array, "sentences sentence_dim"],
    image_groups: Any,
    sentence_groups: Any,
    *,
    protocol: str,
    split: str,
    extra: Mapping[str, Any] | None = None,
    measures: Sequence[AnyMeasure] = STANDARD,
    block: int | None = None,
) -> Report:
    """Rank sentences for each image and images for each sentence, and measure both.

    Embeddings have one row an image (**each image once**, however many sentences it has) and one a
    sentence; group codes are integers, one a row, and equal ones are true matches: a query image counts any
    of its sentences. `extra` is the report's provenance (see `Report`). Memory and ties:
    `limner.evaluation.ranking`.

    Raises `DataError` for NaN, shapes that do not fit, and sets without a single true match.
    """
    of_images = group_codes(image_groups, "image groups")
    of_sentences = group_codes(sentence_groups, "sentence groups")
    forward = Relevance.from_groups(of_images, of_sentences)
    backward = Relevance.from_groups(of_sentences, of_images)
    to_text = rank_embeddings(image_embeddings, sentence_embeddings, forward, measures, block=block)
    to_image = rank_embeddings(sentence_embeddings, image_embeddings, backward, measures, block=block)
    counts = {
        "images": forward.queries,
        "sentences": backward.queries,
        "groups": len(np.union1d(of_images, of_sentences)),
        "images_without_match": to_text.without_match,
        "sentences_without_match": to_image.without_match,
    }
    return Report(
        protocol=protocol,
        split=split,
        counts=counts,
        image_to_text=_measured(to_text, measures),
        text_to_image=_measured(to_image, measures),
        provenance=dict(extra or {}),
        curves={"image_to_text": _drawn(to_text, measures), "text_to_image": _drawn(to_image, measures)}
        if any(isinstance(measure, CurveMeasure) for measure in measures)
        else {},
    )


def _measured(ranking: Ranking, measures: Sequence[AnyMeasure]) -> dict[str, float]:
    return {str(one): ranking.value(one) for one in measures if isinstance(one, Measure | Overlap)}


def _drawn(ranking: Ranking, measures: Sequence[AnyMeasure]) -> dict[str, Curve]:
    return {str(one): ranking.curve(one) for one in measures if isinstance(one, CurveMeasure)}
