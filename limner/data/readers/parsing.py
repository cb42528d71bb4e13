"""Reads annotation files that may hold anything: JSON, entries, split names, and where the images lie.

Each value is checked where it is taken.

Every complaint is one line, `FILE: PLACE: what was expected, what came`.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from limner.data.records import SPLITS
from limner.durable import from_json
from limner.errors import DataError
from limner.names import OnDisk

_DRIVE = re.compile(r"[A-Za-z]:")
# BCP 47 as far as its form goes; which subtags are registered is not asked. 35 characters hold its longest examples.
_LANGUAGE = re.compile(r"(?=.{2,35}$)[A-Za-z]{2,8}(?:-[A-Za-z0-9]{1,8})*")
_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")


TOP = "top level"
"""The place of the value that a whole file of JSON is."""

ANOTHER_FORM = "for another program's form see docs/data-formats.md#other-forms"
"""The next step for a file whose form is not that of the format that was named."""


def parse_json(text: str, file: Path, place: str = "") -> Any:
    """Parse JSON strictly: no NaN, no infinity, no half characters (which could not be written out again).

    Raises `DataError`; `place` says where in the file the text stood, for JSON lines.
    """
    where = f"{file}: {place}: " if place else f"{file}: "
    try:
        # Python's json reads NaN, and 1e999 as infinity; neither could be written to a report again.
        value = from_json(text, parse_constant=_refuse, parse_float=_finite)
    except json.JSONDecodeError as error:
        at = f"column {error.colno}" if place else f"line {error.lineno}, column {error.colno}"
        raise DataError(f"{where}JSON was expected, {error.msg} at {at}") from None
    # From our two hooks, ten thousand opening brackets, or an integer of more than 4,300 digits, which Python refuses.
    except ValueError as error:
        raise DataError(f"{where}JSON was expected, got {_cut(str(error))}") from None
    # Encoding everything takes as long as parsing, so only where an escape could make half a pair.
    if _HALF_CHARACTER.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            near = error.object[max(0, error.start - 30) : error.start]
            raise DataError(f"{where}half of a surrogate pair stands after {near!a}") from None
    return value


def shown(value: object) -> str:
    """A value as it stands in a message: one line, at most 60 characters."""
    return _cut(repr(value))


@dataclass(frozen=True, slots=True)
class AnnotationEntry:
    """One object of an annotation file and where it stands, e.g. "images[12]" or "line 7"."""

    file: Path
    place: str
    values: Mapping[str, Any]

    @classmethod
    def of(cls, file: Path, place: str, value: object) -> "AnnotationEntry":
        """Raises `DataError` when the value is not an object."""
        if not isinstance(value, dict):
            hint = f"; {ANOTHER_FORM}" if place == TOP else ""
            raise DataError(f"{file}: {place}: an object was expected, got {shown(value)}{hint}")
        return cls(file, place, value)

    def fail(self, problem: str) -> NoReturn:
        """Raise `DataError` with the place before the problem."""
        raise DataError(f"{self.file}: {self.place}: {problem}")

    def get(self, key: str) -> Any:
        """The value of a required key. Raises `DataError` when it is missing."""
        if key not in self.values:
            hint = f"; {ANOTHER_FORM}" if self.place == TOP else ""
            self.fail(f"'{key}' is missing; keys here: {shown(', '.join(self.values))}{hint}")
        return self.values[key]

    def text(self, key: str) -> str:
        """A required string. Raises `DataError`."""
        value = self.get(key)
        if not isinstance(value, str):
            self.fail(f"'{key}' must be a string, got {shown(value)}")
        return value

    def name(self, key: str) -> str:
        """A required string or whole number, as a string that is not blank. Raises `DataError`."""
        value = self.get(key)
        # In Python True is an int, and no name.
        if isinstance(value, bool) or not isinstance(value, int | str) or not str(value).strip():
            self.fail(f"'{key}' must be a number or a name, got {shown(value)}")
        return str(value).strip()

    def items(self, key: str) -> list[Any]:
        """A required list. Raises `DataError`."""
        value = self.get(key)
        if not isinstance(value, list):
            self.fail(f"'{key}' must be a list, got {shown(value)}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A required list of strings. Raises `DataError`."""
        values = self.items(key)
        for index, value in enumerate(values):
            if not isinstance(value, str):
                self.fail(f"{key}[{index}] must be a string, got {shown(value)}")
        return tuple(values)

    def labels(self, key: str = "labels") -> tuple[str, ...]:
        """Names in a list, or in a string with semicolons between them: each once, sorted; none where it is missing.

        Raises `DataError`.
        """
        whole = self.values.get(key)
        if whole is None:
            return ()
        # Semicolons, because commas separate a CSV file's cells.
        named = self.texts(key) if isinstance(whole, list) else self.text(key).split(";")
        return tuple(sorted({name.strip() for name in named} - {""}))

    def language(self, key: str = "language") -> str | None:
        """The tag of a language, such as "de"; None where it is missing or blank. Raises `DataError`."""
        value = self.values.get(key)
        return None if value is None else self._tag(value, f"'{key}'")

    def languages(self, key: str = "languages") -> tuple[str | None, ...]:
        """Tags of languages in a list, null where one is not known. Raises `DataError`."""
        return tuple(
            None if value is None else self._tag(value, f"{key}[{index}]")
            for index, value in enumerate(self.items(key))
        )

    def _tag(self, value: object, what: str) -> str | None:
        # CSV has no null: an empty cell is no language.
        tag = value.strip() if isinstance(value, str) else value
        if tag == "":
            return None
        if not isinstance(tag, str) or not _LANGUAGE.fullmatch(tag):
            self.fail(
                f"{what} must be the tag of a language, e.g. en, de or zh-Hant (letters, digits, hyphens), "
                f"got {shown(value)}"
            )
        return _cased(tag)

    def path(self, *keys: str) -> PurePosixPath:
        """Required strings, joined to a file path inside the dataset folder; backslashes become slashes.

        An absolute path inside that folder is taken as what it is there. Raises `DataError` for one that leads out of
        it, by ".." too.
        """
        parts = []
        for key in keys:
            if key not in self.values:
                self.fail(f"'{key}' is missing; keys here: {shown(', '.join(self.values))}; {ANOTHER_FORM}")
            # Sets that were made on Windows have backslashes.
            part = self.text(key).replace("\\", "/")
            # ".." as a part, not as letters: "a..b.jpg" is a name. An annotation file comes from somewhere else and
            # must not name files outside of its folder.
            if part.startswith("/") or _DRIVE.match(part):
                part = _without_folder(self.file, part)
            if part.startswith("/") or _DRIVE.match(part) or ".." in part.split("/"):
                self.fail(
                    f"'{key}' must be a path inside the dataset folder, got {shown(part)}; write it relative to "
                    f"{self.file.parent.absolute()}, or put {self.file.name} into the folder of the pictures"
                )
            parts.append(part)
        path = PurePosixPath(*parts)
        # With an empty `filename` the name would be that of the folder.
        if not path.name or not parts[-1] or "\0" in str(path):
            self.fail(f"'{keys[-1]}' must name a picture file, got {shown(parts[-1])}")
        return path


def _without_folder(file: Path, name: str) -> str:
    """An absolute path without the dataset's folder, if it lies there: some programs write paths of their disk."""
    for root in roots_of(file):
        # by either of its names: a folder may be reached through a link
        for folder in (root.absolute(), root.resolve()):
            begin = f"{folder.as_posix().rstrip('/')}/"
            if name.startswith(begin):
                return name[len(begin) :].lstrip("/")
    return name


def _cased(tag: str) -> str:
    """A tag in the usual case, which says nothing: "zh-hant-tw" and "ZH-Hant-TW" are one language (RFC 5646, 2.1.1)."""
    first, *rest = tag.lower().split("-")
    cased = [first]
    for part in rest:
        # Behind a single character (an extension such as "-x-") everything is in lower case.
        if len(cased[-1]) > 1 and part.isalpha() and len(part) in (2, 4):
            part = part.upper() if len(part) == 2 else part.title()
        cased.append(part)
    return "-".join(cased)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant}, which JSON does not have")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"the number {digits}, which is too large")
    return value


def _cut(text: str, limit: int = 60) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


PICTURE_FOLDERS = (
    "images",
    "imgs",
    "Images",
    "flickr30k-images",
    "flickr30k_images",
    "Flicker8k_Dataset",
    "Flickr8k_Dataset",
    # After the single one, which wins where both hold the pictures.
    "Flicker8k_Dataset/Flicker8k_Dataset",
    "train2014",
    "val2014",
    "train2017",
    "val2017",
    "jpg",
    "CUB_200_2011/images",
    "102flowers/jpg",
    # Last: beside the annotations is the weakest guess.
    ".",
)
"""Folders that are searched for images, beside the annotations. "Flicker8k" is the archive's own spelling, and
unpacking it into a folder of its name makes two of them."""

ANNOTATIONS = "annotations"
"""The folder of a dataset that its annotation files may lie in."""

_SAMPLE = 16


class PicturesMissingError(DataError):
    """None of a set's pictures is where it could be."""


def is_there(path: Path) -> bool:
    """True for the path of a readable file; False also for names that no file can have."""
    try:
        # A name that is too long is an OSError here, not False.
        return path.is_file()
    except (OSError, ValueError):
        return False


def one_of(folder: Path, names: Iterable[str], what: str) -> Path:
    """The one file of these names in a folder. Raises `DataError` unless there is exactly one."""
    names = list(names)
    files = [folder / name for name in names if is_there(folder / name)]
    if not files:
        raise DataError(f"{folder}: {what} was expected here, found none of {', '.join(names)}")
    if len(files) > 1:
        found = ", ".join(file.name for file in files)
        raise DataError(f"{folder}: one {what} was expected, found {found}; give the path of the one to use")
    return files[0]


def roots_of(file: Path, inner: str = ANNOTATIONS) -> tuple[Path, ...]:
    """Folders that may be the dataset's: the annotation file's and, where that is called `inner`, the one above."""
    return (file.parent, file.parent.parent) if file.parent.name == inner else (file.parent,)


def locate(
    file: Path,
    paths: Sequence[PurePosixPath],
    *,
    roots: Sequence[Path] = (),
    folders: Sequence[str] = PICTURE_FOLDERS,
) -> Callable[[PurePosixPath], Path]:
    """Find out in which folder of `roots` (default: that of the annotation file) the pictures lie.

    Sixteen of the paths, spread evenly, are tried in each of `folders`, as they are and by their bare name; the folder
    with most of them wins, the earlier at a tie. Returns what turns a path of the file into the path of the
    picture, with accents as the disk writes them. Raises `PicturesMissingError` when none of them is anywhere.
    """
    roots = roots or (file.parent,)
    count = min(_SAMPLE, len(paths))
    # Spread over the list: its first pictures may all be of one part that is not there.
    sample = [paths[index * len(paths) // count] for index in range(count)]
    best, best_hits, best_bare = roots[0], 0, False
    disk = OnDisk()
    # Whole paths before bare names: by name alone a picture of another folder might be taken.
    for root, bare, name in product(roots, (False, True), folders):
        folder = root / name
        hits = sum(is_there(disk.find(folder / (path.name if bare else path))) for path in sample)
        # Not `>=`: at a tie the earlier folder stays.
        if hits > best_hits:
            best, best_hits, best_bare = folder, hits, bare
    if best_hits == 0:
        looked = ", ".join("beside it" if name == "." else f"{name}/" for name in folders)
        example = shown(str(sample[0]))
        raise PicturesMissingError(
            f"{file}: none of its pictures was found, e.g. {example}; looked in {looked}"
        )

    # Decided once for all: a set whose pictures lie in two ways is not searched picture by picture.
    if best_bare:
        return lambda path: disk.find(best / path.name)
    return lambda path: disk.find(best / path)


_ALIASES = {
    **{split: split for split in SPLITS},
    "training": "train",
    "restval": "train",
    "dev": "val",
    "valid": "val",
    "validation": "val",
    "validate": "val",
    "testing": "test",
}


def split_name(entry: AnnotationEntry, key: str = "split") -> str | None:
    """limner's name of an entry's split; None if the entry names none (no key, null or blank).

    "restval" (the part of MSCOCO's validation pictures that Karpathy's split leaves over) joins "train".
    Raises `DataError` for a name that no dataset uses.
    """
    # CSV has no null: an empty cell is no split.
    value = entry.values.get(key)
    if value is None or value == "":
        return None
    known = _ALIASES.get(value.strip().lower()) if isinstance(value, str) else None
    if known is None:
        entry.fail(f"'{key}' must be one of {', '.join(_ALIASES)}, got {shown(value)}")
    return known
