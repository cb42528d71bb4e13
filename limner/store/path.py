"""The path of a store: a folder of this machine, or `s3://BUCKET/…` on an object storage."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from limner.arguments import PATH, expect
from limner.errors import SettingsError, StoreError, StoreTrouble, install_hint

_FAILING = (
    errno.EIO,
    errno.ESTALE,
    errno.ENOTCONN,
    errno.ETIMEDOUT,
    errno.EHOSTDOWN,
    errno.ENODEV,
    errno.ENXIO,
)
"""Errors of a disk, or of a network file system, that is failing."""


# a protocol, not `upath.UPath`: that is an extra, and `pathlib.Path` meets this as it is
@runtime_checkable
class StorePath(Protocol):
    """The folder of a store: a `pathlib.Path`, or a `upath.UPath` on an object storage."""

    @property
    def name(self) -> str:
        """Last part of the path."""

    def __truediv__(self, name: str) -> "StorePath":
        """Path of a file or folder in it."""

    def is_dir(self) -> bool:
        """True for a folder that exists."""

    def exists(self) -> bool:
        """True if it exists."""

    def iterdir(self) -> Iterator["StorePath"]:
        """Iterate over the folder's content."""

    def read_text(self, encoding: str | None = None) -> str:
        """Read the text of a file."""

    def write_text(self, data: str, encoding: str | None = None) -> int:
        """Write the text of a file."""


def store_path(given: "str | Path | StorePath") -> StorePath:
    """Parse the folder that a user names. Raises `SettingsError` for other URLs, and without the libraries for S3.

    Keys and region come from the environment or the files of the AWS tools; AWS_ENDPOINT_URL names another storage.
    """
    expect(given, (*PATH, StorePath), "a store: its folder or s3://BUCKET/FOLDER")
    text = str(given)
    if "://" not in text:
        return Path(text)
    # such a path was made by this function before
    if not isinstance(given, str):
        return given
    if not text.startswith("s3://"):
        raise SettingsError(f"{text}: expected a folder or s3://BUCKET/FOLDER")
    try:
        from upath import UPath
    except ImportError:
        raise SettingsError(f"{text}: stores on S3 need more: {install_hint('s3')}") from None
    # s3fs keeps listings, which would hide what another process has added since
    place: StorePath = UPath(text.rstrip("/"), use_listings_cache=False)
    return place


def is_remote(place: StorePath) -> bool:
    """True for a path on an object storage."""
    return not isinstance(place, Path)


@contextmanager
def reached(place: Any, doing: str = "written") -> Iterator[None]:
    """Turn errors of a file system or an object storage into a `StoreError` with the next step."""
    try:
        yield
    except Exception as error:
        # by the name of its module: botocore is an extra, and its errors are no OSErrors
        if not isinstance(error, OSError) and not type(error).__module__.startswith("botocore."):
            raise
        trouble, advice = cause_of(getattr(error, "errno", None))
        if not isinstance(place, Path | str):
            # a storage has no such numbers; `_reason` names the next step
            trouble, advice = ("forbidden" if isinstance(error, PermissionError) else "disk"), ""
        raise StoreError(f"{place}: cannot be {doing} ({_reason(place, error)}){advice}", trouble) from None


def cause_of(number: int | None) -> tuple[StoreTrouble, str]:
    """Say what the number of a system's error means for a store, and the next step, which may be ""."""
    if number in (errno.EACCES, errno.EPERM):
        return "forbidden", "; give the user who runs limner the right to it"
    if number == errno.EROFS:
        return "forbidden", "; mount the disk so that it can be written"
    if number in (errno.ENOSPC, errno.EDQUOT):
        return "full", ""
    if number in _FAILING:
        return "disk", "; the disk or its connection fails: look at the system's log"
    return "other", ""


def expect_there(folder: Path) -> None:
    """Raise `StoreError` if a folder is gone, and `OSError` if it cannot be reached."""
    if not folder.is_dir():
        raise StoreError(f"{folder}: the folder is gone; is its disk mounted?", "missing")


def expect_writable(folder: Path, *files: Path) -> None:
    """Raise `StoreError` if nothing can be written in a folder, or one of its files, as can be told without writing."""
    with reached(folder):
        expect_there(folder)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        for file in files:
            if os.path.lexists(file) and not os.access(file, os.W_OK):
                raise PermissionError(errno.EACCES, f"{file.name}: {os.strerror(errno.EACCES)}")
        if not os.statvfs(folder).f_bavail:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _reason(place: Any, error: Exception) -> str:
    # messages of botocore have several lines, an error of limner has one
    message = (getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()[0][:200]
    # a text names what lies on the disk
    if isinstance(place, Path | str):
        return message
    # s3fs turns a refusal (403) into a PermissionError
    if "Credentials" in type(error).__name__ or isinstance(error, PermissionError):
        return f"{message}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile"
    return f"{message}; the endpoint is {endpoint() or 'that of AWS'}"


def endpoint() -> str | None:
    """The URL of an object storage that is not Amazon's own."""
    # the variable of the one service goes before that of all, as in the tools of AWS
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def remove(path: StorePath) -> None:
    """Remove a file, or a folder with all that is in it."""
    if not isinstance(path, Path):
        remote: Any = path
        remote.fs.rm(remote.path, recursive=True)
    elif path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def expect_own_files(folder: StorePath) -> None:
    """Raise `StoreError` for anything but files and folders among a store's, e.g. a symbolic link or a pipe.

    Where a link leads others may change or remove what the store needs, and an erasure would leave the bytes there. A
    pipe keeps whoever reads it waiting for ever. A store on an object storage has none of these.
    """
    if not isinstance(folder, Path):
        return
    # 0.2 ms for a hundred files, since the system tells the kind with the name
    folders = [str(folder)]
    while folders:
        try:
            entries = os.scandir(folders.pop())
        except OSError:
            # gone meanwhile, or told by whoever reads it
            continue
        with entries:
            for entry in entries:
                if entry.is_symlink():
                    raise StoreError(
                        f"{entry.path}: is a symbolic link; the files of a store must lie in its own folder: put there "
                        "what it leads to"
                    )
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif not entry.is_file(follow_symlinks=False):
                    raise _no_file(entry.path)


def read_text(path: StorePath) -> str:
    """Read the text of a small file, as it was at one moment.

    Of an object storage in one request: opening it takes two, and if a writer puts the object anew between them, the
    second one fails.
    """
    if not is_remote(path):
        return path.read_text(encoding="utf-8")
    remote: Any = path
    # without a start s3fs asks for the size first, to read a large object in parts
    content: bytes = remote.fs.cat_file(remote.path, start=0)
    return content.decode("utf-8")


def _no_file(path: object) -> StoreError:
    return StoreError(f"{path}: is a pipe or a device in the place of a file; put back the file from a copy")


def size_of(place: Any) -> int:
    """Count the bytes of all files below a folder. Raises `StoreError` if it cannot be reached."""
    with reached(place, "read"):
        return sum(int(path.stat().st_size) for path in place.rglob("*") if path.is_file())
