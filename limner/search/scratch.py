"""A matrix in a file without a name: as large as the disk has room, and gone with the process."""

import os
import tempfile

import numpy as np
from jaxtyping import Float

from limner.data.image_digests import cache_folder
from limner.errors import StoreError

# a million rows of 512: what a machine of 8 GB can hold beside a model
ON_DISK_FROM = 2 << 30
"""Bytes of float32 from which a matrix is in a file; the system keeps in memory what there is room for."""


def is_for_disk(rows: int, dim: int) -> bool:
    """True if a float32 matrix of this size is too large for memory."""
    return 4 * rows * dim >= ON_DISK_FROM


def scratch_matrix(rows: int, dim: int) -> Float[np.ndarray, "rows dim"]:
    """Make an empty matrix in a file in the folder of the cache. Raises `StoreError` where the disk has no room."""
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
