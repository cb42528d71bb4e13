"""The audit log: a file of JSON lines, each with the digest of the line before it.

Whoever changes, removes or adds a line has to write every later line anew, so that a digest which is kept elsewhere
no longer fits (`verify`). Two functions write the file anew themselves and say so in a line of their own: `trim`
removes old lines, `forget` removes what lines tell of a person. Servers may go on writing meanwhile.
"""

import fcntl
import hashlib
import json
import logging
import os
import re
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from limner.errors import DataError, SettingsError
from limner.wire import ResponseModel

BEGIN = "begin"
"""The `request` of a line that is no request: a chain begins here, or lines that stood here were removed."""

_DAY = 24 * 60 * 60.0
_TAIL = 64 * 1024
_TEXTS = ("text", "where", "after", "before", "refused")
"""Fields that may say whom a request was about."""

log = logging.getLogger("limner.server")


class AuditVerification(ResponseModel):
    """The result of `limner audit verify`."""

    lines: int
    """Lines of the file."""

    sound: bool
    """True if each line holds the digest of its predecessor, and the digest that was asked for was found."""

    broken: int | None
    """Number of the first line that does not fit, from 1."""

    reason: str | None
    """The fault, if there is one."""

    removed: int
    """Lines that were removed because they were old."""

    digest: str | None
    """Digest of the last line; keep it elsewhere, to ask for it later."""

    holds: bool | None
    """True if a line has the digest that was asked for; null if none was."""


class AuditForgotten(ResponseModel):
    """The result of `limner audit forget`."""

    lines: int
    """Lines of the file."""

    changed: int
    """Lines from which something was removed."""


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
        self._closed = threading.Event()
        try:
            # refused when the server starts, not at its first request
            with self._one, _locked(file) as handle:
                self._begin(handle)
        except OSError as error:
            raise SettingsError(
                f"{file}: the audit log cannot be written ({error.strerror or error})"
            ) from None
        if days is not None:
            self.trim()
            threading.Thread(target=self._daily, name="limner-audit", daemon=True).start()

    def append(self, facts: Mapping[str, Any]) -> None:
        """Add a line of facts with the time and the digest of the line before, or raise `OSError` and leave none."""
        with self._one, _locked(self.file) as handle:
            self._begin(handle)
            line = _line({"time": _now(), **facts, "previous": self._follows})
            self._write(handle, line)

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
        self._follows = _last(handle, self.file)
        if not os.fstat(handle).st_size:
            reason = "a new file"
            self._write(handle, _line({"time": _now(), "request": BEGIN, "reason": reason, "previous": None}))

    def _write(self, handle: int, line: bytes) -> None:
        before = os.fstat(handle).st_size
        self._end = None
        if os.write(handle, line + b"\n") != len(line) + 1:
            # half a line would spoil the next one, and a JSON reader with it
            os.ftruncate(handle, before)
            raise OSError("disk full")
        if self.fsync:
            os.fsync(handle)
        self._end, self._follows = _state(handle), _digest(line)


def verify(file: Path, holds: str | None = None) -> AuditVerification:
    """Check that each line of an audit log holds the digest of its predecessor.

    `holds` is a digest that an earlier call has told: it shows that nothing was written anew up to there, which a
    chain alone cannot show. Raises `DataError` for a file that cannot be read.
    """
    lines, removed, follows, digest, fault = 0, 0, None, None, None
    found = False
    try:
        with file.open("rb") as text:
            for lines, raw in enumerate(text, start=1):
                line = raw.removesuffix(b"\n")
                fault = _fault(line, raw, lines, follows)
                if fault is not None:
                    break
                digest, follows = _digest(line), _following(line)
                removed += int(json.loads(line).get("removed", 0)) if lines_removed(line) else 0
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
        digest=digest,
        holds=None if holds is None else found,
    )


def trim(file: Path, before: datetime) -> int:
    """Remove the lines that are older than a time, and return how many; the others stay as they are, byte by byte.

    A line in the place of removed ones says how many they were, and holds the digest that the next line follows.
    Raises `OSError`.
    """
    cutoff = before.astimezone(UTC).isoformat(timespec="milliseconds")
    with _locked(file) as handle:
        if not any(_is_old(line, cutoff) for line in _lines(handle)):
            return 0
        with _replacing(file) as write:
            return _trimmed(_lines(handle), cutoff, write)


def forget(file: Path, keys: Collection[str] = (), texts: Collection[str] = ()) -> AuditForgotten:
    """Remove what an audit log tells of images and of texts; the lines themselves stay, with who asked and when.

    From a line that names an image of `keys`, its key and the words of the question are removed; from a line whose
    text or conditions contain one of `texts` as a whole word or phrase, the same. All lines get new digests, since an
    old digest would still prove what has stood there: the first line says so, and digests that were kept elsewhere
    no longer fit. A line that is not JSON is removed. A file that does not exist has nothing to forget. Raises
    `OSError`.
    """
    if not file.exists():
        return AuditForgotten(lines=0, changed=0)
    named = frozenset(keys)
    said = re.compile("|".join(rf"(?<!\w){re.escape(text)}(?!\w)" for text in texts if text), re.IGNORECASE)
    phrase = said if said.pattern else None
    with _locked(file) as handle:
        lines = changed = 0
        for raw in _lines(handle):
            line, lines = _read(raw), lines + 1
            changed += line is None or _without(line, named, phrase) is not line
        if not changed:
            return AuditForgotten(lines=lines, changed=0)
        with _replacing(file) as write:
            facts = {"time": _now(), "request": BEGIN, "reason": "parts of lines were forgotten"}
            follows = write(_line({**facts, "changed": changed, "previous": None}))
            kept = 1
            for raw in _lines(handle):
                line = _read(raw)
                if line is not None:
                    bare = dict(_without(line, named, phrase))
                    # it would be the digest of a line that is no longer there
                    bare.pop("continues", None)
                    follows = write(_line({**bare, "previous": follows}))
                    kept += 1
    return AuditForgotten(lines=kept, changed=changed)


def lines_removed(line: bytes) -> bool:
    """True for a line that stands in the place of lines that were removed because they were old."""
    return b'"request": "begin"' in line and b'"removed": ' in line


def _without(
    line: Mapping[str, Any], keys: Collection[str], phrase: re.Pattern[str] | None
) -> Mapping[str, Any]:
    """Return a line without what it tells of images and phrases; the same object if it tells nothing of them."""
    found = line.get("found") or []
    names = [name for name in ("id", "like") if line.get(name) in keys]
    told = [str(line.get("text", "")), *map(str, line.get("where") or [])]
    says = phrase is not None and any(phrase.search(one) for one in told)
    if not (names or says or any(key in keys for key in found)):
        return line
    bare = {name: value for name, value in line.items() if name not in (*names, *_TEXTS)}
    if "found" in bare:
        bare["found"] = [key for key in found if key not in keys]
    return {**bare, "forgotten": True}


def _trimmed(lines: Iterator[bytes], cutoff: str, write: Callable[[bytes], str]) -> int:
    total = 0
    follows: str | None = None
    # lines that go and lines that already stand for removed ones, side by side: one line stands for all of them
    gap: list[bytes] = []
    for line in lines:
        if lines_removed(line) or _is_old(line, cutoff):
            gap.append(line)
            total += not lines_removed(line)
            continue
        follows = _write_gap(gap, follows, write)
        gap, follows = [], write(line)
    _write_gap(gap, follows, write)
    return total


def _write_gap(gap: list[bytes], follows: str | None, write: Callable[[bytes], str]) -> str | None:
    if not gap:
        return follows
    if len(gap) == 1 and lines_removed(gap[0]):
        return write(gap[0])
    removed = sum(json.loads(line)["removed"] if lines_removed(line) else 1 for line in gap)
    facts = {"time": _now(), "request": BEGIN, "reason": "old lines were removed", "removed": removed}
    return write(_line({**facts, "continues": _following(gap[-1]), "previous": follows}))


def _is_old(line: bytes, cutoff: str) -> bool:
    # the time is the first field, in UTC with milliseconds, so that texts compare as times do: parsing every line of
    # a large file would keep requests waiting. What is no such line stays, for `verify` to find
    return line.startswith(b'{"time": "') and line[10 : 10 + len(cutoff)] < cutoff.encode()


def _fault(line: bytes, raw: bytes, number: int, follows: str | None) -> str | None:
    read = _read(line)
    if read is None or raw == line:
        return "the line is cut off or no JSON object"
    if number == 1 and not (read.get("request") == BEGIN and read.get("previous", "") is None):
        return "the file does not begin with the first line of a chain"
    if number > 1 and read.get("previous") != follows:
        return "the line does not follow the one before it: a line was changed, removed or put in"
    return None


def _read(line: bytes) -> dict[str, Any] | None:
    try:
        read = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return read if isinstance(read, dict) else None


def _following(line: bytes) -> str:
    """The digest that the line after this one must hold."""
    read = _read(line) or {}
    continues = read.get("continues") if read.get("request") == BEGIN else None
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


def _last(handle: int, file: Path) -> str | None:
    """The digest that the next line follows; None for a file without lines. A line that is cut off is removed."""
    size = os.fstat(handle).st_size
    first = os.pread(handle, _TAIL, 0).partition(b"\n")[0]
    if size and (_read(first) or {}).get("request") != BEGIN and len(first) < _TAIL and size > len(first):
        raise SettingsError(f"{file}: it is no audit log of this version; move it away")
    tail, at = b"", size
    # the last whole line, with the line end before it
    while at and tail.count(b"\n") < 2:
        step = min(_TAIL, at)
        at -= step
        tail = os.pread(handle, step, at) + tail
    whole, _, rest = tail.rpartition(b"\n")
    if rest:
        # of a power cut or a full disk: its request was never answered
        os.ftruncate(handle, size - len(rest))
    return _following(whole.rpartition(b"\n")[2]) if whole else None


def _lines(handle: int) -> Iterator[bytes]:
    """The lines of an open file without their ends."""
    with os.fdopen(os.dup(handle), "rb") as file:
        # duplicates share their place in the file
        file.seek(0)
        for line in file:
            yield line.removesuffix(b"\n")


@contextmanager
def _replacing(file: Path) -> Iterator[Callable[[bytes], str]]:
    """Write a file anew, as a whole or not at all.

    The block gets a function that writes a line and returns the digest that the next one must hold.
    """
    with tempfile.NamedTemporaryFile(dir=file.parent, prefix=".", delete=False) as new:

        def write(line: bytes) -> str:
            new.write(line + b"\n")
            return _following(line)

        try:
            yield write
            new.flush()
            # before the rename, or the name could lead to an empty file after a power cut
            os.fsync(new.fileno())
            Path(new.name).replace(file)
        except BaseException:
            Path(new.name).unlink(missing_ok=True)
            raise
