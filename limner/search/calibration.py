"""Calibrate a run on a store's own images and sentences, from the vectors that the store holds.

What is fitted is kept in the store, for searches of it, and goes before the calibration of the run. `calibrate` does
both this and the fit on a dataset.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from limner.arguments import expect_call
from limner.data.readers import open_dataset
from limner.data.records import Dataset
from limner.errors import DataError, SettingsError
from limner.evaluation.arrays import Results
from limner.evaluation.reranking import First
from limner.inference.calibration import (
    EncodedGallery,
    ProgressCallback,
    calibrate_run,
    expect_depth,
    expect_probability,
    fit_encoded,
    write_calibration,
)
from limner.inference.calibration_file import THRESHOLD, Question, RunCalibration
from limner.inference.checkpoint import TRAINED_ON
from limner.inference.learnt_images import word_of
from limner.inference.load import load_model
from limner.inference.trained import TrainedModel
from limner.search.index_dataset import SPLIT
from limner.search.sentences import SentenceTable
from limner.search.store import Store, store_files
from limner.store.calibration import SPLIT_NAME, write_store_calibration
from limner.store.contents import region_blocks
from limner.store.files import StoreFiles
from limner.store.path import StorePath
from limner.store.snapshot import Snapshot
from limner.types import RegionFeatures

# the model has learnt the ones by heart, and the figures of the others would then say nothing
_NOT_FITTED_ON = ("train", "test")
"""Splits whose sentences take no part."""

# the fit has three parameters and gains little from more; their products with 100,000 images take half a minute
_MOST = 20_000
"""Sentences that take part; of more they are drawn at random."""

_BLOCK = 256
"""Number of images whose region features are read at once."""


@dataclass(frozen=True)
class StoreCalibration:
    """A calibration for searches of a store."""

    calibration: RunCalibration
    left_out: int
    """Sentences that took no part, because their images are of the training or the test split or were trained on."""


def calibrate_store(
    run: TrainedModel,
    store: StoreFiles,
    *,
    threshold: float = THRESHOLD,
    rerank: First | None = None,
    question: Question = "described",
    progress: ProgressCallback | None = None,
) -> StoreCalibration:
    """Fit the probabilities of a run's scores on a store's images, searched by the sentences that describe them.

    Each sentence searches all images of the store. Right are those of the same identity as the image that it describes;
    for an image without identity, itself alone. With `question` "fits" those are right, too, that the sentence fits by
    the others (`limner.evaluation.fits`), and images without a sentence take no part. Nothing is encoded: vectors and
    region features are those of the store. Where the metadata `split` of an image is "train" or "test", as
    `limner index --data` writes it, or the run was trained on a file with the same content, its sentences take no part.
    A reranker scores the first of the embedding's ranking if the store keeps region features, `rerank` of them in place
    of the recipe's number.

    Raises `StoreError` for another model's store, `DataError` for a store without such sentences, and what
    `limner.inference.calibration.calibrate_run` raises for what cannot be fitted.
    """
    expect_probability(threshold)
    store.check_model(run.fingerprint, run.dim)
    first = run.rerank if rerank is None else rerank
    # without region features the embedding alone ranks, in a search too; a number that was asked for is refused below
    if rerank is None and store.region_shape is None:
        first = 0
    expect_depth(run, first)
    snapshot = store.snapshot()
    sentences, vectors = SentenceTable(store).describing()
    rows = {one.path: row for one in sentences if (row := snapshot.row_at(one.path)) is not None}
    # a sentence may be there before its image
    present = [place for place, one in enumerate(sentences) if one.path in rows]
    if not present:
        raise DataError(
            f"{store.folder}: holds no sentence of its pictures to calibrate with; index them with `limner index "
            "--data`, or add some with `limner index-sentences`"
        )
    unseen = _unseen(run, snapshot)
    kept = np.array([place for place in present if unseen[rows[sentences[place].path]]], np.int64)
    if not len(kept):
        raise DataError(
            f"{store.folder}: all of its sentences are of the splits {' and '.join(_NOT_FITTED_ON)}, which a "
            "calibration is never fitted on, or of pictures that the run was trained on; index pictures of val with "
            "their captions, too, or use --data"
        )
    left_out = len(present) - len(kept)
    # a fixed seed, so that two fits agree; sorted, so that they stay in the order of their texts
    kept = np.sort(np.random.default_rng(0).permutation(kept)[:_MOST])
    chosen = [sentences[place] for place in kept]
    groups = _groups(snapshot)
    of_sentences = groups[[rows[one.path] for one in chosen]]
    encoded = EncodedGallery(
        Results(groups, of_sentences, snapshot.matrix, vectors[kept]),
        [one.text for one in chosen],
        lambda: _regions(store, snapshot),
    ).asking(question)
    digest = hashlib.sha256("".join([*snapshot.keys, *(one.id for one in chosen)]).encode())
    made = fit_encoded(
        run,
        encoded,
        first,
        data=str(store.folder),
        split=SPLIT_NAME,
        split_fingerprint=digest.hexdigest()[:16],
        threshold=threshold,
        progress=progress,
    )
    return StoreCalibration(made, left_out)


def calibrate(
    model: TrainedModel | str | Path,
    data: str | Dataset | None = None,
    split: str = "val",
    *,
    store: Store | StoreFiles | StorePath | str | None = None,
    threshold: float = THRESHOLD,
    rerank: First | None = None,
    question: Question = "described",
    progress: ProgressCallback | None = None,
) -> RunCalibration:
    """Fit probabilities to a run's scores and write them: `limner calibrate` as a function.

    - `model`: a loaded run, its folder or checkpoint.
    - `data`: FORMAT:PATH or a dataset, whose split is fitted on; what is found goes into the run's folder.
    - `store`: in place of `data`, a store whose pictures and sentences are fitted on; it goes into the store.
    - `threshold`, `rerank`, `question`, `progress`: see `calibrate_store`.

    Raises `SettingsError` unless one of `data` and `store` is given, and what `calibrate_store` and
    `limner.inference.calibration.calibrate_run` raise.
    """
    expect_call(progress)
    if (data is None) == (store is None):
        raise SettingsError("calibrate: expected a dataset or a store, and not both")
    how: dict[str, Any] = {
        "threshold": threshold,
        "rerank": rerank,
        "question": question,
        "progress": progress,
    }
    if store is not None:
        # before the model: a store that is not there costs no loading
        files = store_files(store)
        if not isinstance(model, TrainedModel):
            model = load_model(model, precision=files.manifest.precision)
        found = calibrate_store(model, files, **how).calibration
        write_store_calibration(files, found)
        return found
    assert data is not None
    dataset = open_dataset(data).split(split)
    run = model if isinstance(model, TrainedModel) else load_model(model)
    made = calibrate_run(run, dataset, split, **how)
    write_calibration(run.path.parent, made)
    return made


def _unseen(run: TrainedModel, snapshot: Snapshot) -> list[bool]:
    """For each image, False if it is of a split that nothing is fitted on, or the run was trained on its content."""
    # A store has the digest of every file, so nothing is read: metadata may lack the split, and name another one.
    learnt = set(run.learnt[TRAINED_ON].tolist()) if TRAINED_ON in run.learnt else set()
    return [
        json.loads(one).get(SPLIT) not in _NOT_FITTED_ON and word_of(sha256) not in learnt
        for one, sha256 in zip(
            snapshot.columns.metadata, map(bytes.decode, snapshot.columns.sha256.tolist()), strict=True
        )
    ]


def _groups(snapshot: Snapshot) -> Int64[np.ndarray, " images"]:
    """Numbers of what images show: the identity, or the image itself."""
    numbers: dict[str | int, int] = {}
    return np.array(
        [
            # a row is an int, which no identity is
            numbers.setdefault(row if identity is None else identity, len(numbers))
            for row, identity in enumerate(snapshot.columns.identities)
        ],
        np.int64,
    )


def _regions(store: StoreFiles, snapshot: Snapshot) -> RegionFeatures:
    shape = store.region_shape or (0, 0, 0)
    features = np.empty((len(snapshot.keys), *shape), np.float16)
    for places, block in region_blocks(store, snapshot.keys, _BLOCK):
        features[places] = block
    return features
