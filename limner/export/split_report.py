"""The figures of a split in the report of an export: R@K beside that of the run, re-ranked too."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, UInt8

from limner.data.records import Dataset
from limner.evaluation.names import parse_measures
from limner.evaluation.protocols import protocol_of
from limner.evaluation.reranking import PairReranking, remembered
from limner.export.report import RERANKED, Exported
from limner.inference.evaluate_run import results_of
from limner.inference.trained import TrainedModel
from limner.types import Reranker

Recall = dict[str, dict[str, float]]
"""R@1, R@5 and R@10 in percent, by direction."""

_IMAGES, _SENTENCES = 64, 256
"""Pictures and sentences encoded at once."""


@dataclass(frozen=True, eq=False)
class OnSplit:
    """An export and its run on a split, each pair in this order.

    - `pixels`, `sentences`: the split's first ones, as they enter both, to be compared by their embeddings.
    - `recall`: of the embeddings; `reranked`: of the first re-ranked, None without a reranker.
    """

    pixels: UInt8[np.ndarray, "images height width 3"]
    sentences: list[str]
    recall: tuple[Recall, Recall]
    reranked: tuple[Recall, Recall] | None


def first_reranked(model: TrainedModel) -> int:
    """How many of the first the report re-ranks: as many as the run does, and at most `RERANKED`."""
    return RERANKED if model.rerank == "all" else max(1, min(model.rerank, RERANKED))


def measured_on(
    dataset: Dataset,
    split: str,
    model: TrainedModel,
    exported: Exported,
    rerankers: tuple[Reranker, Reranker] | None,
    progress: Callable[[str, int, int], None],
) -> OnSplit:
    """Encode a split by an export and by its run, and rank it.

    `rerankers` are those of the export and of the run; both read the run's regions, as a store has them. `progress` is
    called with "pictures" or "sentences", how many are done, and their total.
    """
    chosen = dataset.split(split)
    paths = [record.image for record in chosen.records]
    sentences = [sentence for record in chosen.records for sentence in record.sentences]
    encoders = (exported, model)
    images: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    texts: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    first: np.ndarray | None = None
    regions: list[np.ndarray] = []
    for start in range(0, len(paths), _IMAGES):
        pixels = np.stack([model.prepare_image(path) for path in paths[start : start + _IMAGES]])
        first = pixels if first is None else first
        for rows, encoder in zip(images, encoders, strict=True):
            rows.append(encoder.encode_pixels(pixels))
        if rerankers is not None:
            regions.append(rerankers[1].region_features(pixels))
        progress("pictures", start + len(pixels), len(paths))
    for start in range(0, len(sentences), _SENTENCES):
        block = sentences[start : start + _SENTENCES]
        for rows, encoder in zip(texts, encoders, strict=True):
            rows.append(encoder.encode_texts(block, check=False))
        progress("sentences", start + len(block), len(sentences))
    assert first is not None, "a split is never empty"
    vectors = [(np.concatenate(images[side]), np.concatenate(texts[side])) for side in (0, 1)]
    reranked: tuple[Recall, Recall] | None = None
    if rerankers is not None:
        kept = np.concatenate(regions)
        of_export, of_run = (
            _recall(
                chosen,
                split,
                *rows,
                PairReranking(
                    remembered(reranker.pair_scorer(*rows, kept, sentences), len(paths), len(sentences)),
                    first_reranked(model),
                    reranker.class_mean,
                ),
            )
            for reranker, rows in zip(rerankers, vectors, strict=True)
        )
        reranked = of_export, of_run
    recall = _recall(chosen, split, *vectors[0]), _recall(chosen, split, *vectors[1])
    return OnSplit(first, sentences[:_IMAGES], recall, reranked)


def _recall(
    dataset: Dataset,
    split: str,
    images: Float[np.ndarray, "images dim"],
    texts: Float[np.ndarray, "sentences dim"],
    reranking: PairReranking | None = None,
) -> Recall:
    rules = protocol_of(dataset.source.partition(":")[0])
    results = results_of(dataset, rules, images, texts, reranking=reranking)
    report = rules.report(results, parse_measures("R@1 R@5 R@10"), split=split)
    return {"image_to_text": dict(report.image_to_text), "text_to_image": dict(report.text_to_image)}
