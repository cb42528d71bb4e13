"""One search from the command line in a new process: seconds of the processor, with torch and by exports.

    python -m benchmarks.cold_search [--repeats 7]

Claims: at most 3.5 s with torch, and 1.3 s by an exported text tower. The store holds 36 drawn pictures of a small run
(`benchmarks.small_run`), so that loading counts and ranking does not. Each command has its turn in every round, one
round before does not count, and the median of the rounds counts. Processor time of one thread: other programs on the
machine lengthen it less than the clock's. `imports` are the packages of one process whose own modules took longest to
import, by `python -X importtime`.
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.measuring import repeats, sized, write
from benchmarks.small_run import ENGINES, Taken, limner, make_run, quietly, taken_by

_IMPORT = re.compile(r"import time:\s*(\d+) \|\s*\d+ \|\s*(\w+)")
SHOWN = 8


def main() -> None:
    rounds = sized(repeats(7), 1)
    # threads of OpenMP that wait for each other would count as work
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        run, pictures = make_run(folder)
        quietly("index", run, folder / "store", pictures, "--cpu")
        searches = {"torch": _search(folder / "store")}
        for engine in ENGINES:
            quietly("export", run, folder / engine, "--format", engine)
            searches[f"export, {engine}"] = _search(folder / "store", "--run", folder / engine)
        seconds: dict[str, list[Taken]] = {name: [] for name in searches}
        for turn in range(rounds + 1):
            for name, command in searches.items():
                taken = taken_by(command)
                if turn:
                    seconds[name].append(taken)
        imports = {name: _imports(command) for name, command in searches.items()}
    cpu = {name: statistics.median(one.cpu for one in of_one) for name, of_one in seconds.items()}
    wall = {name: statistics.median(one.wall for one in of_one) for name, of_one in seconds.items()}
    for name, packages in imports.items():
        shown = ", ".join(f"{package} {taken:.2f}" for package, taken in packages.items())
        print(f"{name:<18} {cpu[name]:5.2f} s of the processor, {wall[name]:5.2f} s in all; imports: {shown}")
    write("cold_search", {"rounds": rounds, "threads": 1, "cpu_s": cpu, "wall_s": wall, "import_s": imports})


def _search(store: Path, *more: object) -> list[str]:
    return limner("search", store, "a red circle on white", "-k", "3", "--json", "--cpu", *more)


def _imports(command: list[str]) -> dict[str, float]:
    """Seconds of the packages whose modules took longest, those that each imports left out."""
    timed = [sys.executable, "-X", "importtime", *command[1:]]
    lines = subprocess.run(timed, capture_output=True, text=True, check=True).stderr.splitlines()
    taken: Counter[str] = Counter()
    for line in lines:
        if found := _IMPORT.match(line):
            taken[found[2]] += int(found[1])
    return {name: round(micro / 1e6, 3) for name, micro in taken.most_common(SHOWN)}


if __name__ == "__main__":
    main()
