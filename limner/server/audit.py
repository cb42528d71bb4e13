"""The audit log: a file of JSON lines, each with the digest of the line before it.

Whoever changes, removes or adds a line has to write every later line anew, so that a digest which is kept elsewhere
no longer fits (`verify`). Two functions change the file and keep such digests: `trim` removes old lines at its start
and puts a line there whose `continues` is the digest that the next one follows; `forget` removes what lines tell of a
person, and each changed line keeps the digest that it had. Servers may go on writing meanwhile.

Anybody who may write the file can do the same. So the first line is not proven, nor what stood before it; of a line
with `forgotten` only its place is, and `verify` counts such lines. Lines are numbered, so that such a line stands for
one line alone. No other line can bridge a gap.
"""

import errno
import fcntl
import hashlib
import json
import logging
import os
import secrets
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from limner.errors import DataError, SettingsError
from limner.server.audit_lines import Said, is_forgotten, keys_in, number_of, read_line, without
from limner.server.audit_reports import AuditForgotten, AuditVerification
from limner.server.ownership import keep_owner
from limner.store.path import expect_there, reached

BEGIN = "begin"
"""The `request` of a line that is no request: a chain begins here, or lines that stood here were removed."""

_DAY = 24 * 60 * 60.0
_TAIL = 64 * 1024
_START = b'{"time": "'  # of every line

Erased = Callable[[Collection[str]], Collection[str]]
"""Says which keys of images were erased since a request began."""

log = logging.getLogger("limner.server")


class AuditLog:
    """A file that lines are added to, by several threads and servers.

    `days`: lines that are older are removed at the start and once a day; None = none. `fsync`: a line is on the disk
    before its request is answered, so that it also outlives a power cut. The file may be moved away at any time; a
    new one is begun then.

    Raises `SettingsError` for a file that cannot be written, or that is no audit log.
    """

    def __init__(self, file: Path, *, days: int | None = None, fsync: bool = False) -> None:
        self.file, self.days, self.fsync = file, days, fsync
        # threads of the pool share what is remembered of the file's end
        self._one = threading.Lock()
        self._end: tuple[int, ...] | None = None
        self._follows: str | None = None
        self._number = 0
        self._closed = threading.Event()
        try:
            # refused when the server starts, not at its first request
            with self._one, _locked(file) as handle:
                _part(_real(file)).unlink(missing_ok=True)
                self._begin(handle)
        except OSError as error:
            raise SettingsError(
                f"{file}: the audit log cannot be written ({error.strerror or error})"
            ) from None
        if days is not None:
            self.trim()
            threading.Thread(target=self._daily, name="limner-audit", daemon=True).start()

    def append(self, facts: Mapping[str, Any], erased: Erased | None = None) -> None:
        """Add a line of facts with the time and the digest of the line before, or raise `OSError` and leave none.

        What it tells of `erased` images is left out, as `forget` leaves it out.
        """
        with self._one, _locked(self.file) as handle:
            self._begin(handle)
            # with the lock, which an erasure holds while it removes lines and rows: asked any earlier, the rows could
            # still be there, and this line would come behind the removing
            if erased is not None and (gone := erased(keys_in(facts))):
                facts = without(facts, gone, Said(()))
            # random: without it a digest would tell whoever guesses right what a forgotten line has said
            salt = secrets.token_hex(16)
            chained = {"number": self._number + 1, "previous": self._follows}
            line = _line({"time": _now(), **facts, "salt": salt, **chained})
            self._write(handle, line)

    def check(self) -> None:
        """Do what `append` does before it writes. Raises `StoreError`, and `SettingsError` if it is no audit log."""
        with reached(self.file):
            expect_there(self.file.absolute().parent)
            with self._one, _locked(self.file) as handle:
                if not os.fstatvfs(handle).f_bavail:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                self._begin(handle)

    def trim(self) -> None:
        """Remove the lines that are older than `days`."""
        if self.days is not None:
            try:
                trim(self.file, datetime.now(UTC) - timedelta(days=self.days))
            except OSError as error:
                # the server goes on: tomorrow there may be room on the disk
                log.error("%s: old lines cannot be removed (%s)", self.file, error.strerror or error)

    def close(self) -> None:
        """Stop removing old lines."""
        self._closed.set()

    def _daily(self) -> None:
        while not self._closed.wait(_DAY):
            self.trim()

    def _begin(self, handle: int) -> None:
        """Find the line that the next one follows; a file without lines gets a first one."""
        if _state(handle) == self._end:
            return
        self._follows, self._number = _last(handle, self.file)
        if not os.fstat(handle).st_size:
            facts = {"time": _now(), "request": BEGIN, "reason": "a new file"}
            self._write(handle, _line({**facts, "number": 1, "previous": None}))

    def _write(self, handle: int, line: bytes) -> None:
        before = os.fstat(handle).st_size
        self._end = None
        if os.write(handle, line + b"\n") != len(line) + 1:
            # half a line would spoil the next one, and a JSON reader with it
            os.ftruncate(handle, before)
            raise OSError("disk full")
        if self.fsync:
            os.fsync(handle)
        self._end, self._follows, self._number = _state(handle), _digest(line), self._number + 1


def verify(file: Path, holds: str | None = None) -> AuditVerification:
    """Check that each line of an audit log holds the digest of its predecessor.

    `holds` is a digest that an earlier call has told. If it is found in a sound log, that line and those before it,
    back to the first, are as they were then, but for those that are counted as `forgotten`. Raises `DataError` for a
    file that cannot be read.
    """
    lines, removed, forgotten, since, follows, digest, fault = 0, 0, 0, None, None, None, None
    number, found = 0, False
    try:
        with file.open("rb") as text:
            for lines, raw in enumerate(text, start=1):
                line = raw.removesuffix(b"\n")
                read = read_line(line) or {}
                number = number_of(read) if lines == 1 else number + 1
                fault = _fault(line, raw, lines, follows, number)
                if fault is not None:
                    break
                follows = _following(line, first=lines == 1)
                # of a line that was changed by `forget`, the digest that it had
                # with the number: else this line could be forged as a forgotten one, and those before it be gone
                digest = f"{number}:{follows if is_forgotten(read) else _digest(line)}"
                forgotten += is_forgotten(read)
                if lines == 1 and isinstance(read.get("removed"), int):
                    removed = read["removed"]
                if since is None and read.get("request") != BEGIN:
                    since = str(read.get("time"))
                found = found or holds == digest
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror or error})") from None
    broken = None if fault is None else lines
    if fault is None and holds is not None and not found:
        fault = "no line has the digest that was asked for: lines were written anew, or removed"
    return AuditVerification(
        lines=lines,
        sound=fault is None,
        broken=broken,
        reason=fault,
        removed=removed,
        since=since,
        forgotten=forgotten,
        digest=digest,
        holds=None if holds is None else found,
    )


def trim(file: Path, before: datetime) -> int:
    """Remove the lines that are older than a time, and return how many; the others stay as they are, byte by byte.

    Only at the start of the file: a gap between lines could not be told from a forged one. So a line that is older than
    one before it, because a clock was wrong, stays until that one goes. The new first line says how many were removed,
    and holds the digest that the next line follows. Raises `OSError`.
    """
    cutoff, now = before.astimezone(UTC).isoformat(timespec="milliseconds"), _now()
    file = _real(file)
    with _locked(file) as handle:
        _expect_log(handle, file)
        _part(file).unlink(missing_ok=True)
        first = next(_lines(handle), b"")
        before_first = number_of(read_line(first) or {}) - 1
        doomed = 0
        for number, line in enumerate(_lines(handle), start=1):
            if _is_old(line, cutoff):
                doomed = number
            # lines of the future, and what is no line, must not keep what stands before and behind them
            elif _is_old(line, now) and not (number == 1 and lines_removed(line)):
                break
        earlier = _removed(first)
        if doomed <= (earlier is not None):
            return 0
        count = doomed - (earlier is not None)

        def staying() -> Iterator[bytes]:
            for number, line in enumerate(_lines(handle), start=1):
                if number == doomed:
                    facts = {"time": now, "request": BEGIN, "reason": "old lines were removed"}
                    follows = _following(line, first=number == 1)
                    removed = count + (earlier or 0)
                    # the number of the last line that it stands for
                    chained = {"number": before_first + number, "continues": follows, "previous": None}
                    yield _line({**facts, "removed": removed, **chained})
                elif number > doomed:
                    yield line

        os.close(_replaced(file, handle, staying()))
        return count


def forget(file: Path, keys: Collection[str] = (), texts: Collection[str] = ()) -> AuditForgotten:
    """Remove what an audit log tells of images and of texts; the lines themselves stay, with who asked and when.

    From a line that names an image of `keys`, its key and the words of the question are removed; from a line whose
    text or conditions contain one of `texts` as a whole word or phrase, the same. Such a line keeps the digest that it
    had, which the next line follows, and loses the random `salt`, without which nobody can try what fits the digest.
    All other lines stay as they are. In the place of a line that is not JSON stands one that says so. Raises
    `SettingsError` for a file that is no audit log. A symbolic link
    stays, and the file that it leads to is changed. A file that does not exist has nothing to forget. Raises `OSError`,
    also for a file with another name (a hard link), which would keep all.
    """
    with _forgetting(file, keys, texts) as done:
        return done


class ErasableLog:
    """An audit log for `limner.store.erase.erase`."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @contextmanager
    def forgetting(self, keys: Collection[str], texts: Collection[str]) -> Iterator[int]:
        """As `forget`, and yield the number of changed lines; servers add no line before the block has ended.

        Raises `OSError`.
        """
        with _forgetting(self.file, keys, texts) as done:
            yield done.changed

    def left(self, keys: Collection[str]) -> int:
        """Count the lines that name one of the keys. Raises `OSError`."""
        named = frozenset(keys)
        if not self.file.exists():
            return 0
        with _locked(self.file) as handle:
            return sum(not named.isdisjoint(keys_in(read_line(line) or {})) for line in _lines(handle))


@contextmanager
def _forgetting(file: Path, keys: Collection[str], texts: Collection[str]) -> Iterator[AuditForgotten]:
    """As `forget`; the log is locked until the block has ended."""
    file = _real(file)
    if not file.exists():
        # of a log that was moved away
        _part(file).unlink(missing_ok=True)
        yield AuditForgotten(lines=0, changed=0)
        return
    named, said = frozenset(keys), Said(texts)
    with _locked(file) as handle:
        _expect_log(handle, file)
        _part(file).unlink(missing_ok=True)
        lines = changed = 0
        for raw in _lines(handle):
            line, lines = read_line(raw), lines + 1
            changed += line is None or without(line, named, said) is not line
        new = _replaced(file, handle, _forgotten(handle, named, said)) if changed else None
        try:
            yield AuditForgotten(lines=lines, changed=changed)
        finally:
            if new is not None:
                os.close(new)


def _forgotten(handle: int, keys: Collection[str], said: Said) -> Iterator[bytes]:
    follows: str | None = None
    before = 0
    for number, raw in enumerate(_lines(handle), start=1):
        line = read_line(raw)
        bare = _damaged(follows, before + 1) if line is None else without(line, keys, said)
        before = number_of(bare)
        follows = _following(raw, first=number == 1)
        yield raw if bare is line else _line({**bare, "digest": follows})


def _damaged(follows: str | None, number: int) -> dict[str, Any]:
    """The line that stands in the place of one that could hold anything."""
    facts = {"time": _now(), "request": BEGIN, "reason": "a line that was no JSON was removed"}
    return {**facts, "number": number, "previous": follows, "forgotten": True}


def lines_removed(line: bytes) -> bool:
    """True for a first line that stands in the place of lines that were removed because they were old."""
    return _removed(line) is not None


def _removed(line: bytes) -> int | None:
    read = read_line(line) or {}
    removed = read.get("removed") if read.get("request") == BEGIN else None
    return removed if isinstance(removed, int) else None


def _is_old(line: bytes, cutoff: str) -> bool:
    # the time is the first field, in UTC with milliseconds, so that texts compare as times do: parsing every line of
    # a large file would keep requests waiting. What is no such line stays, for `verify` to find
    return line.startswith(_START) and line[len(_START) :][: len(cutoff)] < cutoff.encode()


def _is_first(read: Mapping[str, Any]) -> bool:
    return read.get("request") == BEGIN and number_of(read) > 0


def _fault(line: bytes, raw: bytes, place: int, follows: str | None, number: int) -> str | None:
    read = read_line(line)
    if read is None or raw == line:
        return "the line is cut off or no JSON object"
    if place == 1 and not (_is_first(read) and read.get("previous", "") is None):
        return "the file does not begin with the first line of a chain"
    # numbers: one line that claims to be forgotten could stand for many, or for none
    if place > 1 and not (read.get("previous") == follows and number_of(read) == number):
        # a line has no digest of itself: what was changed in it is seen by the next one
        return (
            f"the line does not follow line {place - 1}: one of the two was changed, or lines between them were "
            "removed or put in"
        )
    return None


def _following(line: bytes, *, first: bool) -> str:
    """The digest that the line after this one must hold."""
    read = read_line(line) or {}
    if is_forgotten(read):
        return str(read["digest"])
    # only where lines were removed at the start: anywhere else it would bridge a gap
    continues = read.get("continues") if first and read.get("request") == BEGIN else None
    return continues if isinstance(continues, str) else _digest(line)


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _line(facts: Mapping[str, Any]) -> bytes:
    # ASCII by json.dumps, as UTF-8 cannot hold half of a surrogate pair
    return json.dumps(dict(facts)).encode()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _state(handle: int) -> tuple[int, ...]:
    state = os.fstat(handle)
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


@contextmanager
def _locked(file: Path) -> Iterator[int]:
    """Open a file for adding lines, made if it is not there, which no other process writes to meanwhile."""
    while True:
        # O_APPEND: lines of two servers with one file do not write over each other. 0o600: these are person data
        handle = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if _is_at(file, handle):
                yield handle
                return
        finally:
            os.close(handle)


def _is_at(file: Path, handle: int) -> bool:
    """True if a path still leads to an open file, which may have been written anew or moved away meanwhile."""
    try:
        return os.path.samestat(os.fstat(handle), file.stat())
    except FileNotFoundError:
        return False


def _expect_log(handle: int, file: Path) -> None:
    """Raise `SettingsError` for a file without a line of an audit log: rewriting it would destroy somebody's file."""
    # any line: the first one may be damaged
    if os.fstat(handle).st_size and not any("previous" in (read_line(line) or {}) for line in _lines(handle)):
        raise SettingsError(f"{file}: it is no audit log of this version; nothing was changed")


def _last(handle: int, file: Path) -> tuple[str | None, int]:
    """The digest that the next line follows, and the last line's number; None for a file without lines.

    A line that is cut off is removed.
    """
    size = os.fstat(handle).st_size
    first, end, _ = os.pread(handle, _TAIL, 0).partition(b"\n")
    # a first line that was cut off begins like one
    begun = _is_first(read_line(first) or {}) if end else first[: len(_START)] == _START[: len(first)]
    if size and not begun:
        raise SettingsError(f"{file}: it is no audit log of this version; move it away")
    tail, at = b"", size
    # the last whole line, with the line end before it
    while at and tail.count(b"\n") < 2:
        step = min(_TAIL, at)
        at -= step
        tail = os.pread(handle, step, at) + tail
    whole, _, rest = tail.rpartition(b"\n")
    # with the part that is cut off the tail has another line end
    is_first = not at and b"\n" not in whole
    if rest:
        # of a power cut or a full disk: its request was never answered
        os.ftruncate(handle, size - len(rest))
    if not whole:
        return None, 0
    last = whole.rpartition(b"\n")[2]
    return _following(last, first=is_first), number_of(read_line(last) or {}) or _counted(handle)


def _counted(handle: int) -> int:
    """The last line's number where it cannot be read: it goes on from the ones before, as in `_forgotten`."""
    number = 0
    for line in _lines(handle):
        number = number_of(read_line(line) or {}) or number + 1
    return number


def _lines(handle: int) -> Iterator[bytes]:
    """The lines of an open file without their ends."""
    with os.fdopen(os.dup(handle), "rb") as file:
        # duplicates share their place in the file
        file.seek(0)
        for line in file:
            yield line.removesuffix(b"\n")


def _replaced(file: Path, handle: int, lines: Iterator[bytes]) -> int:
    """Write a file anew, as a whole or not at all, and return a handle that locks it. Needs the lock of the old one."""
    if os.fstat(handle).st_nlink > 1:
        reason = "another name, a hard link, leads to this file and would keep what is removed; remove that name first"
        raise OSError(errno.EMLINK, reason)
    # one name beside the log: what a killed call has left is found and removed by the next one
    part = _part(file)
    new = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        # before it has the log's name: whoever finds it there must wait for this call, too
        fcntl.flock(new, fcntl.LOCK_EX)
        keep_owner(new, os.fstat(handle))
        with os.fdopen(os.dup(new), "wb") as text:
            for line in lines:
                text.write(line + b"\n")
        # before the rename, or the name could lead to an empty file after a power cut
        os.fsync(new)
        part.replace(file)
    except BaseException:
        os.close(new)
        part.unlink(missing_ok=True)
        raise
    return new


def _real(file: Path) -> Path:
    """The file that a symbolic link leads to: a new file in the place of the link would leave all in the old one."""
    return Path(os.path.realpath(file))


def _part(file: Path) -> Path:
    return file.with_name(f".{file.name}.part")
