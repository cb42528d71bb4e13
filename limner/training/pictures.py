"""Pictures for training: decoded in threads ahead of the network, kept small in memory where they fit."""

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from limner.data.image_digests import image_digests
from limner.data.transforms import ImageSettings, centre_crop, load, random_view
from limner.errors import DataError
from limner.inference.encoding import Encoding
from limner.types import Pixels

# 6,000 images of 256 × 341 take 1.6 GB.
KEPT_BYTES = 2 << 30
"""Resized pictures are kept in memory up to this many bytes; the rest are decoded anew each time."""

_BLOCK = 64
"""Pictures encoded at once."""

Numbers = range | Int64[np.ndarray, " batch"]

Item = TypeVar("Item")
Made = TypeVar("Made")


class Pictures:
    """The pictures of a split, by number.

    `load` resizes; crops and flips are drawn per visit. A picture that cannot be read raises `ImageError`.
    """

    def __init__(self, paths: Sequence[Path], settings: ImageSettings) -> None:
        self.paths = tuple(paths)
        self.settings = settings
        self._digests: UInt8[np.ndarray, "images 16"] | None = None
        self._kept: dict[int, Pixels] = {}
        self._room = KEPT_BYTES
        self._counting = Lock()

    def __len__(self) -> int:
        return len(self.paths)

    def digests(self, report: Callable[[int, int], None] | None = None) -> UInt8[np.ndarray, "images 16"]:
        """Digests of the files' content, read once. Raises `ImageError` for a file that cannot be read."""
        # Once, and asked for before any image is decoded: what `expect_unchanged` finds the same at the end was the
        # same all the time.
        if self._digests is None:
            self._digests = image_digests(self.paths, progress=report)
        return self._digests

    def expect_unchanged(self) -> None:
        """Raise `DataError` if a file's content is no longer what `digests` gave."""
        changed = np.flatnonzero((image_digests(self.paths) != self.digests()).any(axis=1))
        if len(changed):
            raise DataError(
                f"{self.paths[changed[0]]}: was changed since training began, {len(changed)} pictures in all; train "
                "again when nothing writes to them"
            )

    def resized(self, number: int) -> Pixels:
        """Picture `number` before cropping."""
        # Without the lock: `dict.get` is atomic, and at worst two threads decode the same image.
        kept = self._kept.get(number)
        if kept is None:
            kept = load(self.paths[number], self.settings)
            with self._counting:
                # Asked again under the lock, so that an image that two threads decoded is counted once.
                if number not in self._kept and kept.nbytes <= self._room:
                    self._kept[number] = kept
                    self._room -= kept.nbytes
        return kept

    def forget(self) -> None:
        """Release the memory of the cached images."""
        with self._counting:
            self._kept.clear()
            self._room = KEPT_BYTES

    def centred(self, numbers: Numbers) -> UInt8[np.ndarray, "batch height width 3"]:
        """Centre crops, stacked."""
        # A crop copies, so what is kept is never handed out to be changed.
        return np.stack([centre_crop(self.resized(int(number)), self.settings) for number in numbers])

    def random(self, numbers: Numbers, *where: int) -> UInt8[np.ndarray, "batch height width 3"]:
        """Random crops and flips, stacked; each picture has its own generator, seeded by `where` and its number."""
        # A generator an image: crops do not depend on which thread draws first, nor on how a batch is cut into
        # shares.
        views = [
            random_view(
                self.resized(int(number)), self.settings, np.random.default_rng([*where, int(number)])
            )
            for number in numbers
        ]
        return np.stack(views)


def ahead(
    items: Iterable[Item],
    make: Callable[[Item], Made],
    *,
    threads: int | None = None,
    depth: int | None = None,
) -> Iterator[Made]:
    """`make(item)` of each item in order, up to `depth` computed ahead in threads; one a core by default, 16 at most.

    Decoding releases the interpreter lock, so it overlaps with the network. An error surfaces at its item's turn.
    """
    source = iter(items)
    # Two at least: one that waits for a disk must not leave the network without a batch.
    threads = threads or min(16, max(2, os.cpu_count() or 1))
    depth = depth or threads + 2
    with ThreadPoolExecutor(threads) as pool:
        # `islice` reads from the one iterator without taking more than it needs.
        waiting: deque[Future[Made]] = deque(
            pool.submit(make, item) for item in itertools.islice(source, depth)
        )
        try:
            while waiting:
                made = waiting.popleft().result()
                # In the consumer's thread and in order, so that an iterator with a random generator inside draws as
                # without threads. `next(source)` would turn its end into RuntimeError inside a generator (PEP 479).
                for item in itertools.islice(source, 1):
                    waiting.append(pool.submit(make, item))
                yield made
        finally:
            # A consumer that stops early, e.g. by Ctrl-C, does not wait for what has not begun.
            for future in waiting:
                future.cancel()


def centred_blocks(pictures: Pictures) -> Iterator[UInt8[np.ndarray, "batch height width 3"]]:
    """Centre crops of all pictures of a split in order, decoded in threads ahead of the network."""
    return ahead(
        range(0, len(pictures), _BLOCK),
        lambda start: pictures.centred(range(start, min(start + _BLOCK, len(pictures)))),
    )


def encode_all(pictures: Pictures, encoding: Encoding) -> Float[Tensor, "images dim"]:
    """Unit embeddings of all pictures of a split."""
    return torch.cat([encoding.pixels(block) for block in centred_blocks(pictures)])
