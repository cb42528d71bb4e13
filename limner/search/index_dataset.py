"""Index a dataset into a store: its images with their identities and metadata, and its sentences.

It leaves the store as `index_pictures` with the same facts does, followed by `SentenceTable.index`.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from limner.data.readers.folder import SPLIT_SEED
from limner.data.records import Dataset, Record
from limner.data.splits import assign_splits, split_source
from limner.errors import DataError
from limner.search.batch_look import Workers
from limner.search.index import index_files
from limner.search.sentences import Sentence, SentenceTable
from limner.store.files import StoreFiles
from limner.store_reports import IndexReport
from limner.types import Encoder

SPLIT = "split"
"""Name of the metadata that hold an image's split."""


def index_dataset(
    encoder: Encoder,
    store: StoreFiles,
    dataset: Dataset,
    *,
    split: str | None = None,
    batch_size: int = 64,
    workers: int | None = None,
    cluster: Workers | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> IndexReport:
    """Add the records of a dataset, or of one of its splits, to a store of the same model.

    An identity becomes the store's identity, `metadata` of a record and its labels become metadata, and so does its
    split (see `_tells_split`). Sentences of images that cannot be read are left out, and follow when a later call can
    read the image. A `cluster` looks at the images, as in `index_pictures`; sentences are encoded here. `progress` is
    called with "pictures" or "sentences", how many are done, and their total.

    Raises `DataError` if no image file of the records exists, for a split without records and for metadata called
    "path"; else what `limner.search.index.index_pictures` raises. Images that cannot be read are skipped and listed.
    """
    chosen = dataset if split is None else dataset.split(split)
    with_split = _tells_split(encoder, dataset)
    # as pictures are indexed: resolve() would follow links
    paths = [os.path.abspath(record.image) for record in chosen.records]  # noqa: PTH100
    facts = {
        path: _facts(chosen, record, with_split) for path, record in zip(paths, chosen.records, strict=True)
    }
    # for both tables: no other writer between a picture and its sentences
    with store.writing():
        report = index_files(
            encoder,
            store,
            facts,
            missing="there is no such file",
            batch_size=batch_size,
            workers=workers,
            cluster=cluster,
            progress=progress and partial(progress, "pictures"),
        )
        # a wrong folder, which a list of every record would not say
        if len(report.skipped) == len(facts):
            path, reason = report.skipped[0] if report.skipped else ("nothing", "it is empty")
            raise DataError(
                f"{dataset.source}: none of its {len(facts)} pictures can be read, e.g. {path} ({reason}); look at it "
                "with `limner data check`"
            )
        stored = store.entries()
        # an image that was skipped may be stored from an earlier call, and then keeps its sentences
        sentences = [
            Sentence(text, path)
            for path, record in zip(paths, chosen.records, strict=True)
            if path in stored
            for text in record.sentences
        ]
        told = SentenceTable(store).index(
            encoder, sentences, progress=progress and partial(progress, "sentences")
        )
    return report.model_copy(update={"sentences": told})


def _facts(dataset: Dataset, record: Record, with_split: bool) -> dict[str, Any]:
    """The facts of a record, as `limner.search.metadata` reads them from a file."""
    facts = {name: None if value == "" else value for name, value in record.metadata.items()}
    facts["labels"] = list(record.labels) or None
    if with_split and record.split is not None:
        facts[SPLIT] = record.split
    # without identities a group is the image itself, which the store knows by its path
    if dataset.group_kind == "identity":
        facts["identity"] = record.group
    return facts


def _tells_split(encoder: Encoder, dataset: Dataset) -> bool:
    """True if the records' splits say something: they are the dataset's own, or the model was trained on them.

    A folder without splits gets some by a hash of its names. They would be one more filter on the page, which nobody
    has asked for; but `limner calibrate --store` must know which images the model has learnt.
    """
    drawn = assign_splits(dataset, SPLIT_SEED).records == dataset.records or split_source(dataset.source)[1]
    if not drawn:
        return True
    # an encoder of another package may have no description, and one that was not trained here no data
    learnt = getattr(encoder, "description", {}).get("data") or {}
    # a folder that has grown since has other records, whose splits are those that training drew all the same
    if _place(dataset.source) == _place(learnt.get("source", "")):
        return True
    train = [record for record in dataset.records if record.split == "train"]
    return bool(train) and dataset.split("train").fingerprint == learnt.get("train")


def _place(source: str) -> tuple[str, str, Path]:
    """Format, drawn splits and absolute path of a source: equal for one set, however its path is written."""
    named, drawn = split_source(source)
    format_name, _, path = named.partition(":")
    return format_name, drawn, Path(path).resolve()
