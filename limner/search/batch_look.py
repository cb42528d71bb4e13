"""Look at a list of images and encode those that are new: the work of one batch, which a worker elsewhere can do.

A list goes out and rows come back: paths, facts, embeddings, region features and thumbnails, but no pixels.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from limner.search.image_look import Seen, Task, look_at
from limner.types import Encoder, RegionFeatures


@dataclass(frozen=True, eq=False)
class EncodedBatch:
    """A batch of images with all that is written of them; `region_features` if the store keeps them."""

    seen: Sequence[Seen]
    vectors: Float[np.ndarray, "images dim"]
    region_features: RegionFeatures | None


@dataclass(frozen=True, eq=False)
class Looked:
    """The answer to a list of tasks, each of which is in one of the three.

    - `skipped`: paths that cannot be read, with the reason.
    - `settled`: images whose stored vector is still right.
    - `batch`: the others, encoded; None without any.
    """

    skipped: list[tuple[str, str]]
    settled: list[Seen]
    batch: EncodedBatch | None

    def __len__(self) -> int:
        seen = [*self.settled, *(() if self.batch is None else self.batch.seen)]
        return len(self.skipped) + sum(len(one.entry.places) for one in seen)


# a protocol: `limner.search.cluster` has them by an extra, and tests by threads
@runtime_checkable
class Workers(Protocol):
    """Workers that do `looked_at` elsewhere."""

    def looks(self, lists: Iterable[Sequence[Task]]) -> Iterator[Looked]:
        """Yield the answer to each list once, in any order; a list is taken when a worker is free for it."""


def encode_batch(encoder: Encoder, seen: Sequence[Seen], *, regions: bool) -> EncodedBatch:
    """Encode images that were decoded, with region features if asked for; the answer holds no pixels."""
    pixels = np.stack([image.pixels for image in seen if image.pixels is not None])
    reranker = encoder.reranker if regions else None
    return EncodedBatch(
        [replace(image, pixels=None) for image in seen],
        encoder.encode_pixels(pixels),
        None if reranker is None else reranker.region_features(pixels),
    )


def looked_at(
    tasks: Sequence[Task], encoder: Encoder, threads: Executor, encoding: threading.Lock, *, regions: bool
) -> Looked:
    """Look at images in several threads, and encode the new ones while `encoding` is held, as one batch."""
    look = partial(_look, encoder)
    skipped: list[tuple[str, str]] = []
    settled: list[Seen] = []
    fresh: list[Seen] = []
    for task, seen in zip(tasks, threads.map(look, tasks), strict=True):
        if isinstance(seen, str):
            skipped += skips(task, seen)
        else:
            (settled if seen.pixels is None else fresh).append(seen)
    if not fresh:
        return Looked(skipped, settled, None)
    # one batch at a time: a second one would share the cores, or the memory of the accelerator, with it
    with encoding:
        return Looked(skipped, settled, encode_batch(encoder, fresh, regions=regions))


def skips(task: Task, reason: str) -> list[tuple[str, str]]:
    """Paths that cannot be read for one reason: copies of what is no picture are none either."""
    return [(path, reason) for path in (task.path, *(place.path for place in task.others))]


def _look(encoder: Encoder, task: Task) -> Seen | str:
    return look_at(task, encoder.prepare_image)
