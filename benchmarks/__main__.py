"""Runs all benchmarks that need no data, each in a process of its own: `python -m benchmarks [--short] [NAME …]`.

`make bench` takes `--short`: few and small things, one turn each, and no result file. A script that cannot run here
says why in one line and the next one goes on. The exit code is 1 if a script failed.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

NEEDS = {
    "anchor": "needs data: Flickr8k, and the weights of two towers",
    "gpu_training": "needs a GPU and generated people",
    "lies_flickr8k": "needs data: Flickr8k, and a run",
    "marks": "needs data, and a run",
    "open_vocabulary": "needs data: Flickr8k, and a run",
    "open_library": "needs photographs, and a run",
    "query_cost": "needs a server of your own",
    "rolling_servers": "needs moto's S3 server, in an environment of its own",
    "seen_captions": "needs data: four sets of captions, and MiniLM",
    "site_in_browser": "needs a store, its site and Chromium",
    "slow_clients": "needs a store, nginx and Caddy",
    "store_before_after": "needs the checkout of another commit",
    "suspicious_captions": "needs data, and a run",
}
"""What scripts need that is not there in a clean clone."""
OTHER = {"balancer", "claims", "cub10", "extras", "gaps", "golden", "measuring", "small_run", "wheel_test"}
"""Files that are no benchmarks."""


def benchmarks() -> list[str]:
    """The names of all benchmarks."""
    return sorted(
        file.stem
        for file in Path(__file__).parent.glob("*.py")
        if not file.stem.startswith("__") and file.stem not in OTHER
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="a short form of each, without result files")
    parser.add_argument("names", nargs="*", help="some of them; all if none is named")
    given = parser.parse_args()
    # here: torch is imported with it
    from benchmarks.measuring import NOT_RUN

    if given.short:
        os.environ["LIMNER_BENCH_SHORT"] = "1"
    failed = []
    for name in given.names or benchmarks():
        if name in NEEDS:
            print(f"{name}: not run: {NEEDS[name]}", flush=True)
            continue
        print(f"{name}:", flush=True)
        began = time.monotonic()
        code = subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode
        if code not in (0, NOT_RUN):
            failed.append(name)
        print(f"{name}: {'failed' if name in failed else 'ended'} after {time.monotonic() - began:.0f} s\n")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
