"""The folder of pictures that clients of a server add; it is limner's own, each picture lies under its hash.

    FOLDER/<SHA-256>.jpg      a picture that was added, see `ENDINGS`
    FOLDER/.limner-uploads    JSON: the store whose rows name these pictures
    FOLDER/.adding            a picture that is being written
    FOLDER/.changing          JSON: the paths of the pictures that are being added, deleted or erased

A picture under its hash that no row names is a leftover of a row that was deleted or of a change that was killed. An
erasure removes all of them; a server removes only what a change of its own has left when it was killed. After a backup
or a repair a store may have lost rows whose pictures are whole: a start of the server must not delete these.

Files of other names, and those whose bytes are not of their name, are the owner's and are never touched.
"""

import hashlib
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from limner.durable import read_json, sync, write_whole
from limner.errors import SettingsError, StoreError
from limner.store.files import StoreFiles
from limner.store.path import reached

ENDINGS = {
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/avif": ".avif",
    "image/bmp": ".bmp",
    "image/heic": ".heic",
    "image/tiff": ".tif",
}
"""Ending of an added picture's file by its media type."""

NAME = "name"
"""Key of the metadata under which a client's name of an image is kept."""

MARK = ".limner-uploads"
_ADDING = ".adding"
_CHANGING = ".changing"
_NAME = re.compile(rf"[0-9a-f]{{64}}(?:{'|'.join(map(re.escape, ENDINGS.values()))})")

log = logging.getLogger("limner.search")


def is_upload(path: str, folder: Path | None) -> bool:
    """True for the path of an added picture: it lies in the folder of uploads, under a hash."""
    # the name first: links are followed for few paths only. A server may have the folder by a link
    return folder is not None and has_uploads_name(path) and is_in(Path(path).parent, folder)


def has_uploads_name(path: str) -> bool:
    """True for the path of a picture that may have been added to any folder of uploads; it reads no disk."""
    return _NAME.fullmatch(path.rpartition(os.sep)[2]) is not None


def shown_name(path: str, metadata: Mapping[str, Any]) -> str:
    """Return the name of an image for others: its file's name, or for an added one the name that its client gave."""
    # in whichever folder of uploads: a store of another model has another one
    given = metadata.get(NAME) if has_uploads_name(path) else None
    return given if isinstance(given, str) else os.path.basename(path)  # noqa: PTH119 - a Path takes ten times as long


def is_in(parent: str | Path, folder: Path) -> bool:
    """True if a folder is the folder of uploads, by whatever links."""
    return os.path.realpath(parent) == os.path.realpath(folder)


def added_as(path: str) -> str | None:
    """A name of the picture that a client has added as this file, in whichever folder of uploads; None for others.

    It is the same by whatever links, and that of the file alone where its folder is gone: it may lie elsewhere now.
    """
    folder, name = os.path.split(path)
    if not has_uploads_name(path):
        return None
    if holds_uploads(folder):
        return os.path.join(os.path.realpath(folder), name)  # noqa: PTH118
    return None if os.path.exists(folder) else name  # noqa: PTH110


def other_folders(paths: Iterable[str], folder: Path | None) -> set[str]:
    """Other folders of uploads than this one, in which pictures of these paths lie."""
    parents = {os.path.dirname(path) for path in paths if has_uploads_name(path)}  # noqa: PTH120 - of each row
    others = {parent for parent in parents if holds_uploads(parent)}
    return {parent for parent in others if folder is None or not is_in(parent, folder)}


def holds_uploads(folder: str | Path) -> bool:
    """True for a folder that a server has taken for uploads: what lies there comes and goes by clients."""
    return os.path.exists(os.path.join(folder, MARK))  # noqa: PTH110, PTH118 - for each file that is indexed


class Uploads:
    """A folder of uploads of one store; made with `claim` by a server, and with `of` by an erasure."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def claim(cls, folder: Path, files: StoreFiles) -> "Uploads":
        """Make a folder the one of this store's uploads; it must exist.

        Raises `SettingsError` for one of another store, and for one with pictures under hashes that no row names.
        """
        uploads = cls(folder)
        held = uploads._store()
        if held is None:
            # any folder could be named by mistake, a cache whose files have hashes for names, too
            # what a change has left when the store was away is no such file: a server removes it now
            changing = {Path(path).name for path in uploads._changing()}
            if unnamed := [path for path in uploads._unnamed(files) if path.name not in changing]:
                raise SettingsError(
                    f"{folder}: uploads need a folder of their own; no picture of the store is {unnamed[0].name}. "
                    "If clients have added it, take it in first: "
                    f"`limner index {files.folder}/model {files.folder} {folder}`; if it was deleted, delete the file"
                )
            with _usable(folder):
                (folder / MARK).write_text(json.dumps(_identity(files)), encoding="utf-8")
        else:
            uploads._expect(held, files)
        return uploads

    @classmethod
    def of(cls, folder: str | Path, files: StoreFiles) -> "Uploads":
        """Open the folder of a store's uploads. Raises `SettingsError` for any other folder."""
        uploads = cls(Path(os.path.abspath(folder)))  # noqa: PTH100 - as the store spells paths
        held = uploads._store()
        # of another folder every picture would be one that no row names
        if held is None:
            raise SettingsError(
                f"{folder}: no server of {files.folder} has taken uploads there; name the folder that `limner serve "
                "--uploads` has, or start it with this one"
            )
        uploads._expect(held, files)
        return uploads

    @contextmanager
    def changing(self, paths: Iterable[str], files: StoreFiles) -> Iterator[None]:
        """Add, delete or erase added pictures within this; afterwards the file of each is there only if its row is.

        `paths` are those of the rows; others than of added pictures are left out. Whoever calls this holds the store.
        Raises `OSError`, and `StoreError` for a store that cannot be read: nobody could tell afterwards whether the row
        is there.
        """
        files.follow()
        added = [path for path in paths if is_upload(path, self.folder)]
        try:
            if added:
                # on the disk first: a power cut that takes it and leaves the picture would make a leftover of it for
                # ever. Also those of a change that was killed
                self._write(_CHANGING, json.dumps([*self._changing(), *added]).encode())
            yield
        finally:
            self.recover(files)

    def recover(self, files: StoreFiles) -> None:
        """Remove the files of the last change whose rows are not there. The caller holds the store's lock."""
        try:
            self._recover(files)
        except (OSError, StoreError) as error:
            # the next call, or an erasure, does it: a row that has gone is gone all the same
            log.error("%s: what a change has left cannot be deleted (%s)", self.folder, error)

    def _recover(self, files: StoreFiles) -> None:
        paths = self._changing()
        for path in set(paths) - files.entries(paths).keys():
            with suppress(FileNotFoundError):
                (self.folder / Path(path).name).unlink()
                sync(self.folder)
        (self.folder / _ADDING).unlink(missing_ok=True)
        (self.folder / _CHANGING).unlink(missing_ok=True)

    def _changing(self) -> list[str]:
        """The paths of the pictures that were being added, deleted or erased."""
        try:
            held = read_json(self.folder / _CHANGING)
        except (FileNotFoundError, ValueError):
            return []
        paths = held if isinstance(held, list) else []
        return [path for path in paths if isinstance(path, str) and is_upload(path, self.folder)]

    def write(self, name: str, content: bytes) -> None:
        """Write a picture, as a whole or not at all. The caller holds the store's lock. Raises `OSError`."""
        # on the disk before the row that names it is committed
        self._write(name, content)

    def _write(self, name: str, content: bytes) -> None:
        # one name, so that what a killed call leaves is known
        write_whole(self.folder / name, content, part=self.folder / _ADDING)

    def leftovers(self, files: StoreFiles) -> list[Path]:
        """Return the pictures that no row names. The caller holds the store's lock. Raises `StoreError`."""
        with reached(self.folder, "read"):
            return [path for path in self._unnamed(files) if _digest(path) == path.stem]

    def remove_leftovers(self, files: StoreFiles) -> list[str]:
        """Delete the pictures that no row names, and return the names of their files; as `leftovers`."""
        doomed = self.leftovers(files)
        with reached(self.folder):
            if (self.folder / _ADDING).exists():
                doomed.append(self.folder / _ADDING)
            for path in doomed:
                path.unlink()
            (self.folder / _CHANGING).unlink(missing_ok=True)
            sync(self.folder)
        return [path.name for path in doomed]

    def remains(self, files: StoreFiles) -> list[str]:
        """Return the names of files that could be pictures of rows that are gone. Raises `StoreError`."""
        with reached(self.folder, "read"):
            # those, too, whose bytes are not of their name: an upload that the disk has damaged looks like this
            names = [path.name for path in self._unnamed(files)]
            return names + [name for name in (_ADDING, _CHANGING) if (self.folder / name).exists()]

    def _unnamed(self, files: StoreFiles) -> list[Path]:
        with _usable(self.folder), os.scandir(self.folder) as entries:
            held = {
                entry.name: self.folder / entry.name
                for entry in entries
                # what a link leads to is not limner's
                if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
            }
        # of a store of a million rows no path is looked at twice
        for path in files.entries() if held else ():
            name = path.rpartition("/")[2]
            if name in held and _same(path, held[name]):
                del held[name]
        return sorted(held.values())

    def _store(self) -> dict[str, str] | None:
        """The store that the folder belongs to; None if it belongs to none."""
        with _usable(self.folder):
            try:
                held = read_json(self.folder / MARK)
            except FileNotFoundError:
                return None
            except ValueError:
                held = None
        return held if isinstance(held, dict) else {}

    def _expect(self, held: dict[str, str], files: StoreFiles) -> None:
        # the place as well: a copy of a store has the same id, and not the rows of what is added to the other one
        if held != _identity(files):
            raise SettingsError(
                f"{self.folder}: holds the uploads of {held.get('store', 'another store')}; if {files.folder} takes "
                f"its place, remove {self.folder / MARK} and start its server with this folder, else name another one"
            )


def _identity(files: StoreFiles) -> dict[str, str]:
    folder = files.folder
    return {"store": str(folder.resolve() if isinstance(folder, Path) else folder), "id": files.manifest.id}


def _same(path: str, file: Path) -> bool:
    """True if a row's path may lead to a file of the same name."""
    try:
        return Path(path).samefile(file)
    except OSError:
        # in a container the same folder has another path: rather a file too many than one too few
        return True


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _usable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SettingsError(
            f"{folder}: cannot be used as the folder of uploads ({error.strerror or error})"
        ) from None
