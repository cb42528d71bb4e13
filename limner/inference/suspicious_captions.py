"""Captions that probably describe another picture, found by a trained model."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float

from limner.data.check_report import Report
from limner.data.records import Dataset, group_numbers
from limner.documented import Result
from limner.errors import DataError
from limner.inference.seen_before import PretrainedData
from limner.inference.trained import TrainedModel
from limner.losses.wrong_pairs import pair_losses, probability_of_right

_BATCH = 64
_DRAWS = 8
"""Random batches that each pair is judged in; a single one has similar pictures in it or not by chance."""


class SuspiciousCaption(Result):
    """A caption that a run finds suspicious."""

    file: Path
    """The picture that it stands with."""
    caption: str
    """The caption."""
    loss: float
    """Loss of the pair: 0 for one that the run tells from all others."""
    right: float
    """Probability that the caption is right."""


class SuspiciousCaptions(Result):
    """Captions of a split by how far a run holds them for their pictures'."""

    run: Path
    """The run."""
    split: str
    """The split."""
    captions: int
    """Captions that were judged."""
    wrong: int
    """Captions that are wrong with a probability of a half or more."""
    worst: tuple[SuspiciousCaption, ...]
    """The most suspicious, worst first."""


class DataReport(Report):
    """The result of `limner data check`."""

    suspicious: SuspiciousCaptions | None = None
    """Captions that a run holds for another picture's; null without --with."""
    pretrained: PretrainedData | None = None
    """The parts of the dataset that weights have seen; null without --pretrained and --pretrained-data."""


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
            file=dataset.records[captions[place][0]].image,
            caption=captions[place][1],
            loss=float(losses[place]),
            right=float(right[place]),
        )
        # Stable: captions of one loss keep their order.
        for place in np.argsort(-losses, kind="stable")
    ]
