"""Vectors on disk: limner's lists of codes, LanceDB's index and faiss's, with conditions, against exact search.

    python -m benchmarks.beyond_memory [--rows 5000000] [--clusters 500] [--folder FOLDER] [ENGINE …]

Rows of 512 are drawn in clusters, each as far from its centre as the centre is long; queries lie as far from rows. Each
picture has a camera of 10, a day of 100 and an hour of 1,000, drawn at random. Claim: of 5 million, limner's recall@10
is ≥ 0.99 and its median at most 30 ms for each condition, from query to answer.

All engines have as many lists of int8 codes. limner searches the file from which a store of that size is searched, and
chooses by itself how many lists it reads. LanceDB holds the rows in a table of its own, with bitmaps of the facts; it
filters before it searches, and reads the vectors of the rows that it has found (`refine_factor`). faiss holds its lists
in memory, and a bitmap tells it which rows take part; the rows that it has found are scored exactly in limner's file.
For each condition these two read the fewest lists that reach a recall of 0.99 over the compared queries, or the most
that were tried. The engines are measured one after the other, since memory does not hold two. `memory_gb` is the
process's own (anonymous), beside what it was before; what the system keeps of files comes on top where there is room.
"""

import argparse
import gc
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.exact_search import noisy
from benchmarks.measuring import sized, write
from limner.search.engine import Engine
from limner.search.foreign_vectors import ForeignModel
from limner.search.query_vectors import PreparedRequest
from limner.store import scratch
from limner.store.columns import Columns
from limner.store.files import StoreFiles
from limner.store.snapshot import Snapshot
from limner.store.vectors import Vectors

DIM, AT_ONCE = 512, 50_000
QUERIES, COMPARED, K = sized(200, 20), sized(50, 20), 10
RECALL = 0.99
MODEL = ForeignModel("drawn", DIM)
FACTS = {"camera": 10, "day": 100, "hour": 1000}
CONDITIONS: dict[str, tuple[str, list[int]]] = {
    "all": ("", []),
    "half": ("camera", [0, 1, 2, 3, 4]),
    "a tenth": ("camera", [3]),
    "a hundredth": ("day", [31]),
    "a thousandth": ("hour", [310]),
}
WIDTHS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Numbers of lists that are tried."""
MORE = 8
"""Times as many rows as are asked for that are scored exactly by LanceDB and faiss; of 80 limner scores 84."""

Search = Callable[[np.ndarray, str, int], np.ndarray]
"""Finds the best rows of a query and a condition by so many lists."""


class Drawn(NamedTuple):
    """Rows: their vectors in a file, and their facts."""

    vectors: np.ndarray
    facts: dict[str, np.ndarray]

    @property
    def lists(self) -> int:
        """As many as limner makes of them."""
        return int(2 ** round(math.log2(math.sqrt(len(self.vectors)))))

    def matching(self, condition: str) -> np.ndarray:
        """Which rows meet a condition."""
        fact, values = CONDITIONS[condition]
        return np.isin(self.facts[fact], values) if fact else np.ones(len(self.vectors), bool)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "engines", nargs="*", metavar="ENGINE", help=f"of {', '.join(ENGINES)}; all if not given"
    )
    parser.add_argument("--rows", type=int, default=sized(5_000_000, 30_000))
    parser.add_argument("--clusters", type=int, default=500)
    parser.add_argument("--folder", type=Path, help="where LanceDB's table is made, and deleted")
    options = parser.parse_args()
    # a short run has fewer bytes
    scratch.ON_DISK_FROM = sized(scratch.ON_DISK_FROM, 1)
    rows = drawn(options.rows, options.clusters)
    rng = np.random.default_rng(1)
    chosen = np.sort(rng.choice(options.rows, QUERIES, replace=False))
    queries = noisy(rows.vectors[chosen], rng, 1.0)
    best = {name: exact(rows, name, queries[:COMPARED]) for name in CONDITIONS}
    found: dict[str, Any] = {}
    for name in options.engines or ENGINES:
        if name != "limner" and find_spec(name) is None:
            print(f"{name}: not run: it is not installed", flush=True)
            continue
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            found[name] = measured(name, rows, queries, best, Path(folder))
        gc.collect()
    about = {"rows": options.rows, "dim": DIM, "clusters": options.clusters, "lists": rows.lists}
    write(
        "beyond_memory",
        {
            "reference": "exact search of the same rows",
            **about,
            "queries": QUERIES,
            "compared": COMPARED,
            "vectors_gb": rows.vectors.nbytes / 1e9,
            # limner's own, of which the claim is, beside the others
            **found.pop("limner", {}),
            "others": found,
        },
    )


def drawn(rows: int, clusters: int) -> Drawn:
    """Draw the rows into a file of scratch."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(clusters, DIM)).astype(np.float32)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    vectors = scratch.scratch_matrix(rows, DIM)
    facts = {name: np.empty(rows, np.int32) for name in FACTS}
    for part in blocks(rows):
        count = part.stop - part.start
        vectors[part] = noisy(centres[rng.integers(0, clusters, count)], rng, 1.0)
        for name, most in FACTS.items():
            facts[name][part] = rng.integers(0, most, count)
    return Drawn(vectors, facts)


def blocks(rows: int) -> Iterator[slice]:
    for start in range(0, rows, AT_ONCE):
        yield slice(start, min(start + AT_ONCE, rows))


def exact(rows: Drawn, condition: str, queries: np.ndarray) -> np.ndarray:
    """The K-th best score of each query."""
    matching = rows.matching(condition)
    best = np.full((K, len(queries)), -np.inf, np.float32)
    for part in blocks(len(rows.vectors)):
        scores = rows.vectors[part][matching[part]] @ queries.T
        best = -np.sort(-np.concatenate([best, scores]), axis=0)[:K]
    least: np.ndarray = best[-1]
    return least


def measured(
    name: str, rows: Drawn, queries: np.ndarray, best: dict[str, np.ndarray], folder: Path
) -> dict[str, Any]:
    """Build an engine's index and search by it."""
    before, began = anonymous(), time.perf_counter()
    search = ENGINES[name](rows, folder)
    seconds, memory = time.perf_counter() - began, anonymous() - before
    on_disk = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{name}: built in {seconds:.0f} s, {memory:.2f} GB, {on_disk / 1e9:.2f} GB on disk", flush=True)
    searches = {}
    for condition in CONDITIONS:
        began = time.perf_counter()
        # its values are indexed and its rows found once
        search(queries[0], condition, WIDTHS[0])
        first = time.perf_counter() - began
        for width in WIDTHS[:1] if name == "limner" else WIDTHS:
            found = [search(query, condition, width) for query in queries[:COMPARED]]
            shares = [
                # another order of the sum is another last bit
                float((rows.vectors[some] @ query >= least - 1e-6).sum() / K)
                for some, query, least in zip(found, queries, best[condition], strict=False)
            ]
            if statistics.mean(shares) >= RECALL or width >= rows.lists:
                break
        times = []
        for query in queries:
            began = time.perf_counter()
            search(query, condition, width)
            times.append(1000 * (time.perf_counter() - began))
        searches[condition] = {
            "matching": int(rows.matching(condition).sum()),
            "recall": statistics.mean(shares),
            "ms": statistics.median(times),
            "ms_95": float(np.quantile(times, 0.95)),
            "ms_first": 1000 * first,
            **({} if name == "limner" else {"lists": width}),
        }
        told = {key: round(value, 4) for key, value in searches[condition].items()}
        print(f"{name}, {condition}: {told}", flush=True)
    after = anonymous() - before
    return {
        "seconds": {"index": seconds},
        "memory_gb": {"index": memory, "searches": after},
        "disk_gb": on_disk / 1e9,
        "searches": searches,
    }


def of_limner(rows: Drawn, folder: Path) -> Search:
    """limner's lists, from request to hits; it chooses by itself how many it reads."""
    files = StoreFiles.create(folder / "empty", fingerprint=MODEL.fingerprint, dim=DIM, run="drawn")
    count = len(rows.vectors)
    # JSON as a store has it; pictures of equal facts share one text
    texts: dict[tuple[int, ...], str] = {}
    facts = [column.tolist() for column in rows.facts.values()]
    metadata = [
        texts.setdefault(one, json.dumps(dict(zip(FACTS, one, strict=True))))
        for one in zip(*facts, strict=True)
    ]
    names = np.array([f"{number:032x}" for number in range(count)], "S32")
    columns = Columns(
        ids=names,
        sha256=names,
        paths=[f"/pictures/{number:08d}.jpg" for number in range(count)],
        others=[()] * count,
        identities=[None] * count,
        metadata=metadata,
        taken=np.full(count, "NaT", "datetime64[us]"),
        told=np.zeros(count, bool),
        gone=np.zeros(count, bool),
        numbers=np.arange(count),
        sums=np.zeros(count, np.int64),
        digests=np.zeros(count, "S16"),
    )
    snapshot = Snapshot(Vectors(rows.vectors, on_disk=True), columns)
    files.snapshot = lambda: snapshot  # type: ignore[method-assign]
    engine = Engine(files, MODEL, approximate_from=1)
    engine.prepare()
    assert engine.approximate.proposer is not None
    engine.approximate.proposer.wait()
    print("limner:", engine.approximate.proposer.tried, flush=True)

    def search(query: np.ndarray, condition: str, width: int) -> np.ndarray:
        fact, values = CONDITIONS[condition]
        where = (f"{fact}={'|'.join(map(str, values))}",) if fact else ()
        answer = engine.answer(PreparedRequest(vector=query, k=K, where=where))
        return np.array([int(hit.id, 16) for hit in answer.hits])

    return search


def of_lancedb(rows: Drawn, folder: Path) -> Search:
    """LanceDB's index of int8 codes, its bitmaps of facts and its filter."""
    import lancedb
    import pyarrow as pa
    from lancedb.index import Bitmap, IvfSq

    whole = pa.int32()
    fields = {"row": whole, "vector": pa.list_(pa.float32(), DIM), **dict.fromkeys(FACTS, whole)}
    schema = pa.schema(fields)

    def batches() -> Iterator[pa.RecordBatch]:
        for part in blocks(len(rows.vectors)):
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.vectors[part].ravel()), DIM)
            numbers = np.arange(part.start, part.stop, dtype=np.int32)
            facts = [pa.array(column[part]) for column in rows.facts.values()]
            yield pa.RecordBatch.from_arrays([pa.array(numbers), vectors, *facts], schema=schema)

    # as much of its index in memory as it has
    session = lancedb.Session(index_cache_size_bytes=6 * 2**30, metadata_cache_size_bytes=2**30)
    table = lancedb.connect(str(folder), session=session).create_table(
        "rows", pa.RecordBatchReader.from_batches(schema, batches())
    )
    # as many rows and rounds for the centres as limner takes. All vectors have length one: by the dot product it would
    # put rows into other lists than those that it reads first (recall 0.99 by 1,024 lists; by the cosine 32 are enough)
    index = IvfSq(distance_type="cosine", num_partitions=rows.lists, sample_rate=32, max_iterations=8)
    table.create_index("vector", config=index)
    for name in FACTS:
        table.create_index(name, config=Bitmap())

    def search(query: np.ndarray, condition: str, width: int) -> np.ndarray:
        fact, values = CONDITIONS[condition]
        asked: Any = table.search(query, vector_column_name="vector")
        asked = asked.distance_type("cosine").limit(K)
        asked = asked.nprobes(width).refine_factor(MORE).select(["row", "_distance"])
        if fact:
            asked = asked.where(f"{fact} IN ({', '.join(map(str, values))})", prefilter=True)
        found: np.ndarray = asked.to_arrow()["row"].to_numpy()
        return found

    return search


def of_faiss(rows: Drawn, folder: Path) -> Search:
    """faiss's inverted file of int8 codes, with a bitmap of the rows that take part; those found are scored exactly."""
    # its stubs know another call
    faiss: Any = import_module("faiss")
    rng = np.random.default_rng(0)
    quantizer = faiss.IndexFlatIP(DIM)
    index = faiss.IndexIVFScalarQuantizer(
        quantizer, DIM, rows.lists, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
    )
    index.cp.niter, index.cp.spherical = 8, True
    count = len(rows.vectors)
    index.train(rows.vectors[np.sort(rng.choice(count, min(count, 32 * rows.lists), replace=False))])
    for part in blocks(count):
        index.add(np.ascontiguousarray(rows.vectors[part]))
    bitmaps: dict[str, np.ndarray] = {}

    def search(query: np.ndarray, condition: str, width: int) -> np.ndarray:
        # kept, as limner keeps the rows of a condition
        if condition not in bitmaps:
            bitmaps[condition] = np.packbits(rows.matching(condition), bitorder="little")
        chosen = faiss.IDSelectorBitmap(bitmaps[condition]) if condition != "all" else None
        how = faiss.SearchParametersIVF(nprobe=width, sel=chosen)
        found = index.search(query[None], MORE * K, params=how)[1][0]
        found = np.sort(found[found >= 0])
        scores = rows.vectors[found] @ query
        best: np.ndarray = found[np.argsort(-scores, kind="stable")[:K]]
        return best

    return search


ENGINES: dict[str, Callable[[Drawn, Path], Search]] = {
    "limner": of_limner,
    "lancedb": of_lancedb,
    "faiss": of_faiss,
}


def anonymous() -> float:
    """GB of this process that are of no file."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024 / 1e9
    return float("nan")


if __name__ == "__main__":
    main()
