"""Images that clients add and delete: written to the folder of uploads, then indexed."""

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from limner.data.heif import is_heif
from limner.data.images import browser_type
from limner.errors import SettingsError, StoreError
from limner.search.engine import Engine
from limner.search.index import index_pictures
from limner.server.problems import RefusedError
from limner.store.entry import StoredImage
from limner.store.path import cause_of
from limner.store.uploads import ENDINGS, NAME, Uploads, is_in, is_upload, other_folders


class Changes:
    """Adds and deletes images; it must be called from one thread.

    `folder`: the folder of added images, and of no others of the store; None = no images can be added.

    Raises `SettingsError` for a folder that cannot be written, or holds images that were indexed from there.
    """

    def __init__(self, engine: Engine, folder: Path | None) -> None:
        self.engine = engine
        self.folder = None if folder is None else writable(folder)
        self._uploads = None if self.folder is None else self._claimed(self.folder)

    def _claimed(self, folder: Path) -> Uploads:
        files = self.engine.files
        columns = files.snapshot().columns
        paths = [*columns.paths, *(path for others in columns.others for path in others)]
        # links are followed once a folder, not once a picture
        here = {parent for parent in {_parent(path) for path in paths} if is_in(parent, folder)}
        for path in paths:
            # `delete` removes files of this folder: those that its owner indexed from here must not lie among them
            if _parent(path) in here and not is_upload(path, folder):
                raise SettingsError(
                    f"{folder}: uploads need a folder of their own; {Path(path).name} was indexed from there"
                )
        # what is erased must go from there, too, and an erasure looks in one folder
        if others := sorted(other_folders(paths, folder)):
            raise SettingsError(
                f"{folder}: pictures that clients have added to {files.folder} lie in {others[0]}; name that folder, "
                f"or move it as a whole, and run `limner index {files.folder}/model {files.folder} MOVED`"
            )
        uploads = Uploads.claim(folder, files)
        # while another process writes it is left for the next change: that process may be adding a picture
        with suppress(StoreError), files.writing():
            uploads.recover(files)
        return uploads

    def add(self, content: bytes, name: str, given: Mapping[str, Any]) -> StoredImage:
        """Write and index an image with the facts that are given; one that is there already keeps the others.

        Raises `RefusedError` (409) for bytes that are no image, `DataError` for metadata that cannot be kept,
        `StoreError` while another process writes and if the disk refuses; then no file is left.
        """
        assert self.folder is not None
        # by the bytes, never by the client's name; what browsers do not show is HEIC or TIFF, or fails to decode
        kind = browser_type(content[:16]) or ("image/heic" if is_heif(content[:64]) else "image/tiff")
        path = self.folder / f"{hashlib.sha256(content).hexdigest()}{ENDINGS[kind]}"
        try:
            # the file, too, is written by whoever holds the store: an erasure meanwhile would take it for a leftover
            with self.engine.files.writing(), self._written(path, content):
                own = {"identity": given["identity"]} if "identity" in given else {}
                facts = {**given.get("metadata", {}), **own, NAME: name}
                # one worker: it is one file, and the thread of the model waits for it anyway
                done = index_pictures(
                    self.engine.encoder, self.engine.files, [path], metadata={str(path): facts}, workers=1
                )
                if done.skipped:
                    raise RefusedError(409, f"{name}: {done.skipped[0][1]}")
        except OSError as error:
            raise _unwritten(path, error) from None
        return self.engine.files.entries([str(path)])[str(path)]

    @contextmanager
    def _written(self, path: Path, content: bytes) -> Iterator[None]:
        """Write a picture that is not there; if the block fails, or the process is killed, it goes again."""
        assert self._uploads is not None
        # the name is the hash of the bytes: a file that is there already is the same image, perhaps of another row
        if path.exists():
            yield
            return
        with self._uploads.changing([str(path)], self.engine.files):
            self._uploads.write(path.name, content)
            yield

    def delete(self, key: str) -> None:
        """Take an image out of the store, and delete its file if it was added here. Raises `RefusedError` (404)."""
        files = self.engine.files
        try:
            with files.writing():
                entry = files.entry(key)
                if entry is None:
                    raise RefusedError(404, "the store holds no picture of this id")
                # the row first, then the file: killed in between, the next change or start deletes the file
                with self._deleting(entry):
                    files.delete([key])
        except OSError as error:
            raise _unwritten(self.folder, error) from None

    def _deleting(self, entry: StoredImage) -> AbstractContextManager[None]:
        # of other files there none has its own hash for a name
        if self._uploads is None or not is_upload(entry.path, self.folder):
            return nullcontext()
        if Path(entry.path).stem != entry.sha256:
            return nullcontext()
        return self._uploads.changing([entry.path], self.engine.files)


def _unwritten(place: Path | None, error: OSError) -> StoreError:
    trouble, advice = cause_of(error.errno)
    told = f"{place}: cannot be written ({error.strerror or error}){advice}"
    return StoreError(told, trouble, "the folder of uploads")


def _parent(path: str) -> str:
    return path.rpartition(os.sep)[0]


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
