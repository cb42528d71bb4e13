"""A look at one image file: read it if it is new or has changed, keep what is known of it otherwise."""

import hashlib
import json
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from limner.data.capture_time import capture_time
from limner.data.images import PictureBytes, thumbnail
from limner.errors import ImageError
from limner.store.entry import Place, StoredImage
from limner.types import ImageSource, Pixels

READ_AT_ONCE = 2**25
"""Bytes of the largest file that is read into memory, once for all uses: 32 MiB, more than cameras write as JPEG. Each
thread holds one. Of a larger file only what a use asks for is read, and what is no image is refused before the rest."""

_CHANGED = "changed while it was read; index again"


Outcome = Literal["added", "updated", "unchanged", "moved"]
"""The fate of an image, as reports count it."""


@dataclass(frozen=True)
class Note:
    """The facts of one image that do not come from its file."""

    identity: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    taken: datetime | None = None

    def on(self, image: StoredImage) -> StoredImage:
        """The image with these facts told of it, and no others."""
        return replace(image, taken_told=self.taken, identity=self.identity, metadata=self.metadata)


@dataclass(frozen=True)
class Told:
    """The facts that are told of an image now.

    - `facts`: by name, `identity` and `taken` among them; None takes one away.
    - `key`: that of the image if it is new; `whole`: True if facts that are not named go, False if they stay.
    """

    facts: Mapping[str, Any]
    key: str | None = None
    whole: bool = False

    def over(self, before: Note) -> Note:
        """The facts of an image of which others were told before."""
        known = Note() if self.whole else before
        facts = {**known.metadata, "identity": known.identity, "taken": known.taken, **self.facts}
        identity, taken = facts.pop("identity"), facts.pop("taken")
        return Note(identity, {name: fact for name, fact in facts.items() if fact is not None}, taken)


class Task(NamedTuple):
    """One file to look at.

    - `stored`: the image of the store whose place it takes; `note`: facts that are told of it, or those stay.
    - `key`: that of the image; `others`: further places of its bytes, if these have the digest `sha256`.
    """

    path: str
    stored: StoredImage | None = None
    note: Note | None = None
    key: str | None = None
    others: tuple[Place, ...] = ()
    sha256: str | None = None


@dataclass(frozen=True)
class Seen:
    """An image after a look at its file.

    `pixels` are None if the stored vector is still right; `write` is True if the row must be written, and `is_cut` if
    the file lacks its end.
    """

    entry: StoredImage
    outcome: Outcome
    write: bool = True
    pixels: Pixels | None = None
    thumbnail: bytes | None = None
    is_cut: bool = False


def is_another(before: StoredImage | None, now: StoredImage) -> bool:
    """True if a file now shows another identity, so that its sentences no longer apply.

    An edited picture of the same identity keeps them, and so does one that is told to be of somebody else.
    """
    return before is not None and before.sha256 != now.sha256 and before.identity != now.identity


def told_of(stored: StoredImage) -> Note:
    """Facts that were told of a stored image, which stay when its file changes."""
    return Note(stored.identity, stored.metadata, stored.taken_told)


def look_at(task: Task, prepare: Callable[[ImageSource], Pixels]) -> Seen | str:
    """Decide what to do about one image; a text is the reason why it cannot be read."""
    path, stored = task.path, task.stored
    try:
        # a name that is not UTF-8 cannot be stored, so its file need not be read
        path.encode()
        if "\0" in path:
            return "its name holds a zero byte, as that of no file does"
        # a named pipe would block the thread that opens it
        before = os.stat(path)  # noqa: PTH116 - beside the digest, on one name
        if not stat.S_ISREG(before.st_mode):
            return "not a regular file"
        known = task.note or (told_of(stored) if stored else Note())
        if stored and stored.size == before.st_size and stored.mtime == before.st_mtime_ns:
            return _settled(stored, known, stored.mtime)
        source: str | PictureBytes = path
        if before.st_size <= READ_AT_ONCE:
            with Path(path).open("rb") as file:
                # one byte more shows that it grows
                source = PictureBytes(file.read(before.st_size + 1), path)
            if len(source) != before.st_size:
                return _CHANGED
        # Time stamps change in a copy or a checkout, without the bytes.
        if stored and stored.size == before.st_size and _digest(source) == stored.sha256:
            return _settled(stored, known, before.st_mtime_ns)
        pixels = prepare(source)
        # of the whole picture and not of the pixels, which are cropped for the network
        small = thumbnail(source)
        taken = capture_time(source)
        is_cut = isinstance(source, PictureBytes) and source.is_cut
        # Last: of a large file, what is no image is refused before all of it is read.
        digest = _digest(source)
        after = os.stat(path)  # noqa: PTH116
    except UnicodeEncodeError:
        return "its name is not valid Unicode; rename it"
    except ImageError as error:
        # the report names the path beside the reason
        return str(error).removeprefix(path).removeprefix(": ")
    except OSError as error:
        return f"cannot be read ({error.strerror or error})"
    # pixels of one version would stand beside the digest of another
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        return _CHANGED
    size, mtime = after.st_size, after.st_mtime_ns
    # a file that has changed since they were compared is no copy of them
    others = task.others if digest == task.sha256 else ()
    facts = (taken, known.taken, known.identity, known.metadata)
    entry = StoredImage(path, digest, size, mtime, *facts, others, task.key)
    return Seen(entry, "updated" if stored else "added", pixels=pixels, thumbnail=small, is_cut=is_cut)


def _settled(stored: StoredImage, note: Note, mtime: int) -> Seen:
    """An image whose bytes are those that were embedded; its facts or time stamp may have changed."""
    now = note.on(replace(stored, mtime=mtime, gone=None))
    return Seen(now, "unchanged" if same_facts(stored, now) else "updated", write=now != stored)


def same_facts(before: StoredImage, now: StoredImage) -> bool:
    """True if the same was told of two images."""
    return _facts(before) == _facts(now)


def _facts(entry: StoredImage) -> tuple[str | None, datetime | None, str]:
    return entry.identity, entry.taken_told, json.dumps(dict(entry.metadata), sort_keys=True)


def _digest(source: str | PictureBytes) -> str:
    if isinstance(source, PictureBytes):
        return hashlib.sha256(source).hexdigest()
    with Path(source).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
