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


_MAPPED = """
import re, resource, sys
if sys.argv[1:]:
    resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]), -1))
from limner.freed_memory import keep_freed_memory
assert keep_freed_memory() == keep_freed_memory()
areas = re.split("^(?=[0-9a-f]+-[0-9a-f]+ )", open("/proc/self/smaps").read(), flags=re.M)
print(*[int(re.search(r"^Size: +(\\d+)", area, re.M)[1]) for area in areas if re.search("^VmFlags:.* hg", area, re.M)])
"""


def _with_large_pages(*arguments: str, **environment: str) -> list[int]:
    """Sizes in kB of the parts of memory for which large pages were asked."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))
    }
    found = subprocess.run(
        [sys.executable, "-c", _MAPPED, *arguments],
        check=True,
        capture_output=True,
        text=True,
        env={**inherited, "PYTHONPATH": str(Path(__file__).parents[1]), **environment},
    )
    return [int(size) for size in found.stdout.split()]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="an allocator of another kind")
@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage/enabled").exists(), reason="a system without large pages"
)
def test_large_pages_are_asked_for_once_and_only_where_nothing_is_chosen() -> None:
    (size,) = _with_large_pages()
    assert 2**20 < size < 2**21
    assert not _with_large_pages(MALLOC_TRIM_THRESHOLD_="131072")
    assert not _with_large_pages(str(2**33))  # where addresses are limited
