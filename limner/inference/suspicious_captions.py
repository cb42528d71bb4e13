"""Captions that probably describe another picture, found by a trained model."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Float

from limner.data.records import Dataset, Record, group_numbers
from limner.errors import DataError
from limner.inference.trained import TrainedModel
from limner.losses.wrong_pairs import pair_losses, probability_of_right

_BATCH = 64
_DRAWS = 8
"""Random batches that each pair is judged in; a single one has similar pictures in it or not by chance."""


@dataclass(frozen=True)
class SuspiciousCaption:
    """A caption, and how far a model holds it for its picture's: `loss`, and the probability that it is `right`."""

    record: Record
    caption: str
    loss: float
    right: float


def suspicious_captions(
    run: TrainedModel,
    dataset: Dataset,
    *,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[SuspiciousCaption]:
    """All captions of a dataset, the most suspicious first, judged as RDE does (`limner.losses.wrong_pairs`).

    A model that has learnt from these very captions for long knows the wrong ones by heart, too. Raises `DataError` for
    fewer than three captions, among which none stands out, and `ImageError` for a picture that cannot be read.
    """
    count = sum(len(record.sentences) for record in dataset.records)
    if count < 3:
        raise DataError(f"{dataset.source}: {count} captions; none can stand out among fewer than three")
    told = {what: progress and partial(progress, what) for what in ("pictures", "captions")}
    images = run.encode_images([record.image for record in dataset.records], progress=told["pictures"])
    captions = [caption for record in dataset.records for caption in record.sentences]
    texts = run.encode_texts(captions, check=False, progress=told["captions"])
    return judged(dataset, images, texts, seed)


def judged(
    dataset: Dataset,
    images: Float[np.ndarray, "images dim"],
    texts: Float[np.ndarray, "captions dim"],
    seed: int,
) -> list[SuspiciousCaption]:
    """The captions of a dataset by the embeddings of its pictures and of its captions, both in their order."""
    groups = group_numbers(dataset)[0]
    captions = [(row, caption) for row, record in enumerate(dataset.records) for caption in record.sentences]
    of_image = np.array([row for row, _ in captions])
    random = np.random.default_rng(seed)
    rows = torch.from_numpy(images), torch.from_numpy(texts)
    losses = np.mean([pair_losses(*rows, of_image, groups, _BATCH, random) for _ in range(_DRAWS)], axis=0)
    right = probability_of_right(losses)
    return [
        SuspiciousCaption(
            dataset.records[captions[place][0]], captions[place][1], float(losses[place]), float(right[place])
        )
        # Stable: captions of one loss keep their order.
        for place in np.argsort(-losses, kind="stable")
    ]
