"""Which images a run has learnt from, by content, and how many of them a split holds.

A checkpoint keeps eight bytes of the digest of each image that trained its weights or chose their epoch: 0.9 MB for
MSCOCO's 113,287. A split is then compared wherever it lies and whatever its files are called. Compared are the files'
bytes: an image that was saved again, resized or stripped of its metadata is not found, nor is another photo of the same
scene. What published weights have seen is not at hand: `limner.inference.seen_before` goes by their cards.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int64, UInt8
from torch import Tensor

from limner.data.image_digests import image_digests
from limner.data.records import Dataset
from limner.data.splits import split_source
from limner.documented import Result
from limner.errors import DataError
from limner.inference.checkpoint import SELECTED_ON, TRAINED_ON, read_checkpoint
from limner.inference.run_file import checkpoint_path
from limner.inference.trained import TrainedModel
from limner.types import ImageSource

COMPARED = "pictures compared"
"""Name of the comparison where progress is reported."""


def words(digests: UInt8[np.ndarray, "images 16"]) -> Int64[np.ndarray, " images"]:
    """The first eight bytes of each digest as a number, as checkpoints keep it."""
    # 113,287 images against 10,000: two of different content agree once in 16 thousand million such comparisons.
    return np.ascontiguousarray(digests[:, :8]).view("<i8")[:, 0].astype(np.int64)


def word_of(sha256: str) -> int:
    """The same of one file, from the hex digits of its SHA-256."""
    return int.from_bytes(bytes.fromhex(sha256[:16]), "little", signed=True)


def learnt_tensors(
    trained_on: UInt8[np.ndarray, "train 16"],
    selected_on: UInt8[np.ndarray, "val 16"],
    started: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """The tensors by which a checkpoint names the images it has learnt from; `started` are those of the run before.

    They are sorted, so that they say nothing of the order in which images were listed.
    """
    found = {}
    for name, digests in ((TRAINED_ON, trained_on), (SELECTED_ON, selected_on)):
        # What the run before learnt is still in the weights.
        before = [started[name].numpy()] if name in started else []
        found[name] = torch.from_numpy(np.unique(np.concatenate([words(digests), *before])))
    return found


def named_by(run: Path) -> frozenset[int] | None:
    """The numbers, as of `word_of`, of the images that a run's checkpoint has learnt from; None if it does not say.

    The weights are read for the digest alone: a flipped bit of a number would hide an image. Raises `CheckpointError`,
    also for a damaged checkpoint.
    """
    found, _ = read_checkpoint(checkpoint_path(run, None), only=(TRAINED_ON, SELECTED_ON))
    if len(found) < 2:
        return None
    return frozenset(number for tensor in found.values() for number in tensor.tolist())


class LearntFrom(Result):
    """How many images of a split a run has learnt from, as a report's provenance has it."""

    images: int
    """Images of the split."""
    trained_on: int
    """How many of these trained the weights."""
    selected_on: int
    """How many of these were in the validation split that chose the epoch."""
    whole: bool = True
    """False if training started from a run that does not say what it had learnt from."""


def knows_what_it_learnt(run: TrainedModel) -> bool:
    """False for a run that does not say, or that started from one; an import learnt nothing here."""
    if TRAINED_ON in run.learnt:
        return bool(run.description.get("learnt_images", "all") == "all")
    return run.description["data"].get("train") is None


def learnt_from(
    run: TrainedModel,
    dataset: Dataset,
    digests: UInt8[np.ndarray, "images 16"] | None = None,
    *,
    fitting: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> LearntFrom | None:
    """Count the images of a split that the run has learnt from, and refuse a split that is not the set's own.

    None for a run that does not say what it has learnt from. `digests` are those of the split's images, if they are at
    hand. An image is no reason to refuse where the dataset itself has it among its training images: the training split
    itself may be measured, and a published set that holds a file twice has it in both splits for everybody. With
    `fitting` the training split is refused as well. Raises `DataError`, and `ImageError` for a training image that
    cannot be read.
    """
    if TRAINED_ON not in run.learnt:
        return None
    content = words(digests_of(dataset, progress) if digests is None else digests)
    trained = _among(content, run.learnt[TRAINED_ON].numpy())
    selected = _among(content, run.learnt[SELECTED_ON].numpy())
    names = np.array([record.split or "" for record in dataset.records])
    own = names == "train"
    # Only what is said to be other than the training split must not be in it.
    moved = trained & ~own
    chosen = selected & ~own & (names != "val")
    # The set's training images are read for this alone, so only where there is something to explain.
    if moved.any():
        moved &= ~_among(content, _content(dataset, ("train",), progress))
    if chosen.any():
        chosen &= ~_among(content, _content(dataset, ("train", "val"), progress))
    if fitting:
        moved |= trained & own
    _refuse(dataset.source, moved, chosen, lambda row: dataset.records[row].image.name)
    return LearntFrom(
        images=len(content),
        trained_on=int(trained.sum()),
        selected_on=int(selected.sum()),
        whole=knows_what_it_learnt(run),
    )


def learnt_pictures(
    run: TrainedModel,
    images: Sequence[ImageSource],
    names: Sequence[str],
    source: str,
    split: str,
    *,
    progress: Callable[[str, int, int], None] | None = None,
) -> LearntFrom | None:
    """The same for a set that is no dataset: composed queries, minimal pairs. A file of several galleries counts once.

    In the split "train" pictures are only counted, in "val" those that chose the epoch are; any other split holds none.
    Pictures that are no files and no bytes of files are left out. Raises `DataError`, and `ImageError` for a picture
    that cannot be read.
    """
    if TRAINED_ON not in run.learnt:
        return None
    files = [row for row, image in enumerate(images) if isinstance(image, str | Path)]
    known = [row for row, image in enumerate(images) if isinstance(image, bytes)]
    of_files = image_digests(
        [Path(str(images[row])) for row in files], progress=progress and partial(progress, COMPARED)
    )
    of_bytes = [word_of(hashlib.sha256(image).hexdigest()) for image in images if isinstance(image, bytes)]
    content, first = np.unique(
        np.concatenate([words(of_files), np.array(of_bytes, np.int64)]), return_index=True
    )
    trained = _among(content, run.learnt[TRAINED_ON].numpy())
    selected = _among(content, run.learnt[SELECTED_ON].numpy())
    rows = np.array(files + known, np.int64)[first]
    _refuse(
        source,
        trained & (split != "train"),
        selected & (split not in ("train", "val")),
        lambda row: names[int(rows[row])],
    )
    return LearntFrom(
        images=len(content),
        trained_on=int(trained.sum()),
        selected_on=int(selected.sum()),
        whole=knows_what_it_learnt(run),
    )


def _refuse(
    source: str,
    trained: Bool[np.ndarray, " images"],
    selected: Bool[np.ndarray, " images"],
    name_of: Callable[[int], str],
) -> None:
    for found, what in ((trained, "was trained on"), (selected, "was selected on")):
        if found.any():
            raise DataError(
                f"{source}: by their content, the run {what} {found.sum()} of these {len(found)} pictures, "
                f"e.g. {name_of(int(np.flatnonzero(found)[0]))}; take pictures that are new to it, or the splits that "
                "it was trained with"
            )


def expect_same_splits(dataset: Dataset, described: Mapping[str, Any]) -> None:
    """Refuse a set whose splits were drawn in another way than in training: some images would be in both.

    By its path, which costs nothing, holds for a run without digests, and finds images that were saved again.
    """
    (path, drawn), (trained_path, trained) = (
        split_source(source) for source in (dataset.source, described["data"]["source"])
    )
    same = path.partition(":")[0] == trained_path.partition(":")[0] and (
        # the folder that is meant: a relative path and an absolute one may be the same set
        Path(path.partition(":")[2]).resolve() == Path(trained_path.partition(":")[2]).resolve()
    )
    # another set may be evaluated with any run, which has learnt nothing of it
    if same and drawn != trained:
        raise DataError(
            f"{dataset.source}: the run was trained on {described['data']['source']}, whose splits are others; "
            "its training pictures would be among those that are ranked"
        )


def digests_of(
    dataset: Dataset, progress: Callable[[str, int, int], None] | None = None
) -> UInt8[np.ndarray, "images 16"]:
    """Digests of a split's images. Raises `ImageError` for the first that cannot be read."""
    return image_digests(
        [record.image for record in dataset.records], progress=progress and partial(progress, COMPARED)
    )


def _content(
    dataset: Dataset, splits: tuple[str, ...], progress: Callable[[str, int, int], None] | None
) -> Int64[np.ndarray, " images"]:
    paths = [path for split in splits for path in dataset.training_images.get(split, ())]
    return words(image_digests(paths, progress=progress and partial(progress, COMPARED)))


def _among(
    content: Int64[np.ndarray, " images"], others: Int64[np.ndarray, " others"]
) -> Bool[np.ndarray, " images"]:
    return np.isin(content, others)
