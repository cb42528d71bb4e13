"""Which image of a store each file is: an image is its bytes, wherever files are moved, renamed or copied to.

All files of equal bytes are places of one image, of which stands what was told last of any of them. Files that clients
have added to a server are images of their own, so that none of theirs takes an owner's with it. Where nothing is left
of an image, and other bytes lie at a place of it, it was edited: these keep its key and what was told of it.
"""

import hashlib
import os
import secrets
import stat
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from limner.names import same_name
from limner.search.image_look import Note, Outcome, Seen, Task, Told, same_facts, told_of
from limner.store.entry import Place, StoredImage, key_of
from limner.store.missing import Away, is_gone
from limner.store.uploads import added_as


class File(NamedTuple):
    """A regular file as the file system tells of it: its bytes, and nanoseconds."""

    size: int
    mtime: int


@dataclass(frozen=True)
class Plan:
    """The things to do about some files.

    - `kept`: images whose bytes are in the store, as they are now; `tasks`: files to read.
    - `fading`: images of which no file is left when the tasks are done, as they are until then; `left`: those of them,
      and of the tasks, that have lost a place. `replaced`: keys of images whose places others of the store have.
    - `moves`: new paths by those that an image has no more.
    - `copies`: number of files that are new places of an image beside its others; `contradicted`: paths of which
      something else was told than of one of these.
    """

    kept: list[Seen]
    tasks: list[Task]
    fading: list[StoredImage]
    left: list[StoredImage]
    replaced: list[str]
    moves: dict[str, str]
    copies: int
    contradicted: list[str]


def stats_of(paths: Sequence[str], threads: Executor) -> dict[str, File]:
    """Files as the file system tells of them, by path; without those that cannot be read, or are none."""
    found = zip(paths, threads.map(_stat, paths), strict=True)
    return {path: file for path, file in found if file is not None}


def plan(
    paths: Sequence[str],
    files: Mapping[str, File],
    images: Iterable[StoredImage],
    told: Mapping[str, Told],
    threads: Executor,
    followed: Sequence[str] = (),
    tell: Callable[[int], None] = lambda count: None,
) -> Plan:
    """Decide which image each of these paths is; `files` is what `stats_of` says of them.

    Only files are read whose size another of them has, or an image. `images` are those of the store that have one of
    these paths or sizes, at least; `told` is what is told now, by path; `followed` are the folders that the store
    follows. `tell` is called with the number of files that are kept.
    """
    rows = [_Row(image) for image in images]
    hashed = 0

    def tell_one() -> None:
        nonlocal hashed
        hashed += 1
        tell(1)

    making = _Making(files, rows, told, _sums(files, rows, threads, tell_one), Away(followed))
    making.find_places(paths)
    made = making.plan(paths)
    # an upload may have the bytes of an image and be one of its own
    tell(max(0, len(paths) - sum(1 + len(task.others) for task in made.tasks) - hashed))
    return made


@dataclass(eq=False)
class _Row:
    """An image of the store, and where its bytes lie now: `new` are further places, `lost` are none any more."""

    image: StoredImage
    places: dict[str, int] = field(default_factory=dict)
    new: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    @property
    def is_elsewhere(self) -> bool:
        """True if all of it has moved."""
        return bool(self.new) and self.places.keys().isdisjoint(self.image.paths)


class _Making:
    """A plan while it is made: first which places each image has, then what is to be done."""

    def __init__(
        self,
        files: Mapping[str, File],
        rows: list[_Row],
        told: Mapping[str, Told],
        sums: Mapping[str, str],
        away: Away,
    ) -> None:
        self.files, self.rows, self.told, self.sums, self.away = files, rows, told, sums, away
        self.at = {path: row for row in rows for path in row.image.paths}
        self.fresh: dict[str, list[str]] = {}
        """First path of each new image, and its further ones."""
        self.order = {path: number for number, path in enumerate(told)}
        self.contradicted: list[str] = []

    def find_places(self, paths: Sequence[str]) -> None:
        """Give each file to the image that has its bytes, or to a new one."""
        new: dict[str, list[str]] = defaultdict(list)
        for path in paths:
            if path in self.files and not self._is_held(path):
                # what has no digest has bytes that nothing else has
                new[added_as(path) or self.sums.get(path, path)].append(path)
        known = {added_as(row.image.path) or row.image.sha256: row for row in reversed(self.rows)}
        unknown = []
        for picture, some in new.items():
            # an upload whose folder was moved is known by its name
            row = known.get(picture) or known.get(Path(picture).name)
            if row is None:
                unknown.append(some)
            else:
                row.new += some
        for row in self.rows:
            self._settle(row)
        for some in unknown:
            # where an image lay of which nothing is left: its key goes to the first path
            first, *others = sorted(some, key=lambda path: path not in self.at or bool(self.at[path].places))
            self.fresh[first] = others

    def _is_held(self, path: str) -> bool:
        row = self.at.get(path)
        return row is not None and self.sums.get(path) == row.image.sha256

    def _settle(self, row: _Row) -> None:
        """Say which places an image has now. Those outside of the plan are looked at if it has others."""
        doubted = bool(row.new) or len(row.image.places) > 1
        away = list[str]()
        for path, mtime in row.image.places:
            file = self.files.get(path)
            if file is not None:
                gone = not self._is_held(path)
            elif doubted and is_gone(path):
                gone = self.away.holding(path) is None
                if not gone:
                    away.append(path)
            else:
                gone = any(_is_renamed(path, one) for one in row.new)
            if gone:
                row.lost.append(path)
            else:
                row.places[path] = mtime if file is None else file.mtime
        # a folder that was renamed, or emptied into another, looks as one that is away: a new file for each that moved,
        # unless it may be a copy of one that is there
        if len(away) == len(row.places):
            for path in away[: max(0, len(row.new) - len(row.lost))]:
                del row.places[path]
                row.lost.append(path)
        row.places |= {path: self.files[path].mtime for path in row.new}

    def plan(self, paths: Sequence[str]) -> Plan:
        """Say what is to be done."""
        given = set(paths)
        kept, fading, replaced = [], list[StoredImage](), list[str]()
        edited, moves = dict[str, StoredImage](), dict[str, str]()
        copies = sum(map(len, self.fresh.values()))
        # files of new images, of which stays what was told until they are read
        unread = {path for first, others in self.fresh.items() for path in (first, *others)}
        others_have = {path for row in self.rows for path in row.places}
        for row in self.rows:
            if given.isdisjoint([*row.places, *row.lost]):
                continue
            waiting = [place for place in row.image.places if place.path in unread]
            own = next((path for path in row.lost if path in self.fresh), None)
            if row.places:
                kept.append(self._kept(row, waiting))
                copies += max(0, len(row.new) - len(row.lost))
                moves |= dict.fromkeys(row.lost, next(iter(row.places)))
            elif own is not None:
                edited[own] = row.image.at(waiting)
                moves |= {path: own for path in row.lost if path != own}
            elif waiting:
                fading.append(row.image.at(waiting))
            elif not others_have.isdisjoint(row.lost):
                replaced.append(row.image.id)
        tasks = self._tasks(paths, edited)
        staying = [*fading, *edited.values()]
        left = [image for image in staying if image.places != self.at[image.path].image.places]
        return Plan(kept, tasks, fading, left, replaced, moves, copies, self.contradicted)

    def _kept(self, row: _Row, waiting: Sequence[Place]) -> Seen:
        before = row.image
        places = {**row.places, **dict(waiting)}
        changed = places != dict(before.places) or before.gone is not None
        if not changed and self.told.keys().isdisjoint(places):
            return Seen(before, "unchanged", write=False)
        # what is told of an image that lies elsewhere, too, was not told of this one
        over = [self.at[path].image for path in row.new if path in self.at and not self.at[path].places]
        facts = self._facts(list(row.places), [before, *over])
        now = facts.on(replace(before.at([Place(*place) for place in places.items()]), gone=None))
        outcome: Outcome = "moved" if row.new and row.lost else "unchanged"
        return Seen(now, outcome if same_facts(before, now) else "updated", write=now != before)

    def _facts(self, paths: Sequence[str], images: Iterable[StoredImage | None]) -> Note:
        """The facts of an image at these paths; `images`: it, and those whose files it has now."""
        known = [facts for one in images if one is not None and (facts := told_of(one)) != Note()]
        facts, said = (known or [Note()])[0], dict[str, object]()
        for path in self._told_of(paths):
            told = self.told[path]
            facts = told.over(facts)
            if any(said.get(name, value) != value for name, value in told.facts.items()):
                self.contradicted.append(path)
            said |= told.facts
        return facts

    def _told_of(self, paths: Sequence[str]) -> list[str]:
        """Those of which something is told, as they were told, so that the last row of a table stands."""
        return sorted(self.told.keys() & set(paths), key=self.order.__getitem__)

    def _tasks(self, paths: Sequence[str], edited: Mapping[str, StoredImage]) -> list[Task]:
        taken = {row.image.id for row in self.rows}
        tasks = []
        for path in paths:
            if path not in self.files:
                # the look tells the reason
                tasks.append(Task(path))
            elif path in self.fresh:
                places = [path, *self.fresh[path]]
                others = tuple(Place(one, self.files[one].mtime) for one in self.fresh[path])
                before = edited.get(path)
                # an edited copy has the facts of the file; a picture that was saved where one lay that has moved, none
                known = [row.image for one in places if (row := self.at.get(one)) and not row.is_elsewhere]
                facts = self._facts(places, [before, *known])
                wanted = [None, *(self.told[one].key for one in self._told_of(places))][-1]
                key = before.id if before is not None else unused_key(path, wanted, taken)
                tasks.append(Task(path, before, facts, key, others, self.sums.get(path)))
        return tasks


def unused_key(path: str, key: str | None, taken: set[str]) -> str:
    """The key of a new image; another one than that of its path if an image that has moved on has that."""
    found = key or key_of(path)
    while found in taken:
        # drawn: an image that is not among these may have any that could be made of the path
        found = secrets.token_hex(16)
    taken.add(found)
    return found


def _sums(
    files: Mapping[str, File], rows: Sequence[_Row], threads: Executor, tell: Callable[[], None]
) -> dict[str, str]:
    """Digests of the files that could have the bytes of an image or of each other."""
    known = {place.path: (row.image, place.mtime) for row in rows for place in row.image.places}
    sums, opened = dict[str, str](), list[str]()
    for path, file in files.items():
        image, mtime = known.get(path, (None, None))
        if image is not None and file == (image.size, mtime):
            sums[path] = image.sha256
        else:
            opened.append(path)
    counts = Counter(files[path].size for path in opened)
    counts.update(2 * [row.image.size for row in rows])
    alike = [path for path in opened if counts[files[path].size] > 1]
    stored = {row.image.sha256 for row in rows}
    for path, digest in zip(alike, threads.map(_digest, alike), strict=True):
        if digest is not None:
            sums[path] = digest
            if digest in stored:
                tell()
    return sums


def _stat(path: str) -> File | None:
    try:
        path.encode()
        found = os.stat(path)  # noqa: PTH116 - a Path takes longer
    # also a name with a zero byte, or one that is not UTF-8
    except (OSError, ValueError):
        return None
    return File(found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None


def _digest(path: str) -> str | None:
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _is_renamed(before: str, now: str) -> bool:
    """True if two paths that differ in case or in how accents are written are one name of one file.

    So the systems of macOS and Windows find a file under its old name, too.
    """
    if _folded(before) != _folded(now):
        return False
    try:
        found = os.stat(now)  # noqa: PTH116
        return found.st_nlink == 1 and os.path.samestat(found, os.stat(before))  # noqa: PTH116
    except OSError:
        return False


def _folded(path: str) -> str:
    return same_name(path).casefold()
