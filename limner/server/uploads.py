"""Pictures that clients add: written to one folder under the hash of their bytes, then indexed."""

import hashlib
import logging
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from limner.errors import SettingsError, StoreError
from limner.search.engine import Engine
from limner.search.entry import StoredImage, key_of
from limner.search.image_files import browser_type
from limner.search.index import index_pictures
from limner.server.problems import RefusedError
from limner.wire import Hit, Item

NAME = "name"
"""Under which the metadata keep what the client called a picture."""

_ENDINGS = {
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/avif": ".avif",
    "image/bmp": ".bmp",
}
_HASH = re.compile(r"[0-9a-f]{64}")
_COMPACT_AFTER = 64
"""Changes; each leaves a small file that every later reader opens."""

T = TypeVar("T", Hit, Item)

log = logging.getLogger("limner.server")


class Changes:
    """Adds and deletes pictures. To be called from one thread.

    `folder`: where added pictures lie, and no others of the store; None = none can be added.

    Raises `SettingsError` for a folder that cannot be written, or holds pictures that were indexed from there.
    """

    def __init__(self, engine: Engine, folder: Path | None) -> None:
        self.engine = engine
        self.folder = None if folder is None else writable(folder)
        self._changes = 0
        for path in engine.files.snapshot().columns["path"].to_pylist():
            if Path(path).parent == self.folder and not is_upload(path, self.folder):
                raise SettingsError(
                    f"{self.folder}: uploads need a folder of their own; {Path(path).name} was indexed from there"
                )

    def add(
        self, content: bytes, name: str, identity: str | None, metadata: Mapping[str, Any]
    ) -> StoredImage:
        """Write and index a picture; one that is there already gets the new facts.

        Raises `RefusedError` (409) for bytes that are no picture, `DataError` for metadata that cannot be kept,
        `StoreError` while another process writes and where the disk refuses; there is no file then.
        """
        assert self.folder is not None
        ending = _ENDINGS.get(browser_type(content[:16]) or "", ".tif")
        path = self.folder / f"{hashlib.sha256(content).hexdigest()}{ending}"
        facts = {**metadata, NAME: name, **({} if identity is None else {"identity": identity})}
        # the name is the hash of the bytes: what is there already is the same picture
        new = not path.exists()
        try:
            if new:
                _write(path, content)
            done = index_pictures(
                self.engine.encoder, self.engine.files, [path], metadata={str(path): facts}, workers=1
            )
            if done.skipped:
                raise RefusedError(409, f"{name}: {done.skipped[0][1]}")
        except BaseException as error:
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
        """Take a picture out of the store, and delete its file if it was added here. Raises `RefusedError` (404)."""
        entry = self.engine.files.entry(key)
        if entry is None or not self.engine.files.delete([key]):
            raise RefusedError(404, "the store holds no picture of this id")
        path = Path(entry.path)
        # whatever else lies in the folder is not ours
        if is_upload(entry.path, self.folder) and path.stem == entry.sha256 and NAME in entry.metadata:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                log.error("%s: cannot be deleted (%s)", path, error.strerror or error)
        self._tidy()

    def _tidy(self) -> None:
        """Join what many changes have left; what was changed stays so where that fails."""
        self._changes += 1
        if self._changes % _COMPACT_AFTER == 0:
            try:
                self.engine.files.compact()
            except StoreError as error:
                log.error("%s", error)


def is_upload(path: str, folder: Path | None) -> bool:
    """True for a picture that a client added: it lies in the folder of uploads, under a hash."""
    return folder is not None and Path(path).parent == folder and bool(_HASH.fullmatch(Path(path).stem))


def without_path(one: T, folder: Path | None) -> T:
    """A hit or an item as it is told over HTTP: without its path, under the name that it goes by."""
    name = shown_name(str(one.path), one.metadata, folder)
    return one.model_copy(update={"path": None, "name": name})


def shown_name(path: str, metadata: Mapping[str, Any], folder: Path | None) -> str:
    """The name of a picture over HTTP: its file's name, or for an added one the name that its client gave."""
    given = metadata.get(NAME) if is_upload(path, folder) else None
    return given if isinstance(given, str) else Path(path).name


def writable(folder: Path) -> Path:
    """The folder as an absolute path, made if it is not there. Raises `SettingsError` where nothing can be written."""
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 - as the store spells paths
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise SettingsError(
            f"{folder}: uploads cannot be written there ({error.strerror or error})"
        ) from None
    return folder


def _write(path: Path, content: bytes) -> None:
    """All of the file or nothing of it."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
