"""Pictures whose file is gone, or only seems to be: a disk that is away makes every file look so."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from limner.store.folders import is_below

EMPTY = "is empty"
"""The reason why a folder seems to be away that is there and holds nothing: so is one where a disk is mounted."""
NOT_THERE = "is not there"
"""The reason why a folder seems to be away that is not there: its disk may be."""

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


class Away:
    """Folders that seem to be away, since their disk may be; each is looked at once."""

    def __init__(self, followed: Iterable[str]) -> None:
        self._followed, self._known = list(followed), dict[str, str | None]()

    def reason(self, folder: str) -> str | None:
        """The reason to think so; None if the folder is there and holds something."""
        if folder not in self._known:
            self._known[folder] = _reason(folder)
        return self._known[folder]

    def holding(self, path: str) -> str | None:
        """The folder that is away with a file: one that is followed, or else the nearest one that is there."""
        for folder in self._followed:
            if is_below(path, folder) and self.reason(folder) is not None:
                return folder
        folder = os.path.dirname(path)  # noqa: PTH120 - for each of many files
        while self.reason(folder) == NOT_THERE:
            folder = os.path.dirname(folder)  # noqa: PTH120
        return folder if self.reason(folder) is not None else None


def _reason(folder: str) -> str | None:
    try:
        return None if any(Path(folder).iterdir()) else EMPTY
    except (FileNotFoundError, NotADirectoryError):
        return NOT_THERE
    except OSError as error:
        return f"cannot be listed ({error.strerror})"


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
