"""The cost of a cluster on one machine: `limner index --cluster local` against the plain command, beyond the start.

    python -m benchmarks.cluster_index [--repeats 3]        needs the extra `cluster`

Claim: at most 1.1 times the time. The same drawn JPEGs go into a new store by a small run with a MobileNetV2 of
224 × 224 pixels (`benchmarks.small_run`). The clock begins when the model is loaded, in the cluster's worker, too, and
stops after the last commit. The two take turns, each in a process of its own, and the median of a turn's ratios counts.
What the start costs is told apart: Ray's own processes, and the worker that loads the model once more.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.measuring import cannot_run, repeats, sized, write
from benchmarks.small_run import make_run

PICTURES = sized(2048, 24)
BATCH = sized(256, 8)

# what the command does, with a clock
TIMED = """
import json, sys, time
from contextlib import nullcontext
from pathlib import Path

began = time.perf_counter()
run, store, pictures, batch, by = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5]
from limner.search.cluster import connected, loader

with nullcontext() if by == "plain" else connected("local") as cluster:
    from limner.inference.load import load_model
    from limner.search.index import index_pictures
    from limner.search.open_source import store_of

    model = load_model(run, device="cpu")
    files = store_of(model, run, store)
    workers = None
    if cluster is not None:
        workers = cluster.workers(loader(model, cpu=True), model.fingerprint, cpu=True)
        for opened in list(workers._starting):
            workers._welcome(opened)
    ready = time.perf_counter()
    report = index_pictures(model, files, [pictures], batch_size=batch, cluster=workers)
    ended = time.perf_counter()
print(json.dumps({"added": report.added, "start": ready - began, "index": ended - ready}))
"""


def main() -> None:
    if find_spec("ray") is None:
        cannot_run("needs the extra cluster")
    turns = sized(repeats(3), 1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        run, _ = make_run(folder)
        _draw(folder / "many")
        taken: dict[str, list[dict[str, float]]] = {"plain": [], "cluster": []}
        for turn in range(turns):
            for by, seconds in taken.items():
                seconds.append(_index(run, folder / f"{by}-{turn}", folder / "many", by))
    ratio = statistics.median(
        cluster["index"] / plain["index"] for plain, cluster in zip(*taken.values(), strict=True)
    )
    medians = {
        by: {part: statistics.median(one[part] for one in each) for part in ("start", "index")}
        for by, each in taken.items()
    }
    for by, parts in medians.items():
        print(f"{by:<8} start {parts['start']:5.1f} s, index {parts['index']:5.1f} s")
    print(f"the cluster takes {ratio:.2f} of the plain command's time beyond the start")
    about = {"pictures": PICTURES, "batch": BATCH, "turns": turns}
    write("cluster_index", {**about, "seconds": medians, "ratio": ratio})


def _draw(folder: Path) -> None:
    """JPEGs of 480 × 360 with soft shapes, each another."""
    folder.mkdir()
    drawn = np.random.default_rng(0)
    for number in range(PICTURES):
        small = drawn.integers(0, 256, (9, 12, 3), dtype=np.uint8)
        Image.fromarray(small).resize((480, 360), Image.Resampling.BICUBIC).save(folder / f"{number:05}.jpg")


def _index(run: Path, store: Path, pictures: Path, by: str) -> dict[str, float]:
    words = [run, store, pictures, BATCH, by]
    command = [sys.executable, "-c", TIMED, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    assert found["added"] == PICTURES
    return found


if __name__ == "__main__":
    main()
