"""The doctor's look at the picture files: there, readable, the same as another, not listed."""

import hashlib
import os
import stat
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from limner.data.check_report import Problem
from limner.data.drawn_splits import split_source
from limner.data.images import SUFFIXES, decode
from limner.data.records import Dataset, Record
from limner.errors import ImageError

Progress = Callable[[int, int], None]
"""Called with (pictures done, pictures in all)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of one picture file; `digest` of its bytes where it was opened, `reason` where unreadable."""

    state: Literal["sound", "missing", "unreadable"]
    digest: bytes = b""
    reason: str = ""


def inspect_pictures(
    paths: Sequence[Path], *, workers: int, progress: Progress | None, open_images: bool
) -> list[Finding]:
    """Look at each file, on `workers` threads (0: on this one): decoding and hashing leave Python free.

    Pictures are decoded to their end, JPEGs at an eighth of their size, since only there a file that was cut
    off shows it. Without `open_images` only their presence is tested.
    """

    def look(path: Path) -> Finding:
        return _inspect(path, open_images)

    findings: list[Finding] = []
    with ThreadPoolExecutor(max(1, workers)) as pool:
        for finding in pool.map(look, paths) if workers > 0 else map(look, paths):
            findings.append(finding)
            if progress is not None:
                progress(len(findings), len(paths))
    return findings


def _inspect(path: Path, open_images: bool) -> Finding:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return Finding("unreadable", reason=f"{path}: not a file")
        if not open_images:
            return Finding("sound")
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").digest()
        decode(path, short_side=1)
    except (FileNotFoundError, NotADirectoryError):
        return Finding("missing")
    except ImageError as error:
        return Finding("unreadable", reason=str(error))
    except (OSError, ValueError) as error:
        return Finding("unreadable", reason=f"{path}: {error}")
    return Finding("sound", digest=digest)


def file_problems(
    dataset: Dataset, *, workers: int, progress: Progress | None, open_images: bool
) -> Iterator[Problem]:
    """The problems of a dataset's picture files. A file that is listed twice is looked at once."""
    listed: dict[Path, list[Record]] = defaultdict(list)
    for record in dataset.records:
        listed[record.image].append(record)
    root = _root(list(listed))
    findings = dict(
        zip(
            listed,
            inspect_pictures(list(listed), workers=workers, progress=progress, open_images=open_images),
            strict=True,
        )
    )
    missing = [path for path in listed if findings[path].state == "missing"]
    if missing:
        yield Problem("missing-picture", "error", len(missing), _short(missing[0], root))
    broken = [finding for finding in findings.values() if finding.state == "unreadable"]
    if broken:
        yield Problem(
            "unreadable-picture", "error", len(broken), broken[0].reason.replace(f"{root}{os.sep}", "")
        )
    repeated = [path for path, records in listed.items() if len(records) > 1]
    if repeated:
        times = len(listed[repeated[0]])
        example = f"{_short(repeated[0], root)} ({times} times)"
        yield Problem("listed-twice", "error", len(repeated), example)
    yield from _duplicates(listed, findings, root)
    unlisted = _unlisted(dataset, set(listed))
    if unlisted:
        yield Problem("unlisted-picture", "warning", len(unlisted), _short(unlisted[0], root))


def _duplicates(
    listed: dict[Path, list[Record]], findings: dict[Path, Finding], root: Path
) -> Iterator[Problem]:
    """Of k files with the same bytes, k − 1 are duplicates; across splits they are a leak, and only that."""
    same: dict[bytes, list[Path]] = defaultdict(list)
    for path, finding in findings.items():
        if finding.digest:
            same[finding.digest].append(path)
    across, within = 0, 0
    leak, twin = "", ""
    for paths in same.values():
        first, rest = paths[0], paths[1:]
        if not rest:
            continue
        names = {path: f"{_short(path, root)} ({listed[path][0].split or 'no split'})" for path in paths}
        elsewhere = next((path for path in rest if listed[path][0].split != listed[first][0].split), None)
        if elsewhere is not None:
            across += len(rest)
            leak = leak or f"{names[first]} = {names[elsewhere]}"
        else:
            within += len(rest)
            twin = twin or f"{names[first]} = {names[rest[0]]}"
    if across:
        yield Problem("duplicate-across-splits", "error", across, leak)
    if within:
        yield Problem("duplicate-picture", "warning", within, twin)


def _unlisted(dataset: Dataset, listed: set[Path]) -> list[Path]:
    """Pictures beside the listed ones; for a captions file, also anywhere below it."""
    if dataset.source.startswith("mscoco-labels:"):
        return []  # its reader leaves out the pictures without a label, and most of the validation part
    folders = {path.parent for path in listed}
    name, _, rest = split_source(dataset.source)[0].partition(":")
    if name == "folder":
        base = Path(rest).expanduser()
        folders |= {Path(at) for at, _, _ in os.walk(base if base.is_dir() else base.parent)}
    names = {os.path.normpath(path) for path in listed}
    return sorted(
        path for folder in folders for path in _pictures_in(folder) if os.path.normpath(path) not in names
    )


def _pictures_in(folder: Path) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                # macOS leaves "._photo.jpg" beside each photo.
                hidden = entry.name.startswith(".")
                if not hidden and Path(entry.name).suffix.lower() in SUFFIXES and entry.is_file():
                    yield folder / entry.name
    except OSError:
        return


def _root(paths: Sequence[Path]) -> Path:
    """The deepest folder that all pictures are in, for names that fit a line."""
    return Path(os.path.commonpath([path.parent for path in paths])) if paths else Path()


def _short(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
