"""Files and folders that appear whole or not at all, after a kill and after a power cut, too; and JSON that is checked.

What is written lies beside its place under a name that ends in `.part` until it is whole: a rename within a file system
is one step. A killed call leaves one such name, which the next call replaces.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

from limner.errors import CheckpointError, SettingsError

KEY = "digest"
"""Key of the digest in sealed JSON: of all other keys, whatever their order and layout."""


def sync(path: Path) -> None:
    """Wait until the bytes of a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_all(folder: Path) -> None:
    """Wait until all that a folder holds is on the disk: a few milliseconds a file."""
    for path in (*folder.rglob("*"), folder):
        sync(path)


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder with all that is in it into another one. Raises `OSError` of the first file that cannot be copied.

    `shutil.copytree` goes on, and raises a list of texts in the end.
    """

    def unread(error: OSError) -> None:
        raise error

    for folder, _, names in os.walk(source, onerror=unread, followlinks=True):
        to = target / Path(folder).relative_to(source)
        to.mkdir(exist_ok=True)
        for name in names:
            shutil.copy2(Path(folder, name), to / name)


def part_of(path: Path) -> Path:
    """Where a file or folder is written before it gets its name."""
    return path.with_name(f"{path.name}.part")


def write_whole(
    path: Path,
    content: str | bytes,
    *,
    part: Path | None = None,
    mode: int = 0o666,
    opened: Callable[[int], object] = lambda handle: None,
) -> None:
    """Write a file as a whole or not at all; it is on the disk afterwards. Raises `OSError`.

    `part`: where it is written, None = `part_of`. `mode`: its rights, less the process's mask. `opened` is called with
    the handle before anything is written.
    """
    part = part or part_of(path)
    try:
        # what a killed call has left may have other rights
        part.unlink(missing_ok=True)
        with open(part, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            opened(file.fileno())
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            # before the rename, or the name could lead to an empty file after a power cut
            os.fsync(file.fileno())
        part.replace(path)
        sync(path.parent)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text as `write_whole` does. Raises `CheckpointError` when the disk refuses."""
    try:
        write_whole(path, text)
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be written ({error.strerror}); check the folder, space and rights"
        ) from None


@contextmanager
def whole_folder(folder: Path, part: Path | None = None) -> Iterator[Path]:
    """A folder to write to, which gets its name at the end and is removed if anything fails.

    `part`: where it is written, None = `part_of`. Its files are on the disk if they were synced: `sync_all`.
    """
    part = part or part_of(folder)
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        yield part
        part.rename(folder)
        sync(folder.parent)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def expect_new(folder: Path, what: str) -> None:
    """Raise `SettingsError` for a folder that is there already; `what` is meant to be written, e.g. "the site"."""
    if folder.exists():
        raise SettingsError(f"{folder}: it exists; give a new folder for {what}")


def from_json(text: str | bytes, **hooks: Any) -> Any:
    """Parse JSON; `hooks` are those of `json.loads`. Raises `ValueError`, for brackets nested thousands deep, too."""
    try:
        return json.loads(text, **hooks)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_json(path: Path) -> Any:
    """Read a file of JSON. Raises `OSError`, and `ValueError` for anything else than JSON."""
    return from_json(path.read_text(encoding="utf-8"))


def sealed(values: Mapping[str, Any]) -> str:
    """Write values as JSON with their digest, by which a changed byte is found when they are read.

    >>> opened(from_json(sealed({"dim": 512})))
    {'dim': 512}
    """
    return json.dumps({**values, KEY: digest_of_values(values)}, indent=2) + "\n"


def opened(values: Any, *, required: bool = True) -> dict[str, Any]:
    """Return sealed values without their digest.

    Raises `ValueError` for anything but a JSON object, if the digest is another one, and if it is missing where it is
    required.
    """
    if not isinstance(values, dict):
        raise ValueError("no JSON object")
    rest = {name: value for name, value in values.items() if name != KEY}
    if values.get(KEY) != digest_of_values(rest) and (required or KEY in values):
        raise ValueError("its digest is another")
    return rest


def digest_of_values(values: Mapping[str, Any]) -> str:
    """Digest of values that JSON can hold: 32 hex digits."""
    # dumped and parsed: a tuple is a list in the file, and a number as a key a text
    plain = json.loads(json.dumps(values))
    return blake2b(json.dumps(plain, sort_keys=True).encode(), digest_size=16).hexdigest()
