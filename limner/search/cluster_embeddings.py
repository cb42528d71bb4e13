"""Embeddings of a split's pictures by the workers of a cluster: `limner evaluate --cluster`."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8

from limner.errors import DataError, ImageError
from limner.search.batch_look import Workers
from limner.search.image_look import Task
from limner.types import RegionFeatures


def cluster_embeddings(
    workers: Workers,
    paths: Sequence[Path],
    digests: UInt8[np.ndarray, "images 16"],
    *,
    batch_size: int = 64,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Float[np.ndarray, "images dim"], RegionFeatures | None]:
    """Unit embeddings, float32, of at least one picture file, with region features if the workers give them.

    `digests` are those of the files here (`limner.data.image_digests`): by them it is told what a run has learnt from,
    so a worker must have read the same bytes. Lists of `batch_size` pictures go out in order, which are the batches
    that one process encodes. `progress` is called with the pictures done and their total. Raises `ImageError` for a
    picture that cannot be read, `DataError` for another file on a worker, and what the workers raise.
    """
    # absolute: workers have another working directory. abspath, since resolve() would follow links
    names = [os.path.abspath(path) for path in paths]  # noqa: PTH100
    # once each: answers come by path and in any order
    rows = {name: row for row, name in enumerate(dict.fromkeys(names))}
    tasks = [Task(name) for name in rows]
    expected = {name: digest.tobytes() for name, digest in zip(names, digests, strict=True)}
    vectors: np.ndarray | None = None
    regions: np.ndarray | None = None
    done = 0
    for looked in workers.looks(
        tasks[start : start + batch_size] for start in range(0, len(tasks), batch_size)
    ):
        for path, reason in looked.skipped:
            raise ImageError(f"{path}: {reason}")
        assert looked.batch is not None
        at = []
        for seen in looked.batch.seen:
            path = seen.entry.path
            if bytes.fromhex(seen.entry.sha256)[: len(expected[path])] != expected[path]:
                raise DataError(
                    f"{path}: a worker of the cluster has read another file than lies here; give all machines the same "
                    "pictures"
                )
            at.append(rows[path])
        vectors = _put(vectors, looked.batch.vectors, at, len(tasks))
        if looked.batch.region_features is not None:
            regions = _put(regions, looked.batch.region_features, at, len(tasks))
        done += len(at)
        if progress is not None:
            progress(done, len(tasks))
    assert vectors is not None
    order = [rows[name] for name in names]
    return vectors[order], None if regions is None else regions[order]


def _put(whole: np.ndarray | None, part: np.ndarray, at: list[int], count: int) -> np.ndarray:
    if whole is None:
        whole = np.empty((count, *part.shape[1:]), part.dtype)
    whole[at] = part
    return whole
