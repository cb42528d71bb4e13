import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = """
import resource, sys
import numpy as np
from limner.freed_memory import keep_freed_memory

kept = keep_freed_memory()

def step():
    held = [np.ones(2**20) for _ in range(10)]

step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(**environment: str) -> tuple[bool, int]:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))
    }
    found = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        check=True,
        capture_output=True,
        text=True,
        env={**inherited, "PYTHONPATH": str(Path(__file__).parents[1]), **environment},
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
@pytest.mark.parametrize(("given", "left"), [(None, "1"), ("0", "0")])
def test_large_pages_are_asked_for_unless_told_otherwise(given: str | None, left: str) -> None:
    inherited = {name: value for name, value in os.environ.items() if name != "THP_MEM_ALLOC_ENABLE"}
    script = (
        "import os; from limner.freed_memory import keep_freed_memory as keep; keep(); "
        "print(os.environ['THP_MEM_ALLOC_ENABLE'])"
    )
    found = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        env={
            **inherited,
            "PYTHONPATH": str(Path(__file__).parents[1]),
            **({} if given is None else {"THP_MEM_ALLOC_ENABLE": given}),
        },
    )
    assert found.stdout.strip() == left
