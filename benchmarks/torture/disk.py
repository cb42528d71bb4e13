"""The disk below a folder while a process changes it: kills and a full disk at any operation, and power cuts.

`disk.c` records each operation. A cut replays those up to a moment, and drops or keeps what nobody
had waited for: file systems may write such bytes in any order or not at all, and names in their order.
"""

import os
import random
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Literal

KINDS = ("create", "link", "unlink", "rename", "write", "truncate", "sync", "mapped")
"""Operations by their number in `disk.c`."""

How = Literal["all", "names", "synced", "drawn", "strict"]
"""What a cut keeps.

- `all`: all that was done; `names`: all names, but of bytes those alone that were synced.
- `synced`: those bytes, and the names that were there when anything was synced last: journals keep names in order.
- `drawn`: names up to a drawn moment after that, and a drawn part of the other bytes.
- `strict`: of names those alone whose own folder was synced, which is all that POSIX promises.
"""

_SECTOR = 512


@cache
def library() -> Path:
    """Compile `disk.c`. Raises `FileNotFoundError` if there is no gcc."""
    made = Path(mkdtemp(prefix="limner-disk-")) / "disk.so"
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", made, source], check=True)
    return made


def can_follow() -> bool:
    """True where operations can be followed: Linux on x86-64 with gcc."""
    return os.uname()[::4] == ("Linux", "x86_64") and shutil.which("gcc") is not None


@dataclass(eq=False)
class _File:
    """A file or a folder: its bytes or names when the recording began, and what was done to it by moment."""

    is_folder: bool = False
    start: bytes = b""
    changes: list[tuple[int, int, bytes | None]] = field(default_factory=list)
    synced: list[int] = field(default_factory=list)
    mapped: bool = False

    def floor(self, moment: int) -> int:
        """The moment up to which all of it is on the disk for certain."""
        return max((one for one in self.synced if one < moment), default=-1)

    def content(self, moment: int, how: How, rng: random.Random) -> bytes:
        if self.mapped:
            return b""  # what is written through a mapping may be there or not
        content, floor, lost = bytearray(self.start), self.floor(moment), False
        for when, at, written in self.changes:
            if when >= moment:
                break
            kept = when < floor or how == "all" or (how == "drawn" and rng.random() < 0.6)
            # a size that was not written down yet: what was written behind it has no place
            lost = lost or (written is None and not kept)
            if lost or not kept:
                continue
            if written is None:
                content = content[:at].ljust(at, b"\0")
                continue
            if when > floor and how == "drawn" and rng.random() < 0.2:
                written = written[: rng.randrange(0, len(written), _SECTOR)]
            content = content.ljust(at, b"\0")
            content[at : at + len(written)] = written
        return bytes(content)


@dataclass(frozen=True)
class _Name:
    """A change of names: `folder` and `name` get a file, or lose it; a rename takes `before` away at once."""

    when: int
    folder: _File
    name: str
    file: _File | None
    before: tuple[_File, str] | None = None


class Recording:
    """What was done below a folder, from a log of `disk.c` and the files that were there when it began."""

    def __init__(self, folder: Path) -> None:
        self._top = _File(is_folder=True)
        self._live: dict[int, _File] = {folder.stat().st_ino: self._top}
        self._names: list[_Name] = []
        for path in sorted(folder.rglob("*")):
            number = path.lstat().st_ino
            if number not in self._live:
                self._live[number] = _File(path.is_dir(), b"" if path.is_dir() else path.read_bytes())
            self._names.append(
                _Name(-1, self._live[path.parent.stat().st_ino], path.name, self._live[number])
            )
        self._syncs: list[int] = []
        self.moments = 0

    def read(self, log: Path) -> None:
        """Read the log of the operations that followed."""
        content, at = memoryview(log.read_bytes()), 0
        while at < len(content):
            kind, inode, parent, offset, length, size, other = struct.unpack_from("7q", content, at)
            at += 56
            name = Path(os.fsdecode(bytes(content[at : at + size])))
            old = Path(os.fsdecode(bytes(content[at + size : at + size + other])))
            at += size + other
            payload = bytes(content[at : at + length]) if KINDS[kind] == "write" else b""
            at += len(payload)
            self._note(KINDS[kind], inode, parent, (name, old), (offset, length, payload))
            self.moments += 1

    def _note(
        self, kind: str, inode: int, parent: int, names: tuple[Path, Path], change: tuple[int, int, bytes]
    ) -> None:
        now, (name, old), (offset, length, payload) = self.moments, names, change
        if kind == "create":
            # an inode's number is given again when its file has gone
            self._live[inode] = _File(is_folder=bool(length))
        if kind == "link" and inode not in self._live:
            self._live[inode] = _File(start=old.read_bytes())  # from outside, where it has been for long
        file = self._live.get(inode)
        if file is None:
            return  # of a file without a name
        if kind in ("create", "link", "unlink", "rename"):
            folder = self._live[parent]
            before = (self._live[offset], old.name) if kind == "rename" else None
            self._names.append(_Name(now, folder, name.name, None if kind == "unlink" else file, before))
        elif kind == "write":
            file.changes.append((now, offset, payload))
        elif kind == "truncate":
            file.changes.append((now, length, None))
        elif kind == "sync":
            file.synced.append(now)
            self._syncs.append(now)
        else:
            file.mapped = True

    def _tree(self, moment: int, how: How, rng: random.Random) -> dict[_File, dict[str, _File]]:
        """The names in each folder."""
        last = max((one for one in self._syncs if one < moment), default=-1)
        limit = {"synced": last, "drawn": rng.randint(last, moment)}.get(how, moment)
        found: dict[_File, dict[str, _File]] = {self._top: {}}
        for one in self._names:
            if one.when >= moment:
                break
            if one.when > (one.folder.floor(moment) if how == "strict" else limit):
                continue
            names = found.setdefault(one.folder, {})
            if one.before is not None:
                found.setdefault(one.before[0], {}).pop(one.before[1], None)
            if one.file is None:
                names.pop(one.name, None)
            else:
                names[one.name] = one.file
        return found

    def files(self, moment: int, how: How, seed: int = 0) -> dict[str, bytes | None]:
        """What a power cut before an operation leaves: bytes by name, None for a folder."""
        rng = random.Random(seed)
        tree = self._tree(moment, how, rng)

        def walk(folder: _File, above: str) -> Iterator[tuple[str, bytes | None]]:
            for name, file in sorted(tree.get(folder, {}).items()):
                yield above + name, None if file.is_folder else file.content(moment, how, rng)
                if file.is_folder:
                    yield from walk(file, f"{above}{name}/")

        return dict(walk(self._top, ""))

    def mapped(self) -> set[str]:
        """Files that were written through a mapping, whose bytes no recording has."""
        tree = self._tree(self.moments, "all", random.Random(0))
        return {name for names in tree.values() for name, file in names.items() if file.mapped}


def written(files: dict[str, bytes | None], folder: Path) -> Path:
    """Write what a cut leaves into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in files.items():
        if content is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(content)
    return folder


def read(folder: Path) -> dict[str, bytes | None]:
    """The files below a folder, as `Recording.files` has them."""
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
    }
