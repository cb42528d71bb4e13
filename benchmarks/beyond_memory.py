"""Vectors on disk: searches by lists of codes, with conditions, against exact search, and the memory.

    python -m benchmarks.beyond_memory [--rows 5000000] [--clusters 500] [--store FOLDER]

Rows of 512 are drawn in clusters, each as far from its centre as the centre is long; queries lie as far from rows. Each
picture has a camera of 10, a day of 100 and an hour of 1,000, drawn at random. The rows are drawn into the file from
which a store of that size is searched; with --store they are read from a store, which is written first if it is not
there. Claim: of 5 million, recall@10 ≥ 0.99 and a median of at most 30 ms for each condition, from query to answer.
Memory is the process's own (anonymous); what the system keeps of the file comes on top where there is room.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from limner.search.table import ROW

from benchmarks.exact_search import noisy
from benchmarks.measuring import sized, write
from limner.search.engine import Engine
from limner.search.foreign_vectors import ForeignModel
from limner.search.query_vectors import PreparedRequest
from limner.store import scratch
from limner.store.entry import StoredImage
from limner.store.files import StoreFiles
from limner.store.snapshot import Snapshot
from limner.store.vectors import Vectors

DIM, AT_ONCE = 512, 50_000
QUERIES, COMPARED, K = sized(200, 20), sized(50, 20), 10
MODEL = ForeignModel("drawn", DIM)
CONDITIONS: dict[str, tuple[str, ...]] = {
    "all": (),
    "half": ("camera=0|1|2|3|4",),
    "a tenth": ("camera=3",),
    "a hundredth": ("day=31",),
    "a thousandth": ("hour=310",),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=sized(5_000_000, 30_000))
    parser.add_argument("--clusters", type=int, default=500)
    parser.add_argument("--store", type=Path)
    options = parser.parse_args()
    # a short run has fewer bytes
    scratch.ON_DISK_FROM = sized(scratch.ON_DISK_FROM, 1)
    with tempfile.TemporaryDirectory() as folder:
        if options.store is None:
            files = StoreFiles.create(
                Path(folder) / "empty", fingerprint=MODEL.fingerprint, dim=DIM, run="drawn"
            )
            snapshot = drawn(options.rows, options.clusters)
            files.snapshot = lambda: snapshot  # type: ignore[method-assign]
        else:
            if not options.store.exists():
                write_store(options.store, options.rows, options.clusters)
            files = StoreFiles.open(options.store)
        measure(files, options.clusters)


def _blocks(rows: int, clusters: int) -> Iterator[tuple[range, np.ndarray, tuple[np.ndarray, ...]]]:
    """Numbers of rows, their vectors, and their cameras, days and hours."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(clusters, DIM)).astype(np.float32)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    for start in range(0, rows, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, rows))
        vectors = noisy(centres[rng.integers(0, clusters, len(numbers))], rng, 1.0)
        yield numbers, vectors, tuple(rng.integers(0, most, len(numbers)) for most in (10, 100, 1000))


def drawn(rows: int, clusters: int) -> Snapshot:
    """Draw what a store of these rows would be read into."""
    matrix = scratch.scratch_matrix(rows, DIM)
    parts = []
    for numbers, vectors, facts in _blocks(rows, clusters):
        matrix[numbers.start : numbers.stop] = vectors
        names = [f"{number:064x}" for number in numbers]
        nothing = pa.nulls(len(numbers))
        texts = [
            f'{{"camera": {camera}, "day": {day}, "hour": {hour}}}'
            for camera, day, hour in zip(*facts, strict=True)
        ]
        values = {
            "id": pa.array(names),
            "path": pa.array([f"/pictures/{number:08d}.jpg" for number in numbers]),
            "sha256": pa.array(names),
            "size": pa.array(np.ones(len(numbers), np.int64)),
            "mtime": pa.array(np.ones(len(numbers), np.int64)),
            "taken": nothing.cast(pa.timestamp("us")),
            "identity": nothing.cast(pa.string()),
            "metadata": pa.array(texts),
            ROW: pa.array(np.array(numbers), pa.uint64()),
        }
        parts.append(pa.table(values))
    # as a store's are: taking rows of many chunks would copy all of them
    columns = pa.concat_tables(parts).combine_chunks()
    return Snapshot(1, Vectors(matrix, on_disk=True), columns)


def write_store(store: Path, rows: int, clusters: int) -> None:
    """Write a store of such rows."""
    files = StoreFiles.create(store, fingerprint=MODEL.fingerprint, dim=DIM, run="drawn")
    began = time.perf_counter()
    for numbers, vectors, facts in _blocks(rows, clusters):
        files.add(
            [
                StoredImage(
                    f"/pictures/{number:08d}.jpg",
                    f"{number:064x}",
                    1,
                    1,
                    metadata={"camera": camera, "day": day, "hour": hour},
                )
                for number, camera, day, hour in zip(
                    numbers, *(values.tolist() for values in facts), strict=True
                )
            ],
            vectors,
        )
        rate = numbers.stop / (time.perf_counter() - began)
        print(f"{numbers.stop:,} rows written, {rate:,.0f} a second", flush=True)


def measure(files: StoreFiles, clusters: int) -> None:
    """Search it, and publish."""
    seconds: dict[str, float] = {}
    memory: dict[str, float] = {}
    snapshot = files.snapshot()
    memory["read"] = anonymous()
    engine = Engine(files, MODEL, approximate_from=1)
    began = time.perf_counter()
    engine.prepare()
    assert engine.approximate.proposer is not None
    engine.approximate.proposer.wait()
    seconds["lists"] = time.perf_counter() - began
    memory["lists"] = anonymous()
    print(seconds, memory, engine.approximate.proposer.tried, flush=True)

    rng = np.random.default_rng(1)
    chosen = np.sort(rng.choice(len(snapshot.vectors), QUERIES, replace=False))
    queries = noisy(snapshot.vectors[chosen], rng, 1.0)
    exact = Engine(files, MODEL)
    searches: dict[str, Any] = {}
    for name, texts in CONDITIONS.items():
        where = tuple(texts)
        began = time.perf_counter()
        # its values are indexed and its rows found once
        matching = engine.answer(PreparedRequest(vector=queries[0], where=where)).matching
        first = time.perf_counter() - began
        times, times_exact, shares = [], [], []
        for number, query in enumerate(queries):
            asked = PreparedRequest(vector=query, k=K, where=where)
            began = time.perf_counter()
            found = engine.answer(asked)
            times.append(1000 * (time.perf_counter() - began))
            if number < COMPARED:
                began = time.perf_counter()
                best = exact.answer(asked)
                times_exact.append(1000 * (time.perf_counter() - began))
                least = best.hits[-1].score
                shares.append(sum(hit.score >= least for hit in found.hits) / len(best.hits))
        searches[name] = {
            "matching": matching,
            "recall": statistics.mean(shares),
            "ms": statistics.median(times),
            "ms_95": float(np.quantile(times, 0.95)),
            "ms_exact": statistics.median(times_exact),
            "ms_first": 1000 * first,
        }
        print(name, {key: round(value, 4) for key, value in searches[name].items()}, flush=True)
    memory["searches"] = anonymous()
    write(
        "beyond_memory",
        {
            "reference": "exact search of the same rows",
            "rows": len(snapshot.vectors),
            "dim": DIM,
            "clusters": clusters,
            "queries": QUERIES,
            "compared": COMPARED,
            "seconds": seconds,
            "memory_gb": {**memory, "vectors": 4 * DIM * len(snapshot.vectors) / 1e9},
            "found": [one.model_dump() for one in engine.approximate.proposer.tried],
            "searches": searches,
        },
    )


def anonymous() -> float:
    """GB of this process that are of no file."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024 / 1e9
    return float("nan")


if __name__ == "__main__":
    main()
