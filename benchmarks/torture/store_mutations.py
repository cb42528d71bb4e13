"""Mutations of a store's and a run's files: the long form of `tests/search/test_mutations.py`, which has the promise.

The short form is that test itself.
"""

import os
import subprocess
import sys

from benchmarks.torture.commands import ROOT
from benchmarks.torture.outcome import Outcome
from benchmarks.torture.workshop import Workshop

MUTATIONS = 500
_TEST = "tests/search/test_mutations.py"


def store_mutations(shop: Workshop, *, short: bool = False, seed: int = 0) -> Outcome:
    """Run the test with so many mutations; of the short form nothing is left to do here."""
    outcome = Outcome()
    if short:
        return outcome
    given = {"LIMNER_MUTATIONS": str(MUTATIONS), "LIMNER_MUTATIONS_SEED": str(seed + 1)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", _TEST],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **given},
    )
    outcome.expect(done.returncode == 0, f"{_TEST} ended with {done.returncode}: {done.stdout[-250:]}")
    outcome.count("mutations", MUTATIONS)
    return outcome
