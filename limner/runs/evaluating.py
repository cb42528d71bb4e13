"""Evaluate a run on a split of a dataset: encode, rank, report."""

from collections.abc import Callable, Sequence
from functools import partial

from limner.data.records import Dataset, group_numbers
from limner.errors import DataError
from limner.evaluation.arrays import Results
from limner.evaluation.measures import STANDARD
from limner.evaluation.report import Report
from limner.evaluation.tally import AnyMeasure
from limner.runs.run import Run


def evaluate_run(
    run: Run,
    dataset: Dataset,
    split: str,
    measures: Sequence[AnyMeasure] = STANDARD,
    *,
    folds: int = 1,
    progress: Callable[[str, int, int], None] | None = None,
    keep: Callable[[Results], None] | None = None,
) -> Report:
    """Both directions over the records of one split; the gallery holds each picture once.

    `folds` as in `evaluate`; `keep` is handed the embeddings before they are ranked. The report carries the split's
    fingerprint, the model's, what selected the checkpoint, seed and versions. `progress` is called with what is
    encoded ("pictures", then "sentences"), how many of them are done and their total. Raises `DataError` when the
    split has no sentence, `ImageError` for the first picture that cannot be read.
    """
    image_groups, sentence_groups = group_numbers(dataset)
    if not len(sentence_groups):
        raise DataError(
            f"{dataset.source}: the pictures of split '{split}' have no sentence to evaluate with"
        )
    images = run.encode_images(
        [record.image for record in dataset.records], progress=progress and partial(progress, "pictures")
    )
    texts = run.encode_texts(
        [sentence for record in dataset.records for sentence in record.sentences],
        progress=progress and partial(progress, "sentences"),
    )
    results = Results(
        *(image_groups, sentence_groups, images, texts),
        image_names=[record.image.name for record in dataset.records],
        sentence_names=[
            f"{record.image.name}#{number}"
            for record in dataset.records
            for number in range(len(record.sentences))
        ],
    )
    if keep is not None:
        keep(results)
    described = run.description
    return results.report(
        measures,
        folds=folds,
        protocol=f"{dataset.source.partition(':')[0]}, same {dataset.group_kind}",
        split=split,
        provenance={
            "split_fingerprint": dataset.fingerprint,
            "model_fingerprint": run.fingerprint,
            "checkpoint": run.path.name,
            "recipe": described["recipe"]["name"],
            "selected": described["selected"],
            "trained_on": described["data"],
            "seed": described["seed"],
            "precision": run.encoding.precision,
            "versions": described["versions"],
        },
    )
