"""Approximate search against usearch alone at the same width, and against exact search: recall and time.

    python -m benchmarks.approximate [STORE FORMAT:PATH] [--split test]

Claim: a search takes at most 1.3 times usearch's own at the width that was chosen on the store's own vectors for a
recall@10 of 0.995. With a store, the queries are the sentences of a split, encoded by the store's own model, so that
they lie where queries of users do, which is not where pictures lie; without one, rows are 100,000 × 512 in clusters,
and queries lie near them. Times are of the search alone.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.exact_search import noisy, rows_of
from benchmarks.measuring import paired, publish_pairs, sized
from limner.data.readers import open_dataset
from limner.search.graph import Graph
from limner.search.store import open_store
from limner.store.columns import Columns
from limner.store.snapshot import Snapshot
from limner.store.vectors import Vectors

ROWS = sized(100_000, 5_000)
TIMES = 20
"""Copies of the store with a little noise, for a store as large as those that need a graph."""
QUERIES, K, TURNS = 500, 10, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store", type=Path, nargs="?")
    parser.add_argument("data", nargs="?")
    parser.add_argument("--split", default="test")
    parser.add_argument("--rows", type=int, default=ROWS, help="without a store")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    groups, recall, widths = {}, {}, {}
    for matrix, queries in _given(options, rng):
        snapshot = _snapshot(matrix)
        graph = Graph(matrix.shape[1])
        graph.update(snapshot)
        snapshot.vectors.prepare()
        label = f"{len(matrix):,} × {matrix.shape[1]}"
        recall[label] = graph.recall(queries, K)
        widths[label] = [one.model_dump() for one in graph.tried]
        groups[label] = _times(graph, snapshot, queries)
        print(f"{label}: width {graph.tried[-1].width}, recall@{K} {recall[label]:.4f}")
    publish_pairs(
        "approximate",
        groups=groups,
        about={
            "recall": recall,
            "widths": widths,
            "k": K,
            "queries": QUERIES,
            "turns": TURNS,
        },
    )


def _given(options: argparse.Namespace, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    if options.store is None:
        matrix = rows_of(None, options.rows, rng)
        yield matrix, noisy(matrix[rng.choice(len(matrix), QUERIES, replace=False)], rng)
        return
    engine = open_store(options.store, device="cpu").engine
    records = open_dataset(options.data).split(options.split).records
    sentences = [sentence for record in records for sentence in record.sentences]
    chosen = [sentences[place] for place in rng.choice(len(sentences), QUERIES, replace=False)]
    queries = engine.encoder.encode_texts(chosen)
    small = engine.files.snapshot().matrix
    yield small, queries
    yield rows_of(small, TIMES * len(small), rng), queries


def _snapshot(matrix: np.ndarray) -> Snapshot:
    snapshot = Snapshot(Vectors(matrix), Columns.of(()))
    snapshot.__dict__["keys"] = [f"{number:016x}{0:016x}" for number in range(len(matrix))]
    return snapshot


def _times(graph: Graph, snapshot: Snapshot, queries: np.ndarray) -> dict[str, dict[str, float]]:
    return paired(
        {
            "usearch": lambda: [graph._graph.search(query, K) for query in queries],
            "limner": lambda: [graph.nearest(query, K) for query in queries],
            "exact": lambda: [snapshot.vectors.first(query, K) for query in queries],
        },
        TURNS,
    )


if __name__ == "__main__":
    main()
