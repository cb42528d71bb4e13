"""Images that clients add: written to one folder under the hash of their bytes, then indexed."""

import hashlib
import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from limner.data.heif import is_heif
from limner.errors import SettingsError, StoreError
from limner.search.engine import Engine
from limner.search.entry import StoredImage, key_of
from limner.search.image_files import NAME, added_by_client, browser_type, is_upload
from limner.search.index import index_pictures
from limner.server.problems import RefusedError
from limner.wire import Hit, Item

_ENDINGS = {
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/avif": ".avif",
    "image/bmp": ".bmp",
}
_TIDY_AFTER = 64
"""Number of changes after which the store is tidied up; each leaves a small file that every later reader opens."""

T = TypeVar("T", Hit, Item)

log = logging.getLogger("limner.server")


class Changes:
    """Adds and deletes images; it must be called from one thread.

    `folder`: the folder of added images, and of no others of the store; None = no images can be added.

    Raises `SettingsError` for a folder that cannot be written, or holds images that were indexed from there.
    """

    def __init__(self, engine: Engine, folder: Path | None) -> None:
        self.engine = engine
        self.folder = None if folder is None else writable(folder)
        self._changes = 0
        # `delete` removes files of this folder: one that its owner indexed from here must never be among them
        for path in engine.files.snapshot().columns["path"].to_pylist():
            if Path(path).parent == self.folder and not is_upload(path, self.folder):
                raise SettingsError(
                    f"{self.folder}: uploads need a folder of their own; {Path(path).name} was indexed from there"
                )

    def add(
        self, content: bytes, name: str, identity: str | None, metadata: Mapping[str, Any]
    ) -> StoredImage:
        """Write and index an image; one that is there already gets the new facts.

        Raises `RefusedError` (409) for bytes that are no image, `DataError` for metadata that cannot be kept,
        `StoreError` while another process writes and if the disk refuses; then no file is left.
        """
        assert self.folder is not None
        # by the bytes, never by the client's name; what browsers do not show is HEIC or TIFF, or fails to decode
        ending = _ENDINGS.get(browser_type(content[:16]) or "", ".heic" if is_heif(content[:64]) else ".tif")
        path = self.folder / f"{hashlib.sha256(content).hexdigest()}{ending}"
        facts = {**metadata, NAME: name, **({} if identity is None else {"identity": identity})}
        # the name is the hash of the bytes: a file that is there already is the same image
        new = not path.exists()
        try:
            if new:
                _write(path, content)
            # one worker: it is one file, and the thread of the model waits for it anyway
            done = index_pictures(
                self.engine.encoder, self.engine.files, [path], metadata={str(path): facts}, workers=1
            )
            if done.skipped:
                raise RefusedError(409, f"{name}: {done.skipped[0][1]}")
        except BaseException as error:
            # only a file that this call wrote: an older one belongs to a row of the store
            if new:
                path.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise StoreError(f"{path}: cannot be written ({error.strerror or error})") from None
            raise
        self._tidy()
        entry = self.engine.files.entry(key_of(str(path)))
        assert entry is not None
        return entry

    def delete(self, key: str) -> None:
        """Take an image out of the store, and delete its file if it was added here. Raises `RefusedError` (404)."""
        entry = self.engine.files.entry(key)
        # the row first, then the file: killed in between, a file is left over, but no row without one
        if entry is None or not self.engine.files.delete([key]):
            raise RefusedError(404, "the store holds no picture of this id")
        path = Path(entry.path)
        if added_by_client(entry, self.folder):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                # logged and not raised: the image is out of the store, which is what was asked for
                log.error("%s: cannot be deleted (%s)", path, error.strerror or error)
        self._tidy()

    def _tidy(self) -> None:
        """Join the files that many changes have left; the changes stand also if that fails."""
        self._changes += 1
        if self._changes % _TIDY_AFTER == 0:
            try:
                # here and not in another thread: this one is the server's only writer
                self.engine.files.tidy()
            except StoreError as error:
                log.error("%s", error)


def without_path(one: T, folder: Path | None) -> T:
    """Make a hit or an item ready for HTTP: without its path, under the name that clients know."""
    # told for an upload by what its client called it: its file has the hash for a name
    name = shown_name(str(one.path), one.metadata, folder)
    return one.model_copy(update={"path": None, "name": name})


def shown_name(path: str, metadata: Mapping[str, Any], folder: Path | None) -> str:
    """Return the name of an image for HTTP: its file's name, or for an added one the name that its client gave."""
    given = metadata.get(NAME) if is_upload(path, folder) else None
    return given if isinstance(given, str) else Path(path).name


def writable(folder: Path) -> Path:
    """Make a folder and return its absolute path. Raises `SettingsError` if nothing can be written there."""
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 - as the store spells paths
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # tried, because mode bits say nothing of a full or read-only disk
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise SettingsError(
            f"{folder}: uploads cannot be written there ({error.strerror or error})"
        ) from None
    return folder


def _write(path: Path, content: bytes) -> None:
    """Write a file as a whole or not at all."""
    # in the same folder, where a rename is atomic; the dot hides it from indexing
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
        try:
            file.write(content)
            file.flush()
            # before the rename, or the name could lead to an empty file after a power cut
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
