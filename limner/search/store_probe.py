"""Looks at a store that cost little, disturb nobody and write nothing: can it be read and written, is it in memory?"""

from limner.search.store_files import StoreFiles
from limner.search.store_path import reached


def touch(files: StoreFiles) -> int:
    """Read a row from the disk, and return the number of images.

    Raises `StoreError`, whose `trouble` is the cause, if the store cannot be read now.
    """

    def read() -> int:
        table = files.table.opened()
        with files.table.integrity.readings():
            if table is not None:
                table.head(1)
        return len(files.table)

    return files.read(read)


def changed_at(files: StoreFiles) -> float | None:
    """Time of the last commit, in seconds since 1970 by the file system's clock; None before the first one.

    Raises `StoreError`.
    """
    with reached(files.folder, "read"):
        found = [table.commits.changed_at() for table in (files.table, files.sentences)]
    return max((time for time in found if time is not None), default=None)


def is_read(files: StoreFiles) -> bool:
    """True while rows of this generation are in memory; those that were added since may be missing."""
    held = files.held
    return held is not None and held[0][:2] == (files.manifest.id, files.manifest.generation)


def check_writable(files: StoreFiles) -> None:
    """Raise `StoreError` if the folder cannot be written. The lock is not taken, or a writer would be refused."""
    files.lock.check()
