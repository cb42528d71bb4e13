"""Keep freed memory for the next step.

Each step of training, and each batch of encoding, asks for the same tensors and frees them. By default glibc hands
large freed blocks back to the system, which has to clear every page anew when the next step asks for them.
"""

import ctypes
import os
import platform

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's <malloc.h>."""
_KEPT_BYTES = 2**31 - 1
_LARGEST_BYTES = (2**30, 2**25)
"""Blocks up to this size come from the heap; older versions of glibc take no more than the second."""


def keep_freed_memory() -> bool:
    """Let this process keep what it has freed, up to 2 GiB at the top of each heap; returns whether it was done.

    Large tensors also get pages of 2 MiB where Linux gives them on request, by PyTorch's `THP_MEM_ALLOC_ENABLE`, which
    it reads when it makes its first tensor. Done with glibc only, and not where the environment already configures its
    `malloc` (`MALLOC_…`, `GLIBC_TUNABLES`).
    """
    chosen = any(name.startswith("MALLOC_") for name in os.environ) or "GLIBC_TUNABLES" in os.environ
    if chosen or platform.libc_ver()[0] != "glibc":
        return False
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    mallopt = ctypes.CDLL(None).mallopt
    # this one first: to set either stops glibc from adapting both
    if not any(mallopt(_MMAP_THRESHOLD, size) for size in _LARGEST_BYTES):
        return False
    return bool(mallopt(_TRIM_THRESHOLD, _KEPT_BYTES))
