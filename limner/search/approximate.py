"""Approximate search of a large store, by a graph or by lists: which of them, and a trial of what it finds."""

import statistics
import time

from limner.errors import DataError
from limner.search.graph import Graph
from limner.search.inverted_file import InvertedFile
from limner.search.proposer import RECALL, Proposer, own_queries
from limner.store.snapshot import Snapshot
from limner.store_reports import GraphRecall

_QUERIES = 200


def proposer_for(snapshot: Snapshot, recall: float = RECALL) -> Proposer:
    """Make what proposes rows of a snapshot: a graph, or lists where the vectors are too many for memory.

    Raises `SettingsError` without usearch.
    """
    # the graph would hold them once more, in half precision, and links beside them
    return InvertedFile(recall) if snapshot.vectors.on_disk else Graph(snapshot.vectors.dim, recall)


def trial(snapshot: Snapshot, recall: float = RECALL, k: int = 10) -> GraphRecall:
    """Build a graph or lists, and measure what is found and how long it takes, for up to 200 rows with noise.

    Raises `DataError` for a store without pictures.
    """
    if not len(snapshot.vectors):
        raise DataError("the store holds no pictures to search for; index some")
    proposer = proposer_for(snapshot, recall)
    began = time.perf_counter()
    proposer.update(snapshot)
    seconds = time.perf_counter() - began
    snapshot.vectors.prepare()
    queries = own_queries(snapshot.vectors, _QUERIES)
    times, exact, best = [], [], []
    for query in queries:
        began = time.perf_counter()
        proposer.nearest(query, k)
        half = time.perf_counter()
        best.append(snapshot.vectors.first(query, k))
        times.append(half - began)
        exact.append(time.perf_counter() - half)
    return GraphRecall(
        pictures=len(snapshot.vectors),
        by=proposer.name,
        seconds=seconds,
        wanted=recall,
        tried=tuple(proposer.tried),
        recall=proposer.share_found(queries, best, k),
        milliseconds=1000 * statistics.median(times),
        milliseconds_exact=1000 * statistics.median(exact),
    )
