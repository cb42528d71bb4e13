"""The option `--cluster` of commands: a connection, its workers, and what they encode for an evaluation."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from limner.cli.options import InferenceEngine

if TYPE_CHECKING:
    import numpy as np

    from limner.inference.evaluate_run import EncodeImages
    from limner.inference.trained import TrainedModel
    from limner.search.batch_look import Workers
    from limner.search.cluster import Cluster
    from limner.types import Encoder, RegionFeatures


@contextmanager
def connected_to(cluster: str | None) -> "Iterator[Cluster | None]":
    """Connect to the cluster that `--cluster` names; None if it was not given."""
    if cluster is None:
        yield None
        return
    from limner.search.cluster import connected

    # Ray tells of workers that died on stdout, which is for the result
    with redirect_stdout(sys.stderr), connected(cluster) as connection:
        yield connection


def workers_for(
    cluster: "Cluster | None",
    encoder: "Encoder",
    *,
    regions: bool,
    cpu: bool,
    engine: InferenceEngine = "torch",
) -> "Workers | None":
    """Start workers that have a model; None without a cluster."""
    if cluster is None:
        return None
    from limner.search.cluster import loader

    load = loader(encoder, cpu=cpu, engine=engine)
    return cluster.workers(load, encoder.fingerprint, regions=regions, cpu=cpu)


def encoded_by(
    cluster: "Cluster | None",
    run: "TrainedModel",
    *,
    cpu: bool,
    progress: Callable[[str, int, int], None],
    then: Callable[[], object] = lambda: None,
) -> "EncodeImages | None":
    """The argument `encode` of `evaluate_run`, by workers; `then` is called when all is encoded."""
    if cluster is None:
        return None
    from limner.search.cluster_embeddings import cluster_embeddings

    def encode(
        paths: Sequence[Path], digests: "np.ndarray", regions: bool
    ) -> "tuple[np.ndarray, RegionFeatures | None]":
        workers = workers_for(cluster, run, regions=regions, cpu=cpu)
        assert workers is not None
        told = partial(progress, "pictures")
        found = cluster_embeddings(workers, paths, digests, batch_size=run.batch, progress=told)
        then()
        return found

    return encode
