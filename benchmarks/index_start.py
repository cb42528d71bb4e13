"""The start of `limner index` in a new process: seconds until the first picture is embedded, torch and exports.

    python -m benchmarks.index_start [--repeats 5]

Claims: at most 4 s with torch, and 2 s by an export. A folder with one picture is indexed into a new store by a small
run with a MobileNetV2 of 224 × 224 pixels (`benchmarks.small_run`). The clock begins when the process is started and
stops when the first vector is there. Commands take turns; the first round, in which OpenVINO compiles what the later
ones find in the cache, is told apart as `first_cpu_s`, and the median of the others counts.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measuring import repeats, sized, write
from benchmarks.small_run import ENGINES, Taken, make_run, quietly

# The command with a clock around the first batch. What is imported early here, the command imports anyway.
TIMED = """
import os, sys, time
from limner.search import index

encoded = index._Writer._encoded

def timed(self, seen):
    found = encoded(self, seen)
    print(time.process_time(), time.time(), file=sys.stderr, flush=True)
    os._exit(0)

index._Writer._encoded = timed
from limner.__main__ import main
main()
"""


def main() -> None:
    rounds = sized(repeats(5), 1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        run, pictures = make_run(folder)
        one = next(pictures.glob("*.png"))
        starts = {"torch": [run, "--cpu"], "torch, OpenVINO": [run, "--cpu", "--engine", "openvino"]}
        for engine in ENGINES:
            quietly("export", run, folder / engine, "--format", engine)
            starts[f"export, {engine}"] = [folder / engine]
        # a cache in which nothing is compiled yet
        os.environ["LIMNER_CACHE"] = str(folder / "new-cache")
        seconds: dict[str, list[Taken]] = {name: [] for name in starts}
        for _ in range(rounds + 1):
            for name, (model, *options) in starts.items():
                seconds[name].append(_start("index", model, folder / "store", one, *options))
                shutil.rmtree(folder / "store", ignore_errors=True)
    first = {name: taken[0].cpu for name, taken in seconds.items()}
    cpu = {name: statistics.median(one.cpu for one in taken[1:]) for name, taken in seconds.items()}
    wall = {name: statistics.median(one.wall for one in taken[1:]) for name, taken in seconds.items()}
    for name in starts:
        print(
            f"{name:<18} {wall[name]:5.2f} s, {cpu[name]:5.2f} s of the processor; the first {first[name]:5.2f} s"
        )
    write(
        "index_start",
        {"rounds": rounds, "first_picture_s": wall, "first_picture_cpu_s": cpu, "first_cpu_s": first},
    )


def _start(*words: object) -> Taken:
    began = time.time()
    command = [sys.executable, "-c", TIMED, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    cpu, ended = map(float, done.stderr.splitlines()[-1].split())
    return Taken(cpu, ended - began)


if __name__ == "__main__":
    main()
