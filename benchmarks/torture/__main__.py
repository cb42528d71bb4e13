"""Runs the parts of the torture and prints a table: `python -m benchmarks.torture [--short] [PART…]`.

The figures of the long form go to `benchmarks/results/torture.json`, each part with its machine and commit; parts that
are not run keep theirs. The exit code is 1 if anything was found.
"""

import argparse
import faulthandler
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.measuring import RESULTS, machine
from benchmarks.torture.clock import clock
from benchmarks.torture.commands import ROOT
from benchmarks.torture.full_disk import full_disk
from benchmarks.torture.fuzz import fuzz
from benchmarks.torture.kills import kills
from benchmarks.torture.nets import PARTS as NETS
from benchmarks.torture.outcome import Outcome
from benchmarks.torture.shutdown import shutdown
from benchmarks.torture.soak import soak
from benchmarks.torture.store_mutations import store_mutations
from benchmarks.torture.workshop import Workshop, workshop
from benchmarks.torture.writers import writers
from limner.inference.provenance import commit_of

PARTS: dict[str, Callable[..., Outcome]] = {
    **NETS,
    "kills": kills,
    "full-disk": full_disk,
    "clock": clock,
    "writers": writers,
    "fuzz": fuzz,
    "mutations": store_mutations,
    "soak": soak,
    "shutdown": shutdown,
}
"""Each part by its name, in the order in which they run."""

_FILE = RESULTS / "torture.json"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torture", description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all if not given")
    parser.add_argument(
        "--short", action="store_true", help="as in the tests: seconds a part, nothing written"
    )
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if unknown := sorted(set(given.parts) - set(PARTS)):
        parser.error(f"unknown part {unknown[0]!r}; expected one of {', '.join(PARTS)}")
    # a segmentation fault in a library is a finding, too, and should say where
    faulthandler.enable()
    found: dict[str, dict[str, Any]] = {}
    with workshop() as shop:
        for name in given.parts or PARTS:
            found[name] = _run(name, shop, short=given.short, seed=given.seed)
            _print(name, found[name])
            if not given.short:
                # after each part: a later one may run for half an hour and be stopped
                _write(found)
    return int(any(part["findings"] for part in found.values()))


def _run(name: str, shop: Workshop, *, short: bool, seed: int) -> dict[str, Any]:
    began = time.perf_counter()
    outcome = PARTS[name](shop, short=short, seed=seed)
    return {
        **outcome.to_json(),
        "seconds": round(time.perf_counter() - began, 1),
        "seed": seed,
        "commit": commit_of(ROOT),
        "machine": machine(),
    }


def _print(name: str, part: dict[str, Any]) -> None:
    print(f"{name}: {part['seconds']:,.0f} s, {len(part['findings'])} findings")
    for what, number in {**part["counts"], **part["figures"]}.items():
        print(f"  {what:<32} {number}")
    for finding in part["findings"]:
        print(f"  FOUND {finding}")
    sys.stdout.flush()


def _write(found: dict[str, dict[str, Any]]) -> None:
    before = json.loads(_FILE.read_text(encoding="utf-8"))["parts"] if _FILE.exists() else {}
    content = {"benchmark": "torture", "parts": {**before, **found}}
    _FILE.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
