"""Approximate search of a large store, by a graph or by lists: which of them, and a trial of what it finds."""

import statistics
import time

import numpy as np
from jaxtyping import Float, Int

from limner.errors import DataError
from limner.requests import SearchRequest
from limner.search.graph import Graph
from limner.search.inverted_file import InvertedFile
from limner.search.proposer import RECALL, Proposer, own_queries
from limner.store.snapshot import Snapshot
from limner.store.vectors import Found
from limner.store_reports import GraphRecall

_QUERIES = 200


def proposer_for(snapshot: Snapshot, recall: float = RECALL) -> Proposer:
    """Make what proposes rows of a snapshot: a graph, or lists where the vectors are too many for memory.

    Raises `SettingsError` without usearch.
    """
    # the graph would hold them once more, in half precision, and links beside them
    return InvertedFile(recall) if snapshot.vectors.on_disk else Graph(snapshot.vectors.dim, recall)


class Approximate:
    """The graph or the lists of a store of at least `smallest` images, made when it is first needed; None = never."""

    def __init__(self, dim: int, smallest: int | None) -> None:
        self.smallest = smallest
        # now, so that a missing usearch is told before the first query
        self.proposer: Proposer | None = None if smallest is None else Graph(dim)

    def release(self) -> None:
        """Let go of the graph or the lists, also while they are made; `of` makes them anew."""
        proposer, self.proposer = self.proposer, None
        if proposer is not None:
            proposer.stop()

    def of(self, snapshot: Snapshot) -> Proposer | None:
        """Return the graph or lists for a snapshot; None for a store that is searched exactly."""
        # a small one lets go of what it held, which may have been deleted; and a store may grow beyond memory
        if self.smallest is None or len(snapshot.vectors) < self.smallest:
            self.proposer = None
        elif self.proposer is None or isinstance(self.proposer, InvertedFile) != snapshot.vectors.on_disk:
            self.proposer = proposer_for(snapshot)
        return self.proposer

    def answers(self, query: SearchRequest, matching: int, snapshot: Snapshot) -> bool:
        """True if a graph or lists answer: in a large store, without groups, which need all scores."""
        proposer = self.of(snapshot)
        # asked for more rows they may find one that was missed among fewer: parts would not fit together
        if proposer is None or query.group is not None or query.offset is not None:
            return False
        if proposer.takes_conditions:
            return True
        # the graph would have to be asked for as many more images as were marked, which nobody has measured
        if query.is_marked:
            return False
        # by the rows, not by the conditions: one that every image meets leaves the graph its place
        return matching + (query.like is not None) == len(snapshot.vectors)

    def proposed(
        self,
        vector: Float[np.ndarray, " dim"],
        snapshot: Snapshot,
        count: int,
        rows: Int[np.ndarray, " matching"],
        like: str | None,
    ) -> Found | None:
        """Find rows by a graph or lists, without the image of `like`; None while they are built."""
        if (proposer := self.of(snapshot)) is None:
            return None
        if len(rows) + (like is not None) < len(snapshot.vectors):
            return proposer.proposed(snapshot, vector, count, rows)
        proposed = proposer.proposed(snapshot, vector, count + (like is not None))
        if proposed is None or like is None:
            return proposed
        found, scores = proposed
        others = found != snapshot.expect_row(like)
        return found[others], scores[others]


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
