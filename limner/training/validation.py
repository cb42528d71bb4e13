"""The validation measures that choose a checkpoint."""

import numpy as np
from jaxtyping import Float
from torch import Tensor

from limner.data.kept_rows import KeptRows
from limner.evaluation.both_directions import evaluate
from limner.evaluation.report import Report
from limner.evaluation.reranking import PairReranking, Reranking, remembered
from limner.inference.encoding import Encoding
from limner.training.pictures import centred_blocks, encode_all
from limner.training.prepare import Prepared
from limner.training.recipe import Selection
from limner.types import Reranker

_BLOCK = 64
"""Cached maps that are in memory at once."""


def validate(
    prepared: Prepared, encoding: Encoding, cached: Float[np.ndarray | KeptRows, "images views ..."] | None
) -> Report:
    """Both directions on the validation split, from cached views (those of testing come first) or pixels."""
    if cached is not None:
        # Testing averages an image and its mirror image, where pictures may be mirrored.
        images = encoding.cached(cached[:, : prepared.recipe.images.test_views])
    else:
        images = encode_all(prepared.val_pictures, encoding)
    return evaluate_val(prepared, images, encoding.token_ids(prepared.val_tokens.token_ids))


def validate_reranked(
    prepared: Prepared,
    reranker: Reranker,
    images: Float[Tensor, "images dim"],
    texts: Float[Tensor, "sentences dim"],
    cached: Float[np.ndarray | KeptRows, "images ..."] | None,
) -> Report:
    """Both directions on the validation split, the first of the embedding's ranking re-ranked as the recipe has it.

    Regions are of what the feature cache keeps of the whole pictures (`cached`), or of pixels.
    """
    if cached is not None:
        # Regions are those of the plain image, so the mirror image is not encoded.
        parts = (np.asarray(cached[start : start + _BLOCK]) for start in range(0, len(cached), _BLOCK))
        regions = np.concatenate([reranker.region_features_of_cached(part) for part in parts])
    else:
        blocks = centred_blocks(prepared.val_pictures)
        regions = np.concatenate([reranker.region_features(block) for block in blocks])
    # As text, not as ids: a reranker reads phrases as well.
    sentences = [sentence for record in prepared.val.records for sentence in record.sentences]
    scorer = reranker.pair_scorer(images.numpy(), texts.numpy(), regions, sentences)
    # both directions ask for many of the same pairs
    known = remembered(scorer, len(images), len(texts))
    return evaluate_val(
        prepared, images, texts, PairReranking(known, prepared.recipe.rerank, reranker.class_mean)
    )


def evaluate_val(
    prepared: Prepared,
    images: Float[Tensor, "images dim"],
    texts: Float[Tensor, "sentences dim"],
    reranking: Reranking | None = None,
) -> Report:
    """Both directions on the validation split, from its embeddings."""
    return evaluate(
        images,
        texts,
        prepared.val_image_groups,
        prepared.val_sentence_groups,
        # A protocol of its own name: these figures choose a checkpoint and compare with no table.
        protocol="validation",
        split="val",
        labels=prepared.val_labels,
        reranking=reranking,
    )


def score(report: Report, select: Selection) -> float:
    """The one number that a checkpoint is chosen by, higher is better."""
    # From the report's own figures: the log then shows the very numbers that were compared.
    values = {"image_to_text": report.image_to_text, "text_to_image": report.text_to_image}
    if select == "rsum":
        return float(
            sum(
                values[direction][f"R@{k}"]
                for direction in ("image_to_text", "text_to_image")
                for k in (1, 5, 10)
            )
        )
    if select == "mAP":
        # R@K tells little where a query has many matches, so recipes by class or label choose by mAP.
        return float(np.mean([values[direction]["mAP"] for direction in ("image_to_text", "text_to_image")]))
    direction, measure = select.split(" ", 1)
    return float(values[direction][measure])
