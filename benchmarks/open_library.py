"""`limner open` on a folder of photographs, from nothing: seconds to the first answer, and the rate of the whole index.

    python -m benchmarks.open_library RUN PICTURES [--repeats 3]

Claims: answers within seconds, and an index at 87 % or more of the encoder's rate. The encoder's rate is that of the
same run over the same files in this process, decoded by as many threads and encoded in batches of 64, without a store.
Both take turns. The clock of `open` begins when its process is started; the rate is of the time between its first
pictures and its last, in which a search is asked every half second.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import limner
from benchmarks.measuring import write
from limner.client import Client
from limner.search.find_pictures import find_pictures

_BATCH = 64


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("pictures", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    paths = find_pictures([given.pictures]).pictures
    alone, opened = [], []
    for _ in range(given.repeats):
        alone.append(len(paths) / _encoded(given.run, paths))
        opened.append(_opened(given.run, given.pictures, len(paths)))
        print(f"encoder alone {alone[-1]:.1f} a second; {opened[-1]}", flush=True)
    share = [one["rate"] / rate for one, rate in zip(opened, alone, strict=True)]
    write(
        "open_library",
        {
            "pictures": len(paths),
            "encoder_rate": alone,
            "open": opened,
            "share_of_encoder_rate": share,
            "median_share": statistics.median(share),
        },
    )
    print(f"median {statistics.median(share):.1%} of the encoder's rate")


def _encoded(run: Path, paths: list[str]) -> float:
    """Seconds of the processor's wall clock to decode and encode all files."""
    model = limner.load(run, device="cpu")
    began = time.perf_counter()
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        waiting = deque(threads.submit(model.prepare_image, path) for path in paths[: 2 * _BATCH])
        batch: list[np.ndarray] = []
        for place in range(len(paths)):
            batch.append(waiting.popleft().result())
            if place + 2 * _BATCH < len(paths):
                waiting.append(threads.submit(model.prepare_image, paths[place + 2 * _BATCH]))
            if len(batch) == _BATCH or place + 1 == len(paths):
                model.encode_pixels(np.stack(batch))
                batch = []
    return time.perf_counter() - began


def _opened(run: Path, pictures: Path, count: int) -> dict[str, float]:
    """Seconds to the first answer, and the rate of the whole index."""
    folder = Path(tempfile.mkdtemp())
    command = [sys.executable, "-m", "limner", "open", pictures, "--store", folder / "store", "--model", run]
    began = time.perf_counter()
    process = subprocess.Popen(
        [*map(str, command), "--no-browser", "--cpu", "--json", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        client = Client(json.loads(process.stdout.readline())["url"])
        first = slowest = answered = 0.0
        held = 0
        while (found := client.info().pictures) < count:
            if found and not first:
                first, held = time.perf_counter(), found
            asked = time.perf_counter()
            if client.search("a dog in the snow").hits and not answered:
                answered = time.perf_counter() - began
            slowest = max(slowest, time.perf_counter() - asked)
            time.sleep(0.5)
        rate = (count - held) / (time.perf_counter() - first)
        return {"first_answer_s": answered, "rate": rate, "slowest_search_s": slowest}
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
