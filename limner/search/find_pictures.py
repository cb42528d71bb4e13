"""Find the image files of folders, and count by ending what is passed over."""

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from limner.data.heif import SUFFIXES as HEIF
from limner.data.images import SUFFIXES, is_picture_name
from limner.errors import DataError, install_hint

_RAW = frozenset(
    {
        *(
            ".3fr",
            ".arw",
            ".cr2",
            ".cr3",
            ".crw",
            ".dcr",
            ".dng",
            ".erf",
            ".iiq",
            ".kdc",
            ".mrw",
            ".nef",
            ".nrw",
        ),
        *(".orf", ".pef", ".raf", ".raw", ".rw2", ".rwl", ".sr2", ".srf", ".srw", ".x3f"),
    }
)
_OTHERS = frozenset(
    {*(".eps", ".exr", ".hdr", ".ico", ".jxl", ".jxr", ".psd", ".svg", ".tga", ".xcf"), *HEIF}
)
_LONGEST = 12
"""Characters of an ending; what is longer is part of a name with a full stop in it."""


class FoundPictures(NamedTuple):
    """The image files of folders, and what was left out of them."""

    pictures: list[str]
    """Absolute paths, each once."""
    unlisted: list[tuple[str, str]]
    """Folders that cannot be listed, with the reason."""
    passed_over: dict[str, int]
    """How many other files there are by ending, those of pictures first; "" counts files without an ending."""


def find_pictures(paths: Iterable[str | Path]) -> FoundPictures:
    """Find the images of files and folders.

    A file is taken whatever its name; a folder is searched, in the order of names, for files with the ending of an
    image. Hidden files and folders in it are left out, and links to folders are not followed (they may lead in
    circles). Links stay as they are, so that a path is the one that the user knows.

    Raises `DataError` for a path that does not exist and when there is no image at all.
    """
    found: dict[str, None] = {}
    skipped: list[tuple[str, str]] = []
    passed: dict[str, str] = {}
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
            # in place: os.walk goes down into what the list still holds, in its order
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                if name.startswith("."):
                    continue
                whole = str(Path(folder) / name)
                if is_picture_name(name):
                    found[whole] = None
                else:
                    # by path: of two folders that are given, one may lie in the other
                    passed[whole] = _ending(name)
    # a file that was named is no longer passed over
    passed_over = _counted(ending for path, ending in passed.items() if path not in found)
    if not found and not skipped:
        where = ", ".join(map(str, given[:3])) or "an empty list"
        raise DataError(
            f"no pictures in {where}; looked for {', '.join(sorted(SUFFIXES))}{_instead(passed_over)}"
        )
    return FoundPictures(list(found), skipped, passed_over)


def is_picture_ending(ending: str) -> bool:
    """True for the ending of files that are pictures, also where nothing here reads them."""
    return ending in SUFFIXES or ending in _RAW or ending in _OTHERS


def told(passed_over: dict[str, int], most: int = 10) -> str:
    """Write such counts for people: `2 .heic, 3 .txt`."""
    parts = [f"{count:,} {ending or 'without an ending'}" for ending, count in passed_over.items()]
    more = [f"{len(parts) - most} more endings"] if len(parts) > most else []
    return ", ".join(parts[:most] + more)


def hint(passed_over: dict[str, int]) -> str | None:
    """The next step for pictures that were passed over; None if none were."""
    unread = {ending: count for ending, count in passed_over.items() if is_picture_ending(ending)}
    if not unread:
        return None
    step = f"HEIC needs more: {install_hint('heif')}" if HEIF & unread.keys() else ""
    if unread.keys() - HEIF:
        step = f"{step}; convert others, e.g. to JPEG" if step else "convert them, e.g. to JPEG"
    return f"pictures that cannot be read here: {told(unread)}; {step}"


def _ending(name: str) -> str:
    ending = Path(name).suffix.lower()
    # a name may hold bytes that are not UTF-8, or signs that a terminal obeys; an ending is a word
    return ending if len(ending) <= _LONGEST and ending.isprintable() and " " not in ending else ""


def _counted(endings: Iterable[str]) -> dict[str, int]:
    counts = Counter(endings)
    order = sorted(counts, key=lambda ending: (not is_picture_ending(ending), -counts[ending], ending))
    return {ending: counts[ending] for ending in order}


def _instead(passed_over: dict[str, int]) -> str:
    if not passed_over:
        return ""
    return f"; there are {hint(passed_over) or told(passed_over)}"
