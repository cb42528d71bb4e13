"""Make a store what its folders are: new, changed, moved and deleted files, at once or of some paths only.

A deleted file leaves the search, and its picture waits in the store: if it comes back, nothing is encoded again and
what was told of it is there. After a time it is erased. A folder that is away, or may be, changes nothing.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce
from pathlib import Path

from pydantic import Field

from limner.counted import counted
from limner.errors import SettingsError
from limner.search.find_pictures import FoundPictures, pictures_below
from limner.search.index import index_pictures
from limner.search.places import Plan, plan, stats_of
from limner.search.sentences import SentenceTable
from limner.settings import Settings
from limner.store.entry import StoredImage
from limner.store.erase import erase
from limner.store.files import StoreFiles
from limner.store.folders import Folder, folders_of, is_below
from limner.store.missing import EMPTY, NOT_THERE, Away, is_gone, many
from limner.store.snapshot import Snapshot
from limner.store_reports import IndexReport, SyncReport
from limner.types import Encoder


class SyncSettings(Settings):
    """How a store is made what its folders are."""

    kept_days: float = Field(default=30.0, ge=0)
    """Days for which the picture of a deleted file waits for it to come back; then it is erased. 0 = at once."""

    yes: bool = False
    """Files of folders that are away or empty, and of more than a tenth of the store, are gone for good."""

    dry_run: bool = False
    """Only say what would change."""

    batch_size: int = Field(default=64, ge=1)
    """Pictures that are encoded together."""

    part: int | None = Field(default=None, ge=1)
    """Files after which it commits, and lets others write; None = it indexes all of them in one go."""


_DAY = 86400.0


def sync(
    encoder: Encoder,
    files: StoreFiles,
    how: SyncSettings | None = None,
    *,
    only: Collection[str] | None = None,
    leave: Set[str] = frozenset(),
    now: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> SyncReport:
    """Index new and changed files of the folders that a store follows, and take out pictures whose files are gone.

    - `only`: absolute paths of files and folders, to look at no others; the erasure of pictures that wait is left to a
      call without it.
    - `now`: the time by which pictures have waited, seconds since 1970; None = by the clock.
    - `leave`: absolute paths of files that are being written, of which a later call has to be told.

    Raises `SettingsError` for a store that follows no folder, and what `limner.search.index.index_pictures` raises.
    """
    how = how or SyncSettings()
    waited = _waiting(files)
    folders = expect_folders(files)
    away = {} if how.yes else _seem_away(files, folders)
    there = [one for one in folders if one.path not in away and Path(one.path).is_dir()]
    found = pictures_below(there, only)
    found = found._replace(pictures=[path for path in found.pictures if path not in leave])
    moved: Set[str] = set()
    if how.dry_run:
        report, moved = _planned(files, found)
    else:
        report = _indexed(encoder, files, found, how, progress)
    looked = [one.path for one in folders if one.path not in away]
    with files.writing():
        gone, lost, doubt, below = _gone(files, looked, only, moved, yes=how.yes)
        if doubt is None and not how.dry_run:
            _take_out(files, gone, lost)
    erased = 0
    if only is None and not how.dry_run:
        erased = _erase_overdue(files, how.kept_days, time.time() if now is None else now)
    waiting = _waiting(files)
    out = len(gone) if doubt is None and not how.dry_run else 0
    return SyncReport(
        **dict(report),
        returned=max(0, waited + out - erased - waiting),
        gone=tuple(path for image in gone for path in image.paths),
        copies_gone=len(lost) - sum(len(image.paths) for image in gone),
        doubt=doubt,
        away=tuple(sorted({**away, **below}.items())),
        erased=erased,
        waiting=waiting,
        dry_run=how.dry_run,
        whole=only is None,
    )


def _waiting(files: StoreFiles) -> int:
    """Number of images that wait for their files."""
    return len(files) - len(files.snapshot().vectors)


def expect_folders(files: StoreFiles) -> list[Folder]:
    """The folders that a store follows. Raises `SettingsError` for a store that follows no folder."""
    folders = folders_of(files)
    if not folders:
        raise SettingsError(
            f"{files.folder}: follows no folder; index one with `limner index RUN {files.folder} PICTURES`"
        )
    return folders


def _followed(files: StoreFiles) -> list[str]:
    return [one.path for one in folders_of(files)]


def _seem_away(files: StoreFiles, folders: Sequence[Folder]) -> dict[str, str]:
    """Folders that seem to be away, with the reason.

    One that is empty or not there waits if a search finds no picture of it: all may have moved, or been given up.
    """
    seen = Away(())
    away = {one.path: reason for one in folders if (reason := seen.reason(one.path)) is not None}
    return {
        path: reason
        for path, reason in away.items()
        if reason not in (EMPTY, NOT_THERE) or next(_below(files.snapshot(), [path]), None) is not None
    }


def _indexed(
    encoder: Encoder,
    files: StoreFiles,
    found: FoundPictures,
    how: SyncSettings,
    progress: Callable[[int, int], None] | None,
) -> IndexReport:
    total = len(found.pictures)

    def reports() -> Iterator[IndexReport]:
        done, first = 0, found
        for paths in _parts(files, found, how):
            tell = None if progress is None else _shifted(progress, done, total)
            some = first._replace(pictures=paths)
            yield index_pictures(encoder, files, some, batch_size=how.batch_size, progress=tell)
            # what was passed over counts once
            done, first = done + len(paths), FoundPictures([], [], {}, {})

    return reduce(_both, reports())


def _parts(files: StoreFiles, found: FoundPictures, how: SyncSettings) -> Iterator[list[str]]:
    if how.part is None or len(found.pictures) <= how.part:
        yield found.pictures
        return
    tasks = [[task.path, *(place.path for place in task.others)] for task in _plan(files, found).tasks]
    new = {path for paths in tasks for path in paths}
    # what the store has goes first and together, and copies with each other: a part would miss where else bytes lie
    part = [path for path in found.pictures if path not in new]
    # the first new ones are found within seconds
    start, step = 0, min(how.batch_size, how.part)
    while part or start < len(tasks):
        yield part + [path for paths in tasks[start : start + step] for path in paths]
        part, start, step = [], start + step, min(2 * step, how.part)


def _shifted(tell: Callable[[int, int], None], start: int, total: int) -> Callable[[int, int], None]:
    return lambda done, _: tell(start + done, total)


def _both(one: IndexReport, other: IndexReport) -> IndexReport:
    values = {}
    for name, value in dict(one).items():
        more = getattr(other, name)
        values[name] = (
            {**value, **more} if isinstance(value, dict) else value + more if value is not None else more
        )
    return IndexReport(**values)


def _plan(files: StoreFiles, found: FoundPictures) -> Plan:
    with ThreadPoolExecutor() as threads:
        stats = stats_of(found.pictures, threads)
        images = files.images([*stats], {one.size for one in stats.values()})
        return plan(found.pictures, stats, images, {}, threads, _followed(files))


def _planned(files: StoreFiles, found: FoundPictures) -> tuple[IndexReport, Set[str]]:
    """Say what indexing would do, by what is seen without decoding, and from which paths pictures would move."""
    planned = _plan(files, found)
    outcomes = [seen.outcome for seen in planned.kept]
    report = IndexReport(
        added=sum(task.stored is None for task in planned.tasks),
        updated=sum(task.stored is not None for task in planned.tasks),
        unchanged=outcomes.count("unchanged"),
        moved=outcomes.count("moved"),
        copies=planned.copies,
        replaced=len(planned.replaced),
        skipped=tuple(found.unlisted),
        passed_over=found.passed_over,
        left_out=found.left_out,
    )
    return report, planned.moves.keys()


def _gone(
    files: StoreFiles, folders: Sequence[str], only: Collection[str] | None, moved: Set[str], *, yes: bool
) -> tuple[list[StoredImage], set[str], str | None, dict[str, str]]:
    """Images of which no file is left, files that are gone, the reason to doubt it, and folders that are away below."""
    snapshot = files.snapshot()
    tops = folders if only is None else [path for path in only if any(is_below(path, top) for top in folders)]
    lost = {path for path in _below(snapshot, tops) if path not in moved and is_gone(path)}
    # looked at anew: a disk may have gone since this look began
    seen, away = Away(folders), dict[str, str]()
    for path in () if yes else sorted(lost):
        if (folder := seen.holding(path)) is not None:
            away[folder] = str(seen.reason(folder))
            lost.remove(path)
    known = files.images(sorted(lost)) if lost else []
    gone = [image for image in known if image.gone is None and lost.issuperset(image.paths)]
    doubt = None
    if not yes and many(len(gone), len(snapshot.vectors)):
        # files, so that it reads well of one picture, too
        doubt = f"the files of {counted(len(gone), 'pictures', of=len(snapshot.vectors))} are gone, more than a tenth"
    return gone, lost, doubt, away


def _below(snapshot: Snapshot, tops: Sequence[str]) -> Iterator[str]:
    paths, further = snapshot.columns.paths, [path for some in snapshot.columns.others for path in some]
    for top in tops:
        start = bisect_left(paths, top)
        for place in range(start, len(paths)):
            # what is below a folder stands together, but for names that begin as the folder's own
            if not paths[place].startswith(top):
                break
            if is_below(paths[place], top):
                yield paths[place]
        yield from (path for path in further if is_below(path, top))


def _take_out(files: StoreFiles, gone: Sequence[StoredImage], lost: set[str]) -> None:
    if not lost:
        return
    now = int(time.time())
    left, moves = list[StoredImage](), dict[str, str]()
    for image in files.images(sorted(lost)):
        out = lost.intersection(image.paths)
        # an image that has lost a place beside others
        if out and (places := [place for place in image.places if place.path not in out]):
            left.append(image.at(places))
            moves |= dict.fromkeys(out, places[0].path)
    with files.changing() as writer:
        writer.update([*(replace(image, gone=now) for image in gone), *left])
        SentenceTable(files).move(writer, moves)


def _erase_overdue(files: StoreFiles, kept_days: float, now: float) -> int:
    """Erase the images whose files have been gone for so long."""
    if not _waiting(files):
        return 0
    # held from the look on: what another process finds again meanwhile would be erased with what was told of it
    with files.writing():
        waiting = [image for image in files.images() if image.gone is not None]
        due = [image.id for image in waiting if (image.gone or 0) + kept_days * _DAY <= now]
        # written while the clock was wrong: from now on
        late = [replace(image, gone=int(now)) for image in waiting if (image.gone or 0) > now + _DAY]
        if late:
            with files.changing() as writer:
                writer.update(late)
        if due:
            erase(files, due)
    return len(due)
