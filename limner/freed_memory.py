"""Keep freed memory for the next step.

Each step of training, and each batch of encoding, asks for the same tensors and frees them. By default glibc hands
large freed blocks back to the system, which has to clear every page anew when the next step asks for them.
"""

import ctypes
import mmap
import os
import platform

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's <malloc.h>."""
_KEPT_BYTES = 2**31 - 1
_LARGEST_BYTES = (2**30, 2**25)
"""Blocks up to this size come from the heap; older versions of glibc take no more than the second."""
_LARGE_PAGE = 2**21


def keep_freed_memory() -> bool:
    """Let this process keep what it has freed, up to 2 GiB at the top of each heap; returns whether it was done.

    The first 2 GiB of the heap also get pages of 2 MiB where Linux gives them on request and does not limit the
    process's addresses. Done with glibc only, and not where the environment already configures its `malloc`
    (`MALLOC_…`, `GLIBC_TUNABLES`). Call it in the main thread.
    """
    chosen = any(name.startswith("MALLOC_") for name in os.environ) or "GLIBC_TUNABLES" in os.environ
    if chosen or platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    # this one first: to set either stops glibc from adapting both
    largest = next((size for size in _LARGEST_BYTES if libc.mallopt(_MMAP_THRESHOLD, size)), 0)
    if not largest or not libc.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES):
        return False
    _ask_for_large_pages(libc, largest - _LARGE_PAGE)
    return True


def _ask_for_large_pages(libc: ctypes.CDLL, block: int) -> None:
    """Grow the heap once, by addresses without memory, so that one request holds for all that will lie there.

    Asked for tensor by tensor, as PyTorch can be told to, they cost a call of the system each (docs/log.md).
    """
    import resource  # which not every system has

    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is None or resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        return
    libc.malloc.restype = libc.sbrk.restype = ctypes.c_void_p
    libc.malloc.argtypes, libc.sbrk.argtypes = [ctypes.c_size_t], [ctypes.c_ssize_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    start = libc.sbrk(0)
    blocks = [libc.malloc(block) for _ in range(_KEPT_BYTES // block)]
    end = libc.sbrk(0)
    for address in blocks:
        libc.free(address)
    start = -(-start // _LARGE_PAGE) * _LARGE_PAGE
    if start < end:  # not where the heap cannot grow that far, so that the blocks lie elsewhere
        libc.madvise(start, end - start, advice)
