"""Approximate search against exact search, on the embeddings of real photographs: recall and time.

    python -m benchmarks.approximate STORE FORMAT:PATH [--split test]

The queries are the sentences of a split, encoded by the store's own model, so that they lie where queries of users do,
which is not where pictures lie. Times are of the search alone, one thread; the reference is exact search.
"""

import argparse
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.measuring import publish, speeds, taking_turns
from limner.data.readers import open_dataset
from limner.search.approximate import Approximate
from limner.search.snapshot import Snapshot
from limner.search.store import open_store
from limner.search.vectors import Vectors

TIMES = 20
"""Copies of the store with a little noise, for a store as large as those that need a graph."""
NOISE = 0.3
"""Length of the noise beside a unit vector."""
QUERIES, K, TURNS = 500, 10, 5
PLAIN = "exact"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("data")
    parser.add_argument("--split", default="test")
    options = parser.parse_args()
    engine = open_store(options.store, device="cpu").engine
    records = open_dataset(options.data).split(options.split).records
    sentences = [sentence for record in records for sentence in record.sentences]
    rng = np.random.default_rng(0)
    chosen = [sentences[place] for place in rng.choice(len(sentences), QUERIES, replace=False)]
    queries = engine.encoder.encode_texts(chosen)
    small = engine.files.snapshot()
    groups, recall, seconds = {}, {}, {}
    for snapshot in (small, _larger(small, rng)):
        graph = Approximate(small.matrix.shape[1])
        graph.update(snapshot)
        label = f"{len(snapshot.matrix):,} × {snapshot.matrix.shape[1]}"
        recall[label] = graph.recall(queries, K)
        own = taking_turns(
            {
                PLAIN: partial(_exactly, snapshot, queries),
                "limner": partial(_by_graph, graph, queries),
            },
            TURNS,
        )
        seconds[label] = own
        groups[label] = speeds(own, QUERIES, reference=PLAIN)
        print(f"{label}: recall@{K} {recall[label]:.4f}")
    publish(
        "approximate",
        unit="queries",
        groups=groups,
        about={"reference": PLAIN, "recall": recall, "k": K, "seconds": seconds, "repeats": TURNS},
    )


def _larger(snapshot: Snapshot, rng: np.random.Generator) -> Snapshot:
    rows = np.repeat(snapshot.matrix, TIMES, axis=0)
    noise = rng.normal(size=rows.shape).astype(np.float32)
    rows += NOISE * noise / np.linalg.norm(noise, axis=1, keepdims=True)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    larger = Snapshot(1, Vectors(rows), snapshot.columns)
    keys = [f"{number:016x}{0:016x}" for number in range(len(rows))]
    larger.__dict__["keys"] = keys
    return larger


def _exactly(snapshot: Snapshot, queries: np.ndarray) -> None:
    for query in queries:
        snapshot.vectors.first(query, K)


def _by_graph(graph: Approximate, queries: np.ndarray) -> None:
    for query in queries:
        graph.nearest(query, K)


if __name__ == "__main__":
    main()
