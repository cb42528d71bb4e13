"""Names as Unicode has them: the letters "é" of one sign and of two are the same name.

Disks, tables and keyboards differ in how they write it (macOS and some tables take letters and accents apart). Of two
names that are both there the exact one is meant; otherwise the one that is canonically equal.
"""

import os
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from limner.errors import DataError


def same_name(name: str) -> str:
    """A name with its accents written in one way, by which canonically equal names are compared (Unicode's NFC).

    >>> same_name("cafe\\u0301") == same_name("caf\\u00e9")
    True
    """
    return unicodedata.normalize("NFC", name)


class Spelling:
    """How paths that are known are spelled, and the folders above them."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = paths
        self._exact: set[str] = set()
        self._same: dict[str, set[str]] = {}

    def of(self, path: str) -> str:
        """The known path that is meant: the same one, else the canonically equal one, else the path as it is.

        Raises `DataError` if several are equal to it, and none is the same.
        """
        # nearly every name, and then nothing is read
        if path.isascii():
            return path
        if not self._exact:
            self._read()
        found = {path} if path in self._exact else self._same.get(same_name(path), {path})
        return _only(path, found)

    def _read(self) -> None:
        for path in self._paths:
            while path and path not in self._exact:
                self._exact.add(path)
                if not path.isascii():
                    self._same.setdefault(same_name(path), set()).add(path)
                path = path.rpartition(os.sep)[0]


class OnDisk:
    """Finds files by their names in whichever form the disk has them; it reads each folder once."""

    def __init__(self) -> None:
        self._folders: dict[Path, Spelling] = {}

    def find(self, path: Path) -> Path:
        """The file that is meant, as `Spelling.of`; the path as it is if no file has the name."""
        try:
            if str(path).isascii() or path.exists():
                return path
            folder = self.find(path.parent)
            if folder not in self._folders:
                self._folders[folder] = Spelling([one.name for one in folder.iterdir()])
            return folder / self._folders[folder].of(path.name)
        # no such folder, no right to read it, or a name that no file can have
        except (OSError, ValueError):
            return path


def _only(path: str, found: set[str]) -> str:
    if len(found) > 1:
        names = " and ".join(ascii(name) for name in sorted(found))
        raise DataError(f"{path!a} may be {names}, which differ in how their accents are written; rename one")
    return next(iter(found))
