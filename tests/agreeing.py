"""Pictures with the sentences that a model takes for theirs: a toy model is right of no others."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from limner.data.records import Dataset
from limner.inference.trained import TrainedModel


def resaved(image: Path, folder: Path) -> None:
    """Put the same pixels in other bytes into a folder: a run may be measured on them that was trained on the image."""
    with Image.open(image) as opened:
        opened.save(folder / image.name, compress_level=1)


def agreeing(run: TrainedModel, dataset: Dataset, split: str) -> Dataset:
    """All pictures of a set as one split, each an identity, with the sentences that it fits best.

    Of the three that the embedding finds first, a reranker has the last word; a picture may be left with no sentence.
    """
    paths = [record.image for record in dataset.records]
    sentences = [sentence for record in dataset.records for sentence in record.sentences]
    images, texts = run.encode_images(paths), run.encode_texts(sentences)
    first = np.argsort(-(texts @ images.T), axis=1)[:, :3]
    every = np.arange(len(texts))
    if run.reranker is not None:
        score = run.reranker.pair_scorer(images, texts, run.encode_regions(paths), sentences)
        judged = score(first.ravel(), every.repeat(3)).reshape(first.shape)
        first = np.take_along_axis(first, np.argsort(-judged, axis=1), axis=1)
    chosen = first[:, 0]
    records = (
        replace(
            record,
            sentences=tuple(sentences[number] for number in np.flatnonzero(chosen == place)),
            group=str(place),
            split=split,
        )
        for place, record in enumerate(dataset.records)
    )
    return replace(dataset, source="folder:agreeing", records=tuple(records))


def sharing(dataset: Dataset) -> Dataset:
    """A set in which one picture that had no sentence has six of another one, too."""
    records = list(dataset.records)
    most = max(records, key=lambda one: len(one.sentences))
    silent = next(place for place, one in enumerate(records) if not one.sentences)
    records[silent] = replace(records[silent], sentences=most.sentences[:6])
    return replace(dataset, source="folder:sharing", records=tuple(records))
