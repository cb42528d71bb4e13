"""glibc's allocator, told to keep what is freed.

Each batch of encoding and each step of training asks for the same tensors and frees them. By default glibc hands large
freed blocks back to the system, which clears every page anew at the next step; in `limner index` that cost six seconds
of system time. Only a command does this, in its own process: a library call must not change the allocator of the
program that calls it.
"""

import os

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's <malloc.h>."""

# `limner index` of 800 photographs: 0.9 s of system time in place of 6.9 (docs/log/2026-11-21.md);
# mallopt takes an int, so this is the most that can be asked for
_KEPT_BYTES = 2**31 - 1
_LARGEST_BYTES = (2**30, 2**25)
"""Blocks up to this size come from the heap; older versions of glibc take no more than the second."""


def keep_freed_memory() -> bool:
    """Let this process keep what it has freed, up to 2 GiB at the top of each heap; returns whether it was done.

    Not where the environment configures `malloc` already (`MALLOC_…`, `GLIBC_TUNABLES`), nor with another C library.
    """
    # whoever set them has reasons; it is also how to measure what this function gains
    if any(name.startswith("MALLOC_") for name in os.environ) or "GLIBC_TUNABLES" in os.environ:
        return False
    # not `platform.libc_ver()`, which reads the interpreter's whole file
    if "CS_GNU_LIBC_VERSION" not in getattr(os, "confstr_names", ()):
        return False
    # here: with another C library the function has returned by now
    import ctypes

    # None is this process, whose C library need not be found by name
    libc = ctypes.CDLL(None)
    # this one first: to set either stops glibc from adapting both
    return any(libc.mallopt(_MMAP_THRESHOLD, size) for size in _LARGEST_BYTES) and bool(
        libc.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
    )
