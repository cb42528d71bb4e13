"""One writer at a time: a lock file in the store's folder, which readers never look at.

LanceDB lets two commits through that add the same new row, and keeps it twice for good.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from limner.errors import StoreError

LOCK_FILE = ".store.lock"


class WriterLock:
    """The right to write to a store's folder. The system takes it back from a process that is killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Counted for each thread: two threads that share a store must not write at once either.
        self._lock = FileLock(folder / LOCK_FILE, blocking=False)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold it; may be nested within a thread.

        Raises `StoreError`, without waiting, while somebody else holds it and where the folder cannot be written.
        """
        try:
            self._lock.acquire()
        except Timeout:
            raise StoreError(
                f"{self.folder}: is being written by another process; try again when it is done"
            ) from None
        except OSError as error:
            raise StoreError(f"{self.folder}: cannot be written ({error.strerror or error})") from None
        try:
            yield
        finally:
            self._lock.release()
