"""Which image of a store each file is: an image follows its bytes, wherever files are moved, renamed or copied to.

A file of an image's bytes is one of its places. Where an image has lost a place, since its file is gone or holds other
bytes now, a new file of its bytes has moved there from it; else it is a copy. Copies of which somebody has told
different facts are images of their own, and so is a file that is named by the hash of its bytes, as uploads are.
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
from limner.search.image_look import Note, Outcome, Seen, Task, same_facts, told_of
from limner.store.entry import Place, StoredImage, key_of
from limner.store.missing import is_gone
from limner.store.uploads import is_added


class File(NamedTuple):
    """A regular file as the file system tells of it: its bytes, and nanoseconds."""

    size: int
    mtime: int


@dataclass(frozen=True)
class Plan:
    """The things to do about some files.

    - `kept`: images whose bytes are in the store, as they are now; `tasks`: files to read.
    - `replaced`: keys of images of which no file is left, since that of another image lies in their place; `fading`:
      others, of which that is so when the tasks are done; `left`: images without the places that they have lost.
    - `moves`: new paths by those that an image has no more.
    - `copies`: number of files that are new places of an image beside its others.
    """

    kept: list[Seen]
    tasks: list[Task]
    replaced: list[str]
    fading: list[StoredImage]
    left: list[StoredImage]
    moves: dict[str, str]
    copies: int


def stats_of(paths: Sequence[str], threads: Executor) -> dict[str, File]:
    """Files as the file system tells of them, by path; without those that cannot be read, or are none."""
    found = zip(paths, threads.map(_stat, paths), strict=True)
    return {path: file for path, file in found if file is not None}


def plan(
    paths: Sequence[str],
    files: Mapping[str, File],
    images: Iterable[StoredImage],
    notes: Mapping[str, Note],
    threads: Executor,
    tell: Callable[[int], None] = lambda count: None,
) -> Plan:
    """Decide which image each of these paths is; `files` is what `stats_of` says of them.

    Only files are read whose size another of them has, or an image. `images` are those of the store that have one of
    these paths or sizes, at least; `notes` are facts that are told now, by path. `tell` is called with the number of
    files that are kept.
    """
    rows = [_Row(image) for image in images]
    told = 0

    def tell_one() -> None:
        nonlocal told
        told += 1
        tell(1)

    making = _Making(files, rows, notes, _sums(files, rows, threads, tell_one))
    making.find_moves(paths)
    made = making.plan(paths)
    # some that have the bytes of an image are images of their own all the same
    tell(max(0, len(paths) - sum(1 + len(task.others) for task in made.tasks) - told))
    return made


@dataclass(eq=False)
class _Row:
    """An image of the store, and where its bytes lie now."""

    image: StoredImage
    places: dict[str, int] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    """Paths of it that are gone, or hold other bytes."""
    moved: bool = False


class _Making:
    """A plan while it is made: what is lost and new, then which of these are moves and copies, then what is told."""

    def __init__(
        self, files: Mapping[str, File], rows: list[_Row], notes: Mapping[str, Note], sums: Mapping[str, str]
    ) -> None:
        self.files, self.rows, self.notes, self.sums = files, rows, notes, sums
        self.at = {path: row for row in rows for path in row.image.paths}
        self.moves: dict[str, str] = {}
        self.copies = 0
        # first path of each new image, and its further ones; these once more
        self.fresh: dict[str, list[str]] = {}
        self.waiting: set[str] = set()

    def find_moves(self, paths: Sequence[str]) -> None:
        """Give each file to an image that has its bytes, or to a new one."""
        new: dict[str, list[str]] = defaultdict(list)
        for path in paths:
            if path in self.files and not self._is_held(path):
                # what has no digest has bytes that nothing else has
                new[self.sums.get(path, path)].append(path)
        known: dict[str, list[_Row]] = defaultdict(list)
        for row in self.rows:
            known[row.image.sha256].append(row)
            self._settle(row, new.get(row.image.sha256, ()))
        for digest, some in new.items():
            # where another picture lay first: what becomes of that is said by the first path of a new one
            left = sorted(self._moved(some, known.get(digest, ())), key=lambda path: path not in self.at)
            made: list[str] = []
            for path in left:
                if not self._is_copy(path, digest, known.get(digest, ()), made):
                    made.append(path)
                    self.fresh[path] = []

    def _is_held(self, path: str) -> bool:
        row = self.at.get(path)
        return row is not None and self.sums.get(path) == row.image.sha256

    def _settle(self, row: _Row, new: Sequence[str]) -> None:
        """Say which of its places an image still has. Those outside of the plan are looked at if it has others."""
        doubted = bool(new) or len(row.image.places) > 1
        for path, mtime in row.image.places:
            file = self.files.get(path)
            if file is not None:
                gone = not self._is_held(path)
            else:
                gone = doubted and (is_gone(path) or any(_is_renamed(path, one) for one in new))
            if gone:
                row.lost.append(path)
            else:
                row.places[path] = mtime if file is None else file.mtime

    def _moved(self, paths: Sequence[str], rows: Sequence[_Row]) -> list[str]:
        """Give new files to images that have lost as many; returns the others."""
        left = list(paths)
        # first by their names: of two images of the same bytes, each keeps its own in a folder that was renamed
        for by_name in (True, False):
            lost = {path: row for row in rows for path in row.lost if path not in self.moves}
            for path in list(left):
                # what a client adds is no picture of its owner's whose disk is away
                fits = (
                    one
                    for one in lost
                    if Path(one).name == Path(path).name or not (by_name or is_added(path))
                )
                if (before := next(fits, None)) is not None:
                    row = lost.pop(before)
                    row.places[path], row.moved = self.files[path].mtime, True
                    self.moves[before] = path
                    left.remove(path)
        return left

    def _is_copy(self, path: str, digest: str, rows: Sequence[_Row], made: Sequence[str]) -> bool:
        """Make a file a further place of an image or of a new one if nothing speaks against it."""
        claim = self._claim(path)

        def fits(first: str, told: Note) -> bool:
            return digest not in (Path(path).stem, Path(first).stem) and (
                claim in (Note(), told) or told == Note()
            )

        for row in rows:
            if row.places and fits(next(iter(row.places)), self._told([*row.places], told_of(row.image))):
                row.places[path] = self.files[path].mtime
                self.copies += 1
                return True
        for first in made:
            if fits(first, self._told([first, *self.fresh[first]], Note())):
                self.fresh[first].append(path)
                self.copies += 1
                return True
        return False

    def _claim(self, path: str) -> Note:
        """The facts that are told now of a file, or were told of the image that lay there."""
        if path in self.notes:
            return self.notes[path]
        row = self.at.get(path)
        return Note() if row is None else told_of(row.image)

    def _told(self, paths: Sequence[str], before: Note) -> Note:
        """The facts of an image at these paths, of which some were told before."""
        given = [self.notes[path] for path in paths if path in self.notes]
        # what was told of a picture that lay at one of these paths, and is gone, was told of this path, too
        known = given or [before, *map(self._claim, paths)]
        return next((one for one in known if one != Note()), known[0])

    def plan(self, paths: Sequence[str]) -> Plan:
        """Say what is to be done."""
        kept, edited, replaced = [], dict[str, StoredImage](), list[str]()
        fading, left = list[StoredImage](), list[StoredImage]()
        given = set(paths)
        taken = {row.image.id for row in self.rows}
        others_have = {path for row in self.rows for path in row.places}
        self.waiting.update(path for some in self.fresh.values() for path in some)
        for row in self.rows:
            if row.places:
                if not given.isdisjoint([*row.places, *row.lost]):
                    kept.append(self._kept(row))
                continue
            # other bytes at the same path, and nothing of the old ones: the picture was edited
            own = [path for path in row.lost if path in self.fresh]
            if some := [place for place in row.image.places if place.path in {*own, *self.waiting}]:
                image = row.image.at(some)
                left += [image] if len(some) < len(row.lost) else []
                if not own:
                    fading.append(image)
                    continue
                edited[own[0]] = image
                self.moves |= {path: own[0] for path in row.lost if path not in self.fresh}
            elif not others_have.isdisjoint(row.lost):
                replaced.append(row.image.id)
        tasks = []
        for path in paths:
            if path not in self.files:
                # the look tells the reason
                row_there = self.at.get(path)
                tasks.append(Task(path, None if row_there is None else row_there.image, self.notes.get(path)))
            elif path in self.fresh:
                others = tuple(Place(one, self.files[one].mtime) for one in self.fresh[path])
                note = self._told([path, *self.fresh[path]], self._claim(path))
                before = edited.get(path)
                key = before.id if before is not None else unused_key(path, note.key, taken)
                tasks.append(Task(path, before, note, key, others, self.sums.get(path)))
        return Plan(kept, tasks, replaced, fading, left, self.moves, self.copies)

    def _kept(self, row: _Row) -> Seen:
        before = row.image
        note = self._told(list(row.places), told_of(before))
        # a copy of which other facts are told now
        for path in [one for one in row.places if self.notes.get(one, Note()) not in (note, Note())]:
            del row.places[path]
            self.fresh[path] = []
        for path in row.lost:
            self.moves.setdefault(path, next(iter(row.places)))
        # what was told of a file stays told until that has been read
        row.places.update(place for place in before.places if place.path in {*self.fresh, *self.waiting})
        same = row.places == dict(before.places) and before.gone is None
        if same and self.notes.keys().isdisjoint(row.places):
            return Seen(before, "unchanged", write=False)
        now = before.at([Place(*place) for place in row.places.items()])
        now = note.on(replace(now, gone=None))
        outcome: Outcome = "moved" if row.moved else "unchanged"
        return Seen(now, outcome if same_facts(before, now) else "updated", write=now != before)


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
