"""The validation measures that choose a checkpoint."""

import numpy as np
from jaxtyping import Float
from torch import Tensor

from limner.evaluation.both_directions import evaluate
from limner.evaluation.report import Report
from limner.evaluation.reranking import Reranking
from limner.inference.encoding import Encoding
from limner.training.pictures import encode_all
from limner.training.prepare import Prepared
from limner.training.recipe import Selection


def validate(
    prepared: Prepared, encoding: Encoding, cached: Float[np.ndarray, "images views ..."] | None
) -> Report:
    """Both directions on the validation split, from cached views (those of testing come first) or pixels."""
    if cached is not None:
        images = encoding.cached(cached[:, : prepared.recipe.images.test_views])
    else:
        images = encode_all(prepared.val_pictures, encoding)
    return evaluate_val(prepared, images, encoding.numbers(prepared.val_numbers))


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
        protocol="validation",
        split="val",
        labels=prepared.val_labels,
        reranking=reranking,
    )


def score(report: Report, select: Selection) -> float:
    """The one number that a checkpoint is chosen by, higher is better."""
    values = report.to_dict()
    if select == "rsum":
        return float(
            sum(
                values[direction][f"R@{k}"]
                for direction in ("image_to_text", "text_to_image")
                for k in (1, 5, 10)
            )
        )
    if select == "mAP":
        return float(np.mean([values[direction]["mAP"] for direction in ("image_to_text", "text_to_image")]))
    direction, measure = select.split(" ", 1)
    return float(values[direction][measure])
