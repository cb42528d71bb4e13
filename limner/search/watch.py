"""Keep a store what its folders are for as long as the process runs.

The system tells of changes (`watchfiles`); files are read when they have settled, those that changed and no others. All
folders are looked through at the start, every so often, and after a flood of changes: no system tells of every change,
and that of a network tells of none.
"""

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from math import inf
from pathlib import Path

from limner.errors import LimnerError, SettingsError, StoreError, install_hint
from limner.search.sync import SyncSettings, sync
from limner.store.files import StoreFiles
from limner.store.folders import folders_of, is_below
from limner.store_reports import SyncReport
from limner.types import Encoder

_HOUR = 3600.0

_SETTLED = 2.0
"""Seconds without a change after which changed files are looked at."""

_LONGEST = 30.0
"""Seconds of changes without such a pause after which those files are looked at that have settled."""

_FLOOD = 1_000
"""Changes at once from which all folders are looked through: the system may have dropped others."""

_AGAIN = 30.0
"""Seconds after which something that failed is tried again, or is looked at that another process may have decided."""

_SILENT = 60.0
"""Longest time between two looks through folders of whose changes the system does not tell."""

_NETWORK = {
    "9p",
    "afs",
    "cifs",
    "davfs",
    "drvfs",
    "nfs",
    "nfs4",
    "prl_fs",
    "smb3",
    "smbfs",
    "vboxsf",
    "virtiofs",
}
"""File systems whose changes by others are told to nobody; and all of FUSE."""

_END = {"model", "damaged", "forbidden"}  # troubles of a store that no waiting mends


Told = Callable[[SyncReport | str], None]
"""Is told what was done, and in a line what went wrong, what follows from it, and that it is over."""


def watch(
    encoder: Encoder,
    files: StoreFiles,
    told: Told,
    how: SyncSettings | None = None,
    *,
    every: float = 600.0,
    stop: threading.Event | None = None,
    progress: Callable[[int, int], None] | None = None,
    after: Callable[[], None] = lambda: None,
) -> None:
    """Keep a store what its folders are until `stop` is set.

    All folders are looked through `every` so many seconds; `how` and `progress` are those of `limner.search.sync.sync`.
    `after` is called about once a second, after each look, too.
    A store that another process writes, or whose disk is away, is waited for. Raises `SettingsError` without watchfiles
    or for a store that follows no folder, `StoreError` for one that is damaged or of another model.
    """
    stop = stop or threading.Event()
    expect_watchfiles()
    rounds = _Rounds(
        files, partial(sync, encoder, files, progress=progress), told, how or SyncSettings(), every
    )
    while not stop.is_set():
        folders = rounds.folders()
        there = _identities(folders)
        rounds.due = time.monotonic()
        # the system tells from before the first look: what changes meanwhile is looked at again
        for changed in _changes(list(there), files, stop, rounds.unheard):
            rounds.take(changed, stop)
            after()
            # one that was away is back, another disk lies in its place, or there is one more
            if rounds.folders() != folders or _identities(folders) != there:
                break


def expect_watchfiles() -> None:
    """Raise `SettingsError` if the library that tells of changes is not installed."""
    try:
        import watchfiles  # noqa: F401 - an extra
    except ImportError:
        raise SettingsError(f"watching folders needs watchfiles: {install_hint('watch')}") from None


class _Rounds:
    """Looks at what has changed, and at everything when that is due."""

    def __init__(
        self,
        files: StoreFiles,
        look: Callable[..., SyncReport],
        told: Told,
        how: SyncSettings,
        every: float,
    ) -> None:
        self.files, self.look, self.told, self.how, self.every = files, look, told, how, every
        self.due = time.monotonic()
        # as soon as the system tells of no changes
        self._is_unheard = False
        self._waiting: set[str] = set()
        self._trouble = ""
        self._folders: list[str] = []
        self._standing: dict[str, str] = {}
        self._away: dict[str, str] = {}
        self._skipped: dict[str, str] = {}
        self._left: tuple[object, ...] = ()
        """The store's state that the last look left."""
        self._clocks = time.time(), time.monotonic()
        self._jumped = -inf

    def folders(self) -> list[str]:
        """The folders that the store follows; while it is away, those that it did."""
        try:
            self._folders = [one.path for one in folders_of(self.files)]
        except StoreError as error:
            if error.trouble in _END:
                raise
        return self._folders

    def unheard(self, why: str) -> None:
        """From now on look through all folders as often as on a disk of a network."""
        if not self._is_unheard:
            self._trouble = f"the system tells of no changes ({why}); looking for them every minute"
            self.told(self._trouble)
        self._is_unheard = True
        self.due = min(self.due, time.monotonic() + self._pause())

    def _pause(self) -> float:
        silent = self._is_unheard or any(map(_is_silent, self._folders))
        return min(self.every, _SILENT) if silent else self.every

    def take(self, changed: Collection[str], stop: threading.Event) -> None:
        """Look at files that changed, and that have settled; all, if that is due."""
        self._waiting.update(changed)
        # as `limner store sync --yes`: a look at some files does not see what it has decided
        if self._standing and self._state() != self._left:
            self._left = self._state()
            self.due = min(self.due, time.monotonic() + _AGAIN)
        if len(self._waiting) > _FLOOD:
            self.due = min(self.due, time.monotonic())
        settled = _settled(self._waiting, stop)
        # where it doubts, or a folder is away: a look at some files could not say that it is over
        standing = any(not name or is_below(path, name) for name in self._standing for path in settled)
        whole = time.monotonic() >= self.due or standing
        if stop.is_set() or not (whole or settled):
            return
        try:
            self._say(self._look(settled, whole=whole))
        except LimnerError as error:
            if stop.is_set():
                return
            if isinstance(error, StoreError) and error.trouble in _END:
                raise
            # another writer is nothing to tell of, and what goes on failing is told once
            if not (isinstance(error, StoreError) and error.trouble == "busy"):
                if str(error) != self._trouble:
                    self.told(f"{error}; trying again")
                self._trouble = str(error)
            # the next look at everything finds these files
            self._waiting.clear()
            self.due = time.monotonic() + _AGAIN
        else:
            self._trouble = ""
            if whole:
                self.due = time.monotonic() + self._pause()
            self._waiting -= settled
            self._left = self._state()

    def _state(self) -> tuple[object, ...]:
        """The value that changes with every commit to the store; while that is away, as it was."""
        try:
            return self.files.rows.identity()
        except StoreError:
            return self._left

    def _look(self, settled: set[str], *, whole: bool) -> SyncReport:
        steady = not whole or self._clock_is_steady()
        return self.look(
            self.how if steady else self.how.replace(kept_days=float("inf")),
            only=None if whole else settled,
            leave=self._waiting - settled,
            # by the clock that was looked at: it may jump meanwhile
            now=self._clocks[0] if whole else None,
        )

    def _clock_is_steady(self) -> bool:
        """False for an hour after the clock has jumped by one: nothing is erased then because of its age."""
        before, self._clocks = self._clocks, (time.time(), time.monotonic())
        passed, counted = (now - then for now, then in zip(self._clocks, before, strict=True))
        if abs(passed - counted) >= _HOUR:
            self._jumped = self._clocks[1]
        return self._clocks[1] - self._jumped >= _HOUR

    def _say(self, report: SyncReport) -> None:
        # of other folders a look at some files says nothing
        self._away = dict(report.away) if report.whole else self._away | dict(report.away)
        report = report.model_copy(update={"away": tuple(sorted(self._away.items()))})
        # a disk that stays away is told once, and so are files that cannot be read; that trouble is over is news
        before, now = self._standing, report.standing(self.files.folder)
        skipped = dict(report.skipped) if report.whole else self._skipped | dict(report.skipped)
        for name, line in now.items():
            if line != before.get(name):
                self.told(line)
        for name in before.keys() - now.keys():
            doubt = f"no longer in doubt: {before[name].partition(', as if')[0]}"
            self.told(f"{name} no longer seems to be away" if name else doubt)
        unread = skipped != self._skipped if report.whole else bool(report.skipped)
        if report.is_news or self._trouble or now != before or unread:
            self.told(report)
        self._standing, self._skipped = now, skipped


def _identities(folders: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Device and number of each folder that is there."""
    found = {}
    for folder in folders:
        try:
            status = os.stat(folder)  # noqa: PTH116
        except OSError:
            continue
        if Path(folder).is_dir():
            found[folder] = status.st_dev, status.st_ino
    return found


def _changes(
    folders: Sequence[str], files: StoreFiles, stop: threading.Event, unheard: Callable[[str], None]
) -> Iterator[set[str]]:
    """Yield changed paths when no more have come for a while, and nothing about once a second.

    `unheard` is called with the reason where the system does not tell.
    """
    from watchfiles import Change, watch  # an extra

    own = os.path.abspath(str(files.folder))  # noqa: PTH100

    def counts(change: Change, path: str) -> bool:
        # hidden files are left out, and the store changes itself
        return not is_below(path, own) and not any(
            part.startswith(".")
            for top in folders
            if is_below(path, top)
            for part in Path(path[len(top) :]).parts
        )

    try:
        for found in (
            watch(
                *folders,
                watch_filter=counts,
                debounce=int(1000 * _LONGEST),
                step=int(1000 * _SETTLED),
                rust_timeout=1000,
                yield_on_timeout=True,
                stop_event=stop,
                ignore_permission_denied=True,
            )
            if folders
            else ()
        ):
            yield {path for _, path in found}
    # as of too many folders for the system's limit
    except (OSError, RuntimeError) as error:
        unheard(str(error))
    while not stop.wait(1.0):
        yield set()


def _settled(paths: set[str], stop: threading.Event) -> set[str]:
    """Those of the paths that do not change within a second, or are gone."""
    before = {path: _look(path) for path in paths}
    if before and stop.wait(1.0):
        return set()
    return {path for path, look in before.items() if _look(path) == look}


def _look(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return status.st_size, status.st_mtime_ns


def _is_silent(folder: str) -> bool:
    """True for a folder on a file system that does not tell of changes, by Linux's own list."""
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    mounts = [line.split()[1:3] for line in lines]
    kind = max(((len(place), kind) for place, kind in mounts if is_below(folder, place)), default=(0, ""))[1]
    return kind in _NETWORK or kind.startswith("fuse")
