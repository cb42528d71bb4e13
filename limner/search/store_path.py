"""Where a store lies: in a folder of this machine, or under `s3://BUCKET/…` of an object storage."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from limner.errors import SettingsError, StoreError, install_hint


@runtime_checkable
class StorePath(Protocol):
    """What a store needs of its folder: a `pathlib.Path` is one, and a `upath.UPath`."""

    @property
    def name(self) -> str:
        """The last part of its path."""

    def __truediv__(self, name: str) -> "StorePath":
        """A file or folder in it."""

    def is_dir(self) -> bool:
        """Whether it is a folder that is there."""

    def exists(self) -> bool:
        """Whether it is there."""

    def iterdir(self) -> Iterator["StorePath"]:
        """What is in the folder."""

    def read_text(self, encoding: str | None = None) -> str:
        """The text of a file."""

    def write_text(self, data: str, encoding: str | None = None) -> int:
        """Write the text of a file."""


def store_path(given: "str | Path | StorePath") -> StorePath:
    """The folder that a user names. Raises `SettingsError` for another kind of URL, and without the libraries for it.

    Keys and region come from the environment or the files of the AWS tools; AWS_ENDPOINT_URL names another storage.
    """
    text = str(given)
    if "://" not in text:
        return Path(text)
    if not isinstance(given, str):
        return given
    if not text.startswith("s3://"):
        raise SettingsError(f"{text}: expected a folder or s3://BUCKET/FOLDER")
    try:
        from upath import UPath
    except ImportError:
        raise SettingsError(f"{text}: stores on S3 need more: {install_hint('s3')}") from None
    # a listing that was kept would hide what another process has added
    place: StorePath = UPath(text.rstrip("/"), use_listings_cache=False)
    return place


def is_remote(place: StorePath) -> bool:
    """Whether it lies on an object storage."""
    return not isinstance(place, Path)


def storage_options(place: StorePath) -> dict[str, str] | None:
    """What LanceDB must be told of an object storage that is not Amazon's own."""
    endpoint = _endpoint()
    if not is_remote(place) or not endpoint:
        return None
    return {"endpoint": endpoint, "allow_http": str(endpoint.startswith("http:")).lower()}


@contextmanager
def reached(place: Any, doing: str = "written") -> Iterator[None]:
    """What a file system or an object storage raises, as a `StoreError` that names what to look at."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, OSError) and not type(error).__module__.startswith("botocore."):
            raise
        raise StoreError(f"{place}: cannot be {doing} ({_reason(place, error)})") from None


def _reason(place: Any, error: Exception) -> str:
    said = (getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()[0][:200]
    if isinstance(place, Path):
        return said
    if "Credentials" in type(error).__name__ or isinstance(error, PermissionError):
        return f"{said}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile"
    return f"{said}; the endpoint is {_endpoint() or 'that of AWS'}"


def _endpoint() -> str | None:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def size_of(place: Any) -> int:
    """Bytes of all files below a folder. Raises `StoreError` where it cannot be reached."""
    with reached(place, "read"):
        return sum(int(path.stat().st_size) for path in place.rglob("*") if path.is_file())
