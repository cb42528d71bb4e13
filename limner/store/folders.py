"""The folders that a store follows: those that it was indexed from, with what is left out of each."""

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from limner.durable import from_json, opened, sealed
from limner.errors import StoreError
from limner.store.entry import StoredImage
from limner.store.files import StoreFiles

TEXT = "folders"
"""Name of the text in which a store keeps them."""


class Folder(NamedTuple):
    """A folder of pictures: its absolute path, and patterns of what is left out of it."""

    path: str
    exclude: tuple[str, ...] = ()


def is_below(path: str, folder: str) -> bool:
    """True for the path of a folder, and for one of what is in it."""
    return path == folder or path.startswith(f"{folder.rstrip(os.sep)}{os.sep}")


def folders_of(files: StoreFiles) -> list[Folder]:
    """The folders that a store follows, by path. Raises `StoreError` for a list that is damaged."""
    text = files.rows.text(TEXT)
    if text is None:
        return []
    try:
        return [Folder(path, tuple(exclude)) for path, exclude in opened(from_json(text))["folders"]]
    except (KeyError, TypeError, ValueError):
        raise StoreError(
            f"{files.folder}: its list of folders is damaged; name them to `limner index` again", "damaged"
        ) from None


def follow_folders(files: StoreFiles, folders: Iterable[Folder]) -> None:
    """Let a store follow folders, too; of one that it follows, what is left out is that which is given now."""
    _write(files, {one.path: one.exclude for one in [*folders_of(files), *folders]})


def leave_folders(files: StoreFiles, named: Sequence[str], erased: Sequence[StoredImage]) -> None:
    """Let a store follow folders no more: those that are named or below, and those of which all is to be erased.

    Their names would tell of what was erased.
    """
    out = {image.id for image in erased}
    left = [path for image in files.images() if image.id not in out for path in image.paths]
    gone = [path for image in erased for path in image.paths]
    _write(
        files,
        {
            one.path: one.exclude
            for one in folders_of(files)
            if not any(is_below(one.path, path) for path in named)
            and (
                any(is_below(path, one.path) for path in left)
                or not any(is_below(path, one.path) for path in gone)
            )
        },
    )


def _write(files: StoreFiles, folders: dict[str, tuple[str, ...]]) -> None:
    if {one.path: one.exclude for one in folders_of(files)} != folders:
        text = sealed({"folders": sorted((path, list(exclude)) for path, exclude in folders.items())})
        files.rows.set_text(TEXT, text if folders else None)
