"""Pictures whose file is gone, or only seems to be: a disk that is away makes every file look so."""

import os
from collections.abc import Sequence
from pathlib import Path

_MANY = 10
"""If more than one picture of so many is gone, somebody should say that it is meant."""


def is_gone(path: str) -> bool:
    """True if there is no such file; a share that does not answer, or a folder that may not be read, says nothing."""
    try:
        os.stat(path)  # noqa: PTH116 - `Path.exists` says "no" to more errors
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        pass
    return False


def doubt(gone: Sequence[str], total: int) -> str | None:
    """The reason to ask before files of these paths are taken for deleted, of so many pictures; None for no doubt.

    A folder that is not there or holds nothing may be a disk that is not mounted.
    """
    for folder in sorted({Path(path).parent for path in gone}):
        if is_gone(str(folder)):
            # the first one that is away
            whole = [one for one in folder.parents if is_gone(str(one))]
            return f"the folder {whole[-1] if whole else folder} is not there"
        try:
            if not any(folder.iterdir()):
                return f"the folder {folder} is empty"
        except OSError as error:
            return f"the folder {folder} cannot be listed ({error.strerror})"
    return "that is more than a tenth of the store" if many(len(gone), total) else None


def many(gone: int, total: int) -> bool:
    """True if so many pictures of all are gone that somebody should say that it is meant."""
    return _MANY * gone > total
