"""Exact search in memory against the bare product of all rows: one query, and 64 together.

    python -m benchmarks.exact_search [--rows 100000 1000000] [--vectors VECTORS.npy]

Claims: one query takes at most 0.35 times `matrix @ query` in float32, 64 together at most as long as
`matrix @ queries.T`. The reference only multiplies; ours returns the first ten, in order, and before it is timed each
of its answers is compared with a sort of all scores. The rows lie in 500 clusters; `--vectors` takes embeddings of your
own, float32 at unit length, repeated with a little noise where they are fewer.
"""

import argparse
import itertools
from pathlib import Path

import numpy as np

from benchmarks.measuring import paired, publish_pairs, sized
from limner.store.vectors import Vectors, top

DIM, CLUSTERS, ASKED, K, TURNS = 512, 500, 64, 10, 15
NOISE = 0.3
"""Length of the noise beside a unit vector: what makes copies and queries."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[sized(100_000, 20_000)])
    parser.add_argument("--vectors", type=Path, help="embeddings of your own, a .npy file")
    parser.add_argument("--name", default="exact_search", help="of the file of results")
    options = parser.parse_args()
    own = None if options.vectors is None else np.load(options.vectors).astype(np.float32)
    rng = np.random.default_rng(0)
    groups: dict[str, dict[str, dict[str, float]]] = {}
    memory, near = {}, {}
    for count in options.rows:
        matrix = rows_of(own, count, rng)
        queries = noisy(matrix[rng.choice(count, ASKED, replace=False)], rng)
        vectors = Vectors(matrix)
        vectors.prepare()
        check(vectors, queries)
        label = f"{count:,} × {matrix.shape[1]}"
        codes = vectors._codes
        assert codes is not None
        memory[label] = {
            "vectors": matrix.nbytes,
            "codes": sum(part.nbytes for part in vars(codes).values()),
        }
        near[label] = float(np.median([len(_near(vectors, query)) for query in queries]))
        groups |= times(vectors, queries, label)
    publish_pairs(
        options.name,
        groups=groups,
        about={
            "k": K,
            "turns": TURNS,
            "bytes": memory,
            "scored exactly": near,
        },
    )


def times(vectors: Vectors, queries: np.ndarray, label: str) -> dict[str, dict[str, dict[str, float]]]:
    """Time one query and all of them beside the product."""
    # another query each time: the rows that it needs are not in the cache
    turn = itertools.cycle(queries)
    return {
        f"{label}, one query": paired(
            {
                "product": lambda: vectors.matrix @ next(turn),
                "limner": lambda: vectors.first(next(turn), K),
            },
            TURNS,
        ),
        f"{label}, {ASKED} queries": paired(
            {
                "product": lambda: vectors.matrix @ queries.T,
                "limner": lambda: vectors.first_of_each(queries, K),
                "one after the other": lambda: [vectors.first(query, K) for query in queries],
            },
            TURNS,
        ),
    }


def _near(vectors: Vectors, query: np.ndarray) -> np.ndarray:
    rows = vectors._near(query, K, None)
    assert rows is not None
    return rows


def rows_of(own: np.ndarray | None, count: int, rng: np.random.Generator) -> np.ndarray:
    """So many rows at unit length: in clusters, or embeddings and copies of them with noise."""
    if own is None:
        centres = rng.normal(size=(CLUSTERS, DIM)).astype(np.float32)
        own = centres / np.linalg.norm(centres, axis=1, keepdims=True)
        return noisy(own[rng.integers(0, CLUSTERS, count)], rng, 1.0)
    rows = np.resize(own, (count, own.shape[1]))
    rows[len(own) :] = noisy(rows[len(own) :], rng)
    return rows


def noisy(rows: np.ndarray, rng: np.random.Generator, length: float = NOISE) -> np.ndarray:
    """The rows with noise of a length, at unit length again."""
    moved = np.empty_like(rows)
    # in blocks: a million rows of float64 would be 4 GB
    for start in range(0, len(rows), 8192):
        noise = rng.normal(size=rows[start : start + 8192].shape).astype(np.float32)
        noise *= length / np.linalg.norm(noise, axis=1, keepdims=True)
        block = rows[start : start + 8192] + noise
        moved[start : start + 8192] = block / np.linalg.norm(block, axis=1, keepdims=True)
    return moved


def check(vectors: Vectors, queries: np.ndarray) -> None:
    """Compare with a sort of all scores."""
    for query, several in zip(queries, vectors.first_of_each(queries, K), strict=True):
        scores = vectors.scores(query)
        best = top(scores, K)
        for rows, found in (vectors.first(query, K), several):
            assert rows.tolist() == best.tolist()
            assert found.tolist() == scores[best].tolist()


if __name__ == "__main__":
    main()
