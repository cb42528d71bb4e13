"""Evaluate a run on a split of a dataset: encode, rank, report."""

from collections.abc import Callable, Sequence
from functools import partial
from os.path import commonpath
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int, UInt8

from limner.data.image_digests import content_fingerprint
from limner.data.records import Dataset, group_numbers, label_matrices, sentence_languages
from limner.errors import DataError
from limner.evaluation.arrays import Results
from limner.evaluation.names import AnyMeasure
from limner.evaluation.protocols import Protocol, protocol_of
from limner.evaluation.report import Report
from limner.evaluation.reranking import First, PairReranking, remembered
from limner.inference.evaluations import noted
from limner.inference.learnt_images import digests_of, expect_same_splits, learnt_from
from limner.inference.provenance import versions
from limner.inference.seen_before import seen_before, terms_of
from limner.inference.trained import TrainedModel
from limner.types import ImageSource, RegionFeatures

EncodeImages = Callable[
    [Sequence[Path], UInt8[np.ndarray, "images 16"], bool],
    tuple[Float[np.ndarray, "images dim"], RegionFeatures | None],
]
"""Embeddings of image files, by paths and digests; with their region features if the last argument is True."""


def evaluate_run(
    run: TrainedModel,
    dataset: Dataset,
    split: str,
    measures: Sequence[AnyMeasure] | None = None,
    *,
    protocol: Protocol | None = None,
    folds: int | None = None,
    rerank: First | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    keep: Callable[[Results], None] | None = None,
    encode: EncodeImages | None = None,
) -> Report:
    """Both directions over the records of one split; the gallery holds each picture once.

    `protocol` is that of the dataset's format unless another is given; `measures` and `folds` replace its own.
    A reranker orders the first of the embedding's ranking, `rerank` of them in place of the recipe's number.
    `keep` is handed the embeddings before they are ranked. `encode` gives the images' embeddings in place of the run,
    and their region features if asked for (`limner.search.cluster_embeddings`). The report carries the split's
    fingerprint, the model's, what selected the checkpoint, seed, and the versions that trained and that evaluated, and
    how many of the images the run has learnt from, by their content (`limner.inference.learnt_images`), and what its
    pretrained towers had learnt of the set, by their cards (`limner.inference.seen_before`). `progress` is
    called with what is done ("pictures compared", "pictures", "sentences", for a reranker "regions" and "pairs"), how
    many of them are, and their total. Where sentences have languages, the report has the measures of each. The run's
    folder keeps a line of it (`limner.inference.evaluations`). Raises `DataError` when the split has no sentence or
    holds images that the run was trained on or selected on (see `learnt_from`), `ImageError` for the first picture that
    cannot be read.
    """
    format_name = dataset.source.partition(":")[0]
    described = run.description
    # a dataset's own rules, since R@1 of one protocol must not be held against that of another
    protocol = protocol or protocol_of(format_name)
    _, sentence_groups = group_numbers(dataset)
    expect_same_splits(dataset, described)
    if not len(sentence_groups):
        raise DataError(
            f"{dataset.source}: the pictures of split '{split}' have no sentence to evaluate with"
        )
    first = run.rerank if rerank is None else rerank
    if first != 0:
        run.expect_reranker()  # before hours of encoding
    names = _names(dataset)
    # before the encoding, which takes hours: a protocol that does not fit must be found now
    expect_fit(dataset, protocol)
    # every file is read once more than encoding needs, and only the first time: a second evaluation knows its digest
    digests = digests_of(dataset, progress)
    learnt = learnt_from(run, dataset, digests, progress=progress)
    paths = [record.image for record in dataset.records]
    sentences = [sentence for record in dataset.records for sentence in record.sentences]
    regions = None
    if encode is None:
        images = run.encode_images(paths, progress=progress and partial(progress, "pictures"))
    else:
        images, regions = encode(paths, digests, first != 0)
    # a dataset is measured with every sentence it has, also with one that the model knows no word of
    texts = run.encode_texts(sentences, check=False, progress=progress and partial(progress, "sentences"))
    reranking = None
    if first != 0:
        reranking = reranking_of(
            run, paths, sentences, (images, texts), first, regions=regions, progress=progress
        )
    results = results_of(
        dataset,
        protocol,
        images,
        texts,
        reranking=reranking,
        image_names=names,
        sentence_names=[
            f"{name}#{number}"
            for name, record in zip(names, dataset.records, strict=True)
            for number in range(len(record.sentences))
        ],
    )
    # before the protocol forms classes or folds of them: `limner score` must be able to do both anew
    if keep is not None:
        keep(results)
    report = protocol.report(
        results,
        measures,
        folds=folds,
        split=split,
        same=dataset.group_kind,
        splits=dataset.how_drawn,
        provenance={
            "dataset": format_name,
            "edition": dataset.edition,
            "split_fingerprint": dataset.fingerprint,
            "images_fingerprint": content_fingerprint(digests),
            "splits_drawn": dataset.how_drawn,
            # None: the run does not say what it has learnt from
            "learnt_from": None if learnt is None else learnt.model_dump(),
            # by the cards of its towers: nobody has the files that they learnt from
            "seen_before": [
                line for one in seen_before(terms_of(described), dataset) if (line := one.line())
            ],
            "model_fingerprint": run.fingerprint,
            "checkpoint": run.path.name,
            "recipe": described["recipe"]["name"],
            "selected": described["selected"],
            "trained_on": described["data"],
            "seed": described["seed"],
            # bf16 moved scores by up to 0.035, so a figure is of one arithmetic
            # (docs/log/2026-11-28.md#figures-by-the-processor)
            "precision": run.precision,
            # their ends were not read, so a figure of long descriptions is one of their beginnings
            "sentences_cut": run.count_truncated(sentences),
            "reranked": first,
            # both: a figure depends on the machine that trained and on that which measures
            "trained_with": described["versions"],
            "versions": versions(),
        },
    )
    return noted(report, run.path)


def reranking_of(
    run: TrainedModel,
    paths: Sequence[ImageSource],
    sentences: Sequence[str],
    embeddings: tuple[Float[np.ndarray, "images dim"], Float[np.ndarray, "sentences dim"]],
    first: First,
    *,
    regions: RegionFeatures | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> PairReranking:
    """Re-ranking of images and sentences given by position in these.

    `embeddings` are theirs. The images' region features are held in memory, in half precision; `regions` are these, if
    they are at hand. `progress` is as `evaluate_run` has it. Raises `SettingsError` for a model without a reranker.
    """
    reranker = run.expect_reranker()
    if regions is None:
        regions = run.encode_regions(paths, progress=progress and partial(progress, "regions"))
    sides = len(paths), len(sentences)
    # of both directions, as `scorer` is called in both; what is remembered counts as done
    total = sum(
        queries * min(first if first != "all" else gallery, gallery)
        for queries, gallery in (sides, sides[::-1])
    )
    done = 0
    # both directions ask for many of the same pairs, and a pair costs a forward
    known = remembered(reranker.pair_scorer(*embeddings, regions, sentences), *sides)

    def scorer(images: Int[np.ndarray, " pairs"], texts: Int[np.ndarray, " pairs"]) -> np.ndarray:
        nonlocal done
        found = known(images, texts)
        done += len(found)
        if progress is not None:
            # classes ask for all their sentences, which may be more than the shortlists
            progress("pairs", done, max(total, done))
        return found

    return PairReranking(scorer, first, reranker.class_mean)


def _names(dataset: Dataset) -> list[str]:
    """The pictures' names below the folder that holds them all, so that no two are the same."""
    if not dataset.records:
        return []
    # file names alone repeat where a set has a folder for each class or camera
    root = Path(commonpath([record.image.parent for record in dataset.records]))
    # with "/" on every system, so that saved names and TREC runs compare
    return [record.image.relative_to(root).as_posix() for record in dataset.records]


def results_of(
    dataset: Dataset,
    protocol: Protocol,
    images: Float[np.ndarray, "images dim"],
    sentences: Float[np.ndarray, "sentences dim"],
    *,
    reranking: PairReranking | None = None,
    image_names: Sequence[str] = (),
    sentence_names: Sequence[str] = (),
) -> Results:
    """The embeddings of a split, in the order of its records, and what matches what by a protocol.

    Raises as `expect_fit`.
    """
    expect_fit(dataset, protocol)
    # only where the protocol compares labels: they may be absent, and take a matrix of images × labels
    labels = label_matrices(dataset) if protocol.match == "labels" else (None, None)
    return Results(
        *group_numbers(dataset),
        images,
        sentences,
        image_labels=labels[0],
        sentence_labels=labels[1],
        reranking=reranking,
        image_names=image_names,
        sentence_names=sentence_names,
        sentence_languages=sentence_languages(dataset),
    )


def expect_fit(dataset: Dataset, protocol: Protocol) -> None:
    """Raise `DataError` if a split cannot be evaluated by a protocol, before anything is encoded."""
    if protocol.match == "labels":
        label_matrices(dataset)
    groups = {record.group for record in dataset.records}
    if protocol.texts == "one sentence an image" and len(groups) < len(dataset):
        raise DataError(
            f"{dataset.source}: protocol '{protocol.name}' takes one sentence of each image, and here are groups of "
            "several"
        )
