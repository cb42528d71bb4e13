"""What a power cut leaves of a folder: what was on the disk for certain, and nothing else.

Of what nobody has waited for nobody knows whether it is on the disk. Two of the many states that a cut may leave are
looked at: all names of the moment, with the bytes of those files alone that were synced, as ext4 may have it; and of
these only the names that were there when their folder was synced last. What was removed is gone from both at once.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

Left = dict[str, bytes]
"""The files that are left, by their names below the folder."""


class PowerCuts:
    """Follows a folder; `left` has what a power cut would leave, each of them once.

    `held`: an empty folder of the same file system, outside of the one that is followed.
    """

    def __init__(self, folder: Path, held: Path) -> None:
        self._folder, self._held = folder, held
        self._bytes: dict[int, bytes] = {}
        self._names: dict[str, int] = {}
        self.left: list[Left] = []
        held.mkdir()
        # what is there at the beginning has been on the disk for long
        for name, number in self._now().items():
            self._names[name] = number
            if (path := folder / name).is_file():
                self._bytes[number] = path.read_bytes()

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Follow what is done within this."""
        fsync = os.fsync

        def noted(handle: int) -> None:
            # what LanceDB has removed until now, it has removed before this is on the disk
            self._look()
            fsync(handle)
            self._note_synced(os.fstat(handle).st_ino)
            self._look()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", noted)
            yield
        self._look()

    def _now(self) -> dict[str, int]:
        """Names and inodes of all that is there."""
        found = {}
        for path in self._folder.rglob("*"):
            number = path.stat().st_ino
            found[str(path.relative_to(self._folder))] = number
            # the number of a file that is removed would be given to another one
            if path.is_file() and not (self._held / str(number)).exists():
                os.link(path, self._held / str(number))
        return found

    def _note_synced(self, number: int) -> None:
        """Note that the bytes of a file, or the names in a folder, are on the disk."""
        now = self._now()
        for name in [name for name, one in now.items() if one == number]:
            if (path := self._folder / name).is_file():
                self._bytes[number] = path.read_bytes()
        folders = {one: name for name, one in now.items()} | {self._folder.stat().st_ino: "."}
        if (folder := folders.get(number)) is not None:
            before = {name: one for name, one in self._names.items() if str(Path(name).parent) != folder}
            self._names = before | {
                name: one for name, one in now.items() if str(Path(name).parent) == folder
            }

    def now(self) -> list[Left]:
        """Return what a power cut would leave now."""
        now = self._now()
        known = {name: number for name, number in self._names.items() if name in now}
        return [
            {
                name: self._bytes.get(number, b"")
                for name, number in names.items()
                if (self._folder / name).is_file()
                and all(str(parent) in names for parent in Path(name).parents[:-1])
            }
            for names in (now, known)
        ]

    def _look(self) -> None:
        self.left += [files for files in self.now() if files not in self.left]


def written(left: Left, folder: Path) -> Path:
    """Write what is left into a new folder."""
    for name, content in left.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder
