"""Which picture files a list of files and folders means."""

import os
from collections.abc import Iterable
from pathlib import Path

from limner.data.images import SUFFIXES
from limner.errors import DataError


def find_pictures(paths: Iterable[str | Path]) -> tuple[list[str], list[tuple[str, str]]]:
    """Absolute paths of the pictures, each once, and what cannot be listed with the reason.

    A file is taken whatever its name; a folder is searched through, in order of names, for files with the
    ending of a picture. Hidden files and folders in it are passed over, and links to folders are not
    followed (they may lead in circles). Links are kept as they are: the path is the one the user knows.

    Raises `DataError` for a path that does not exist and when there is no picture at all.
    """
    found: dict[str, None] = {}
    skipped: list[tuple[str, str]] = []
    given = [Path(path) for path in paths]

    def unlisted(error: OSError) -> None:
        skipped.append((str(error.filename), f"folder cannot be listed ({error.strerror})"))

    for path in given:
        if not path.is_dir():
            if not path.exists():
                raise DataError(f"{path}: no such file or folder")
            found[os.path.abspath(path)] = None  # noqa: PTH100 - resolve() would follow links
            continue
        for folder, folders, names in os.walk(os.path.abspath(path), onerror=unlisted):  # noqa: PTH100
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES:
                    found[str(Path(folder) / name)] = None
    if not found and not skipped:
        where = ", ".join(map(str, given[:3])) or "an empty list"
        raise DataError(f"no pictures in {where}; looked for {', '.join(sorted(SUFFIXES))}")
    return list(found), skipped
