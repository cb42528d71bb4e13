"""The allocator's thresholds, in processes of their own: they are set for good."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = """
import resource
import numpy as np
from limner.cli.allocator import keep_freed_memory

kept = keep_freed_memory()

def step():
    held = [np.ones(2**20) for _ in range(10)]

step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(script: str = _SCRIPT, **environment: str) -> tuple[bool, int]:
    """Whether it was done, and the pages that five steps asked the system for."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))
    }
    found = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        env={**inherited, "PYTHONPATH": str(Path(__file__).parents[2]), **environment},
    )
    kept, faults = found.stdout.split()
    return kept == "True", int(faults)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="an allocator of another kind")
def test_pages_are_not_asked_for_again() -> None:
    kept, few = _faults()
    left_alone, many = _faults(MALLOC_TRIM_THRESHOLD_="131072")
    assert (kept, left_alone) == (True, False)
    assert few < 500
    assert many > 10 * few


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="an allocator of another kind")
def test_a_library_call_leaves_the_allocator_alone() -> None:
    """As above, with the import of the library and of the commands in place of a command."""
    _, many = _faults(
        _SCRIPT.replace("kept = keep_freed_memory()", "import limner, limner.cli; kept = False")
    )
    assert many > 5000
