"""A store whose vectors are on disk: searches by lists of codes, with conditions, against exact search, and the memory.

    python -m benchmarks.beyond_memory [--rows 5000000] [--store FOLDER]

Rows of 512 are drawn in clusters, one for a thousand rows, as far from their centre as it is long; queries lie as far
from rows. They are written as a store in FOLDER, or are there from an earlier call; without FOLDER the store goes with
the process. Each picture has a camera of 10, a day of 100 and an hour of 1,000, drawn at random. Claim: of 5 million,
recall@10 ≥ 0.99 and a median of at most 30 ms for each condition, from query to answer. Memory is the process's own
(anonymous) at its peak and after it; what the system keeps of the file of vectors comes on top where there is room.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.exact_search import noisy
from benchmarks.measuring import sized, write
from limner.search import scratch
from limner.search.conditions import Condition
from limner.search.engine import Engine
from limner.search.entry import StoredImage
from limner.search.foreign_vectors import ForeignModel
from limner.search.query import Query
from limner.search.store_files import StoreFiles

DIM, IN_CLUSTER, AT_ONCE = 512, 1000, 50_000
QUERIES, COMPARED, K = sized(200, 20), sized(50, 20), 10
CONDITIONS = {
    "all": (),
    "half": ("camera=0|1|2|3|4",),
    "a tenth": ("camera=3",),
    "a hundredth": ("day=31",),
    "a thousandth": ("hour=310",),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=sized(5_000_000, 30_000))
    parser.add_argument("--store", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = options.store or Path(folder) / "store"
        model = ForeignModel("drawn", DIM)
        if not store.exists():
            draw(store, model, options.rows)
        measure(store, model)


def draw(store: Path, model: ForeignModel, rows: int) -> None:
    """Write a store of drawn rows."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(max(1, rows // IN_CLUSTER), DIM)).astype(np.float32)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    files = StoreFiles.create(store, fingerprint=model.fingerprint, dim=DIM, run="drawn")
    began = time.perf_counter()
    for start in range(0, rows, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, rows))
        vectors = noisy(centres[rng.integers(0, len(centres), len(numbers))], rng, 1.0)
        cameras, days, hours = (rng.integers(0, most, len(numbers)).tolist() for most in (10, 100, 1000))
        entries = [
            StoredImage(
                f"/pictures/{number:08d}.jpg",
                f"{number:064x}",
                1,
                1,
                metadata={"camera": camera, "day": day, "hour": hour},
            )
            for number, camera, day, hour in zip(numbers, cameras, days, hours, strict=True)
        ]
        files.add(entries, vectors)
        rate = numbers.stop / (time.perf_counter() - began)
        print(f"{numbers.stop:,} rows written, {rate:,.0f} a second", flush=True)


def measure(store: Path, model: ForeignModel) -> None:
    """Search it, and publish."""
    # a short run has fewer bytes
    scratch.ON_DISK_FROM = sized(scratch.ON_DISK_FROM, 1)
    files = StoreFiles.open(store)
    seconds: dict[str, float] = {}
    memory: dict[str, float] = {}

    began = time.perf_counter()
    snapshot = files.snapshot()
    seconds["read"] = time.perf_counter() - began
    memory["read"] = anonymous()
    engine = Engine(files, model, approximate_from=1)
    began = time.perf_counter()
    engine.prepare()
    assert engine._approximate is not None
    engine._approximate.wait()
    seconds["lists"] = time.perf_counter() - began
    memory["lists"] = anonymous()
    print(seconds, memory, engine.info().approximate, flush=True)

    rng = np.random.default_rng(1)
    queries = noisy(
        snapshot.matrix[np.sort(rng.choice(len(snapshot.matrix), QUERIES, replace=False))], rng, 1.0
    )
    exact = Engine(files, model)
    searches: dict[str, Any] = {}
    for name, texts in CONDITIONS.items():
        where = tuple(Condition.parse(text) for text in texts)
        began = time.perf_counter()
        # its values are indexed and its rows found once
        matching = engine.answer(Query(vector=queries[0], where=where)).matching
        first = time.perf_counter() - began
        times, times_exact, shares = [], [], []
        for number, query in enumerate(queries):
            asked = Query(vector=query, k=K, where=where)
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
            "reference": "exact search of the same store",
            "rows": len(snapshot.matrix),
            "dim": DIM,
            "queries": QUERIES,
            "compared": COMPARED,
            "seconds": seconds,
            "memory_gb": {**memory, "peak": peak(), "vectors": snapshot.matrix.nbytes / 1e9},
            "found": [one.model_dump() for one in engine._approximate.tried],
            "searches": searches,
        },
    )


def anonymous() -> float:
    """GB of this process that are of no file."""
    return _status("RssAnon")


def peak() -> float:
    """GB that this process had at once, with pages of files that the system kept."""
    return _status("VmHWM")


def _status(name: str) -> float:
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024 / 1e9
    return float("nan")


if __name__ == "__main__":
    main()
