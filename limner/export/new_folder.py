"""A folder that appears under its name whole or not at all: exports and sites are written so."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from limner.errors import SettingsError


def expect_new(folder: Path, what: str) -> None:
    """Raise `SettingsError` for a folder that is there already; `what` is meant to be written, e.g. "the site"."""
    if folder.exists():
        raise SettingsError(f"{folder}: it exists; give a new folder for {what}")


@contextmanager
def new_folder(folder: Path, what: str) -> Iterator[Path]:
    """A folder to write to, which gets its name at the end and is removed if anything fails.

    What a killed call left there is replaced. Raises `SettingsError` as `expect_new`.
    """
    expect_new(folder, what)
    # beside its place: a rename within one file system is one step
    partial = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial.mkdir()
    try:
        yield partial
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
