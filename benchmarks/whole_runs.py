"""How long whole runs take: the demo, and the checks with the whole test suite.

    python -m benchmarks.whole_runs demo|ci

Claims: `limner demo` takes at most 4 minutes and `.ci/run` at most 15. Both count on the clock, so that the machine has
to be idle; processor time stands beside them. `demo` writes results/demo.json, `ci` results/ci.json.
"""

import argparse
import tempfile
from pathlib import Path

from benchmarks.measuring import SHORT, cannot_run, write
from benchmarks.small_run import Taken, limner, taken_by

ROOT = Path(__file__).parents[1]


def main() -> None:
    if SHORT:
        cannot_run("the demo and .ci/run take minutes; python -m benchmarks.whole_runs demo|ci")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("demo", "ci"))
    what: str = parser.parse_args().what
    name = {"demo": "limner demo", "ci": ".ci/run"}[what]
    with tempfile.TemporaryDirectory() as folder:
        demo = limner("demo", "--out", f"{folder}/demo")
        taken: Taken = taken_by({"demo": demo, "ci": [str(ROOT / ".ci/run")]}[what])
    print(f"{name}: {taken.wall:,.0f} s, {taken.cpu:,.0f} s of the processor")
    write(what, {"seconds": {name: round(taken.wall, 1)}, "cpu_s": {name: round(taken.cpu, 1)}})


if __name__ == "__main__":
    main()
