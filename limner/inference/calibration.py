"""Calibrate a run on a split of a dataset: encode, score, fit; and measure a calibration on another split."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from limner.data.records import Dataset, group_numbers, label_matrices
from limner.durable import write_text
from limner.errors import CheckpointError, DataError, SettingsError
from limner.evaluation.arrays import Results
from limner.evaluation.calibration import (
    FirstHits,
    Reliability,
    cross_validated,
    fit,
    measured,
)
from limner.evaluation.fits import Matching, fitting
from limner.evaluation.protocols import protocol_of
from limner.evaluation.reranking import First, shortlist
from limner.evaluation.scores import of_embeddings
from limner.inference.calibration_file import (
    THRESHOLD,
    Kind,
    Question,
    RunCalibration,
    calibration_place,
    calibration_text,
    unusable_kinds,
)
from limner.inference.learnt_images import expect_same_splits, learnt_from
from limner.inference.provenance import versions
from limner.inference.trained import TrainedModel
from limner.types import RegionFeatures


def write_calibration(run: Path, calibration: RunCalibration) -> Path:
    """Write the file into the run folder (or beside the checkpoint) atomically. Raises `CheckpointError`."""
    file = calibration_place(run)
    write_text(file, calibration_text(calibration))
    return file


ProgressCallback = Callable[[str, int, int], None]
"""Called with what is done, how much of it, and its total."""

# 16 MiB of float32, of which `FirstHits.of` makes a few copies
_BLOCK = 1 << 22
"""Similarities held at once."""

# four seconds at HGAN's 7,800 pairs a second (docs/log/2026-11-22.md), after which the bar moves
_AT_ONCE = 1 << 15
"""Pairs that a reranker is given at once."""

# the fit has three parameters and gains little from more; at HGAN's speed these are four and a half minutes
_MOST = 1 << 21
"""Pairs that a reranker scores in all; of a larger split it is asked about sentences drawn at random."""


def calibrate_run(
    run: TrainedModel,
    dataset: Dataset,
    split: str,
    *,
    threshold: float = THRESHOLD,
    rerank: First | None = None,
    question: Question = "described",
    progress: ProgressCallback | None = None,
) -> RunCalibration:
    """Fit the probabilities of a run's scores on a split that it was not trained on.

    Each sentence searches all pictures of the split. A reranker scores the first of the embedding's ranking,
    `rerank` of them in place of the recipe's number. `question` says what counts as right: what the split says, or also
    what fits the sentence (`limner.evaluation.fits`). How reliable the result is, is measured by cross-validation,
    with the sentences of an identity in one fold. `progress` is as `limner.inference.evaluate_run.evaluate_run` has it.

    Raises `DataError` for the test split and for that which trained the run, for a split of one group, and for scores
    that no probability can be made of; `SettingsError` for a threshold that is none; else as `evaluate_run`.
    """
    # first of all, so that a mistyped number does not cost the encoding of a split
    expect_probability(threshold)
    _expect_unseen(run, dataset, split)
    first = run.rerank if rerank is None else rerank
    encoded = _encode(run, dataset, first, progress, fitting=True).asking(question)
    return fit_encoded(
        run,
        encoded,
        first,
        data=dataset.source,
        split=split,
        split_fingerprint=dataset.fingerprint,
        threshold=threshold,
        progress=progress,
    )


def expect_probability(threshold: float) -> None:
    """Raise `SettingsError` for a threshold that is no probability."""
    if not 0 <= threshold <= 1:
        raise SettingsError(f"threshold: expected a probability from 0 to 1, got {threshold:g}")


@dataclass(frozen=True, eq=False)
class EncodedGallery:
    """A gallery and the sentences that search it, encoded; their groups say what matches.

    - `results`: embeddings and groups of both.
    - `sentences`: their text; `regions`: reads the region features of the images, for a reranker.
    - `question`: says what is right (`asking`).
    """

    results: Results
    sentences: Sequence[str]
    regions: Callable[[], RegionFeatures]

    question: Question = "described"

    def asking(self, question: Question) -> "EncodedGallery":
        """The gallery for a question; of `fits` images that no sentence describes are left out, being unknown."""
        if question == "described":
            return self
        kept = np.flatnonzero(np.isin(self.results.image_groups, self.results.sentence_groups))
        return EncodedGallery(
            self.results.with_images(kept), self.sentences, lambda: self.regions()[kept], question
        )

    def matching(self) -> Matching:
        """A function that says which images are right for some sentences. Raises what `fitting` raises."""
        relevance = self.results.relevance()[1]

        def described(rows: Int[np.ndarray, " rows"]) -> Bool[np.ndarray, "rows images"]:
            found = np.zeros((len(rows), relevance.gallery_size), bool)
            for row, sentence in zip(found, rows.tolist(), strict=True):
                row[relevance.matches(sentence)] = True
            return found

        if self.question == "described":
            return described
        results = self.results
        fits = fitting(_embeddings(results)[1], results.sentence_groups, results.image_groups)
        return lambda rows: described(rows) | fits(rows)


def fit_encoded(
    run: TrainedModel,
    encoded: EncodedGallery,
    first: First,
    *,
    data: str,
    split: str,
    split_fingerprint: str,
    threshold: float,
    progress: ProgressCallback | None = None,
) -> RunCalibration:
    """Fit the probabilities to a gallery that is encoded; `first` images are re-ranked. Raises what `fit` raises."""
    gathered = _gather(run, encoded, first, progress)
    # by cross-validation: figures on the sentences of the fit itself would flatter it
    reliability = {kind: cross_validated(one, threshold) for kind, one in gathered.items()}
    return RunCalibration(
        fingerprint=run.fingerprint,
        checkpoint=run.path.name,
        data=data,
        split=split,
        split_fingerprint=split_fingerprint,
        images=len(encoded.results.image_groups),
        sentences=len(encoded.sentences),
        # kept with the fit: a score's lead is measured within a ranking of this depth
        reranked=first,
        question=encoded.question,
        threshold=threshold,
        embedding=fit(gathered["embedding"]),
        reranker=fit(gathered["reranker"]) if "reranker" in gathered else None,
        reliability=reliability,
        unusable=unusable_kinds(reliability, threshold),
        versions=versions(),
    )


def check_calibration(
    run: TrainedModel,
    dataset: Dataset,
    calibration: RunCalibration,
    *,
    progress: ProgressCallback | None = None,
) -> dict[Kind, Reliability]:
    """Measure what a calibration's probabilities are worth on the records of another split.

    Raises `CheckpointError` for a calibration of another model, and what `limner.inference.evaluate_run.evaluate_run`
    does.
    """
    if calibration.fingerprint != run.fingerprint:
        raise CheckpointError(
            f"{run.path}: the calibration was fitted for another model, {calibration.checkpoint} with fingerprint "
            f"{calibration.fingerprint[:12]} and not {run.fingerprint[:12]}; fit it anew with `limner calibrate`, or "
            "choose its --stage"
        )
    fitted = {"embedding": calibration.embedding, "reranker": calibration.reranker}
    # as deep as the fit's rankings, whatever the recipe says: the probabilities hold for that depth
    encoded = _encode(run, dataset, calibration.reranked, progress).asking(calibration.question)
    gathered = _gather(run, encoded, calibration.reranked, progress)
    found: dict[Kind, Reliability] = {}
    for kind, hits in gathered.items():
        if (curve := fitted[kind]) is not None:
            found[kind] = measured(hits, curve, calibration.threshold)
    return found


def _expect_unseen(run: TrainedModel, dataset: Dataset, split: str) -> None:
    # the records are checked too: `split` is only the name that the caller gives
    if split == "test" or any(record.split == "test" for record in dataset.records):
        raise DataError(
            "a calibration is never fitted on test, whose figures would then say nothing; fit it on val, and measure "
            "it with --check test"
        )
    # by the records' digest: the training split may come under another name
    if dataset.fingerprint == run.description["data"]["train"]:
        raise DataError(
            f"{dataset.source}: split '{split}' is what the run was trained on, where its scores are higher than on "
            "new pictures; fit on val"
        )


def _encode(
    run: TrainedModel,
    dataset: Dataset,
    first: First,
    progress: ProgressCallback | None,
    *,
    fitting: bool = False,
) -> EncodedGallery:
    """Encode all pictures and sentences of a split; their regions if they are asked for."""
    expect_depth(run, first)  # before hours of encoding
    # with other drawn splits, validation would hold pictures that the run has learnt
    expect_same_splits(dataset, run.description)
    learnt_from(run, dataset, fitting=fitting, progress=progress)
    groups = group_numbers(dataset)
    if not len(groups[1]):
        raise DataError(f"{dataset.source}: the pictures of this split have no sentence to calibrate with")
    # what counts as right is the dataset's own protocol, as in evaluation
    by_label = protocol_of(dataset.source.partition(":")[0]).match == "labels"
    labels = label_matrices(dataset) if by_label else (None, None)
    paths = [record.image for record in dataset.records]
    sentences = [sentence for record in dataset.records for sentence in record.sentences]
    images = run.encode_images(paths, progress=progress and partial(progress, "pictures"))
    # unchecked: a sentence of unknown words is a query that fails, and counts as one
    texts = run.encode_texts(sentences, check=False, progress=progress and partial(progress, "sentences"))
    results = Results(*groups, images, texts, image_labels=labels[0], sentence_labels=labels[1])
    regions = partial(run.encode_regions, paths, progress=progress and partial(progress, "regions"))
    return EncodedGallery(results, sentences, regions)


def expect_depth(run: TrainedModel, first: First) -> None:
    """Raise `SettingsError` for a number of re-ranked images that a run cannot re-rank."""
    if first != "all" and first < 0:
        raise SettingsError(f"rerank: expected at least 0 or 'all', got {first}")
    if first != 0:
        run.expect_reranker()


def _gather(
    run: TrainedModel, encoded: EncodedGallery, first: First, progress: ProgressCallback | None
) -> dict[Kind, FirstHits]:
    """First hits of the sentences among the images; the reranker's only if it scores any."""
    right = encoded.matching()
    gathered: dict[Kind, FirstHits] = {"embedding": _of_embedding(encoded.results, right)}
    if first != 0:
        gathered["reranker"] = _of_reranker(run, encoded, first, right, progress)
    return gathered


def _embeddings(
    results: Results,
) -> tuple[Float[np.ndarray, "images dim"], Float[np.ndarray, "sentences dim"]]:
    assert results.images is not None
    assert results.sentences is not None
    return results.images, results.sentences


def _of_embedding(results: Results, right: Matching) -> FirstHits:
    """By cosine, in blocks."""
    images, texts = _embeddings(results)
    parts = []
    # sentences as queries alone: a search shows probabilities for those
    similarities = of_embeddings(texts, images)
    step = max(1, _BLOCK // len(images))
    for start in range(0, len(texts), step):
        stop = min(start + step, len(texts))
        block = torch.empty(stop - start, len(images))
        similarities.write(start, stop, block)
        # a block at a time: the matrix of all matches would be as large as that of all scores
        parts.append(
            FirstHits.of(block.numpy(), right(np.arange(start, stop)), results.sentence_groups[start:stop])
        )
    return FirstHits.joined(parts)


def _of_reranker(
    run: TrainedModel,
    encoded: EncodedGallery,
    first: First,
    right: Matching,
    progress: ProgressCallback | None,
) -> FirstHits:
    """First hits of what is re-ranked, by the reranker's scores."""
    results = encoded.results
    images, texts = _embeddings(results)
    score = run.expect_reranker().pair_scorer(images, texts, encoded.regions(), encoded.sentences)
    count = len(images) if first == "all" else min(first, len(images))
    # a fixed seed, so that two fits agree; sorted, so that each group's sentences stay together
    chosen = np.sort(np.random.default_rng(0).permutation(len(texts))[: max(1, _MOST // count)])
    parts = []
    # not a bare product: equal images get equal scores here, so that ties stay ties
    similarities = of_embeddings(texts[chosen], images)
    # at least one sentence, however large the gallery
    step = max(1, min(_BLOCK // len(images), _AT_ONCE // count))
    for start in range(0, len(chosen), step):
        rows = chosen[start : start + step]
        block = torch.empty(len(rows), len(images))
        similarities.write(start, start + len(rows), block)
        items = shortlist(block, first).numpy()
        # pairs of one sentence stand together, so that the reranker encodes it once
        scores = score(items.ravel(), np.repeat(rows, count)).reshape(items.shape)
        matching = np.take_along_axis(right(rows), items, 1)
        # without the right pictures a search would re-rank others in their place; these are not scored here
        parts.append(FirstHits.of(scores, matching, results.sentence_groups[rows]))
        if progress is not None:
            progress("pairs", (start + len(rows)) * count, len(chosen) * count)
    return FirstHits.joined(parts)
