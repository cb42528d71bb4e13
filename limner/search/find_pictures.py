"""Find the image files of folders, and count what is passed over: files by ending, folders by name.

Folders of other systems and programs hold what nobody put there to be found: small copies, previews, deleted files.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from limner.arguments import PATH, several
from limner.data.heif import SUFFIXES as HEIF
from limner.data.heif import has_heif, is_heif
from limner.data.images import SUFFIXES, browser_type, is_picture_name
from limner.errors import DataError, install_hint
from limner.store.files import StoreFiles
from limner.store.folders import Folder, folders_of
from limner.store.uploads import holds_uploads
from limner.text_files import text_lines

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
# of Synology, QNAP, Windows, Linux, macOS and Lightroom; by name, whatever its case
_FOREIGN = (
    *("@eadir", "#recycle", "#snapshot", "@recycle", "@recently-snapshot", "$recycle.bin", "recycler"),
    *("system volume information", "lost+found", "__macosx", "thumbnails", "*.lrdata"),
)
# of Photos, iPhoto and Aperture: below them only the originals are the user's pictures
_LIBRARIES = ("*.photoslibrary", "*.photolibrary", "*.migratedphotolibrary", "*.aplibrary")
_ORIGINALS = ("originals", "masters")

_IGNORED = ".limnerignore"
"""File of patterns of what is left out of its folder."""

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
    left_out: dict[str, int]
    """How many folders, links to folders and excluded names were not looked into, by name or pattern."""
    folders: tuple[Folder, ...] = ()
    """The folders that were given, but for those of uploads: these are followed."""


def find_pictures(paths: str | Path | Iterable[str | Path], exclude: Sequence[str] = ()) -> FoundPictures:
    """Find the images of files and folders.

    A file is taken whatever its name; a folder is searched, in the order of names, for files with the ending of an
    image, and for those of other or no endings whose first bytes are of one. Hidden files and folders in it are left
    out, and so are, counted, folders of other systems and programs, links to folders (they may lead in circles), a
    server's folder of uploads (name it itself), and what a pattern of `exclude` or of a file `.limnerignore` in its
    folder or above means: a name, or with a slash a path within that folder, with `*` and `?` as in a shell. Links stay
    as they are, so that a path is the one that the user knows.

    Raises `DataError` for a path that does not exist, a picture in memory, and when there is no image at all.
    """
    # somebody may have pictures in memory
    expected = (
        "index: the path of a picture or folder (save pictures in memory, or see limner index --vectors)"
    )
    given = [Path(path) for path in several(paths, PATH, expected)]
    search = _Search()
    folders: list[Folder] = []
    for path in given:
        # resolve() would follow links
        whole = os.path.abspath(path)  # noqa: PTH100
        if path.is_dir():
            folder = Folder(whole, tuple(exclude))
            search.look_through(folder)
            # what clients have added is theirs to delete: nothing may bring it back
            folders += [] if holds_uploads(whole) else [folder]
        elif path.exists():
            search.found[whole] = None
        else:
            raise DataError(f"{path}: no such file or folder")
    found = search.told(tuple(folders))
    if not found.pictures and not found.unlisted:
        where = ", ".join(map(str, given[:3])) or "an empty list"
        raise DataError(
            f"no pictures in {where}; looked for {', '.join(sorted(SUFFIXES))}{_instead(found.passed_over)}"
        )
    return found


def pictures_below(folders: Iterable[Folder], only: Collection[str] | None = None) -> FoundPictures:
    """Find the images of folders as `find_pictures` does, which may have none.

    `only`: no others than files and folders of these absolute paths, with all below them.
    """
    search = _Search(only)
    for folder in folders:
        if not holds_uploads(folder.path):
            search.look_through(folder)
    return search.told(())


def coming_back(files: StoreFiles, paths: Collection[str]) -> list[str]:
    """Those of some files that the next look at the folders of a store would index, if it did not hold them."""
    return pictures_below(folders_of(files), paths).pictures


class _Search:
    """Pictures that were found so far."""

    def __init__(self, only: Collection[str] | None = None) -> None:
        self.found: dict[str, None] = {}
        self._left: Counter[str] = Counter()
        self._unlisted: list[tuple[str, str]] = []
        self._passed: dict[str, str] = {}
        self._only = None if only is None else set(only)
        # the way to them
        self._above = {str(above) for path in only or () for above in Path(path).parents}

    def told(self, folders: tuple[Folder, ...]) -> FoundPictures:
        # a file that was named is no longer passed over
        passed_over = _counted(ending for path, ending in self._passed.items() if path not in self.found)
        return FoundPictures(
            list(self.found), self._unlisted, passed_over, dict(self._left.most_common()), folders
        )

    def look_through(self, given: Folder) -> None:
        """Find the images of a folder."""
        rules = [(given.path, pattern) for pattern in given.exclude]
        wanted = {given.path} if self._is_wanted(given.path, below=False) else set()
        for folder, folders, names in os.walk(given.path, onerror=self._note):
            if _IGNORED in names:
                rules += [(folder, pattern) for pattern in _patterns(Path(folder) / _IGNORED)]
            below = folder in wanted
            kept = []
            for name in sorted(name for name in folders if not name.startswith(".")):
                whole = str(Path(folder) / name)
                reason = _excluded(whole, rules) or _reason(folder, name)
                if reason is not None:
                    self._left[reason] += 1
                elif self._is_wanted(whole, below=below):
                    kept.append(name)
                    wanted.add(whole)
                elif whole in self._above:
                    kept.append(name)
            # in place: os.walk goes down into what the list still holds, in its order
            folders[:] = kept
            for name in sorted(names):
                whole = str(Path(folder) / name)
                if not name.startswith(".") and self._is_wanted(whole, below=below):
                    self._take(whole, name, rules)

    def _take(self, whole: str, name: str, rules: Iterable[tuple[str, str]]) -> None:
        if (pattern := _excluded(whole, rules)) is not None:
            self._left[pattern] += 1
        elif is_picture_name(name) or _is_picture(whole, name):
            self.found[whole] = None
        else:
            # by path: of two folders that are given, one may lie in the other
            self._passed[whole] = _ending(name)

    def _is_wanted(self, whole: str, *, below: bool) -> bool:
        return below or self._only is None or whole in self._only

    def _note(self, error: OSError) -> None:
        self._unlisted.append((str(error.filename), f"folder cannot be listed ({error.strerror})"))


def _patterns(file: Path) -> list[str]:
    return [line.strip() for line in text_lines(file) if line.strip() and not line.startswith("#")]


def _excluded(whole: str, rules: Iterable[tuple[str, str]]) -> str | None:
    """The first pattern that means a path, of patterns with the folder that each is of."""
    for folder, pattern in rules:
        asked = pattern.strip("/")
        if not whole.startswith(f"{folder.rstrip('/')}/"):
            continue
        within = whole[len(folder.rstrip("/")) + 1 :]
        if fnmatchcase(within if "/" in pattern.rstrip("/") else within.rpartition("/")[2], asked):
            return pattern
    return None


def _reason(folder: str, name: str) -> str | None:
    """The name under which a folder of another system or program, of uploads, or a link is counted; None for others."""
    lower = name.lower()
    if any(fnmatchcase(lower, pattern) for pattern in _FOREIGN):
        return name
    above = Path(folder).name.lower()
    if any(fnmatchcase(above, library) for library in _LIBRARIES) and lower not in _ORIGINALS:
        return f"{name} of a photo library"
    if holds_uploads(Path(folder, name)):
        return "folders of uploads"
    return "links to folders" if Path(folder, name).is_symlink() else None


def _is_picture(whole: str, name: str) -> bool:
    """True for the first bytes of a picture, unless the ending is of pictures that nothing here reads."""
    # raw files begin like TIFF, and their endings say so
    if is_picture_ending(Path(name).suffix.lower()):
        return False
    try:
        # a named pipe would block
        if not Path(whole).is_file():
            return False
        with Path(whole).open("rb") as file:
            beginning = file.read(64)
    except OSError:
        return False
    # two letters begin a BMP, and many a text
    return browser_type(beginning) not in (None, "image/bmp") or (has_heif() and is_heif(beginning))


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
