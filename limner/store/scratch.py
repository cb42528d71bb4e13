"""Vectors in a file without a name: as large as the disk has room, gone with the process, shared by snapshots."""

import os
import tempfile
import threading
from collections import deque

import numpy as np
from jaxtyping import Float, Int

from limner.data.image_digests import cache_folder
from limner.errors import StoreError

# a million rows of 512: what a machine of 8 GB can hold beside a model
ON_DISK_FROM = 2 << 30
"""Bytes of float32 from which a matrix is in a file; the system keeps in memory what there is room for."""

_SPARE = 10
"""A file has one spare row for so many that there are: until these are used up no commit copies the others."""


def is_for_disk(rows: int, dim: int) -> bool:
    """True if a float32 matrix of this size is too large for memory."""
    return 4 * rows * dim >= ON_DISK_FROM


def scratch_matrix(rows: int, dim: int) -> Float[np.ndarray, "rows dim"]:
    """Make a matrix of zeros in a file in the folder of the cache. Raises `StoreError` where the disk has no room."""
    folder = cache_folder() / "vectors"
    size = 4 * rows * dim
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # without a name from the beginning: a process that is killed leaves nothing behind
        with tempfile.TemporaryFile(dir=folder) as file:
            # a full disk is told now; written through memory it would end the process by a signal
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
            mapped = np.memmap(file, np.float32, "r+", shape=(rows, dim))
    except OSError as error:
        raise StoreError(
            f"{folder}: the vectors of {rows:,} pictures need a file of {size / 1e9:.1f} GB here "
            f"({error.strerror}); make room, or name another folder with LIMNER_CACHE",
            "full",
        ) from None
    # an array of its own class would make every result of numpy one, too; this one keeps the file's mapping alive
    return mapped.view(np.ndarray)


class ScratchFile:
    """Vectors of successive snapshots in one file, each in a slot; a vector that several have is there once.

    While any snapshot reads the file, a slot that none reads any more is overwritten with zeros and given to another
    vector, so that of a picture that was deleted nothing stays there. With the last snapshot the file itself goes, and
    its blocks are the disk's as they are. The snapshots may be used and dropped by any thread.
    """

    def __init__(self, rows: int, dim: int) -> None:
        # zeros, as every slot that nobody reads
        self.matrix = scratch_matrix(rows + rows // _SPARE, dim)
        # how many snapshots read each slot. Not the last alone: an older one may live longer than its successor
        self._readers: Int[np.ndarray, " slots"] = np.zeros(len(self.matrix), np.int32)
        self._snapshots = 0
        self._lock = threading.Lock()
        self._dropped: deque[Int[np.ndarray, " rows"]] = deque()

    def take(self, kept: Int[np.ndarray, " kept"], count: int) -> Int[np.ndarray, " fresh"] | None:
        """Note a snapshot that keeps some slots of one that is still in use, and find `count` free slots for it.

        Returns None, and notes nothing, without room, or where more than half of the file would be empty.
        """
        with self._lock:
            self._free()
            free = np.flatnonzero(self._readers == 0)
            fits = count <= len(free) and 2 * (len(kept) + count) >= len(self.matrix)
            if fits:
                free = free[:count].astype(np.int32)
                self._readers[kept] += 1
                self._readers[free] = 1
                self._snapshots += 1
        self._free_if_idle()
        return free if fits else None

    def drop(self, slots: Int[np.ndarray, " rows"]) -> None:
        """Take note that a snapshot, which read these slots, is gone."""
        # the garbage collector may call this at any moment, also in a thread that has the lock: so nobody waits for it
        self._dropped.append(slots)
        self._free_if_idle()

    def _free_if_idle(self) -> None:
        # whoever has the lock comes here, too, when it is open again: nothing that was dropped meanwhile is left
        while self._dropped and self._lock.acquire(blocking=False):
            try:
                self._free()
            finally:
                self._lock.release()

    def _free(self) -> None:
        while self._dropped:
            slots = self._dropped.popleft()
            self._readers[slots] -= 1
            self._snapshots -= 1
            # without a snapshot the file itself goes
            if self._snapshots:
                self.matrix[slots[self._readers[slots] == 0]] = 0
