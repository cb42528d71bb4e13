from collections.abc import Iterator
from pathlib import Path

import pytest

from limner.errors import SettingsError, StoreError
from limner.store.files import store_for
from limner.store.path import StorePath, is_remote, reached, size_of, store_path
from tests.search.fake import FakeEncoder


def test_folders(tmp_path: Path) -> None:
    assert store_path("store") == Path("store")
    assert store_path(tmp_path) is not None
    assert isinstance(store_path(tmp_path), StorePath)
    assert not is_remote(store_path("store"))
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a").write_bytes(b"123")
    (tmp_path / "b").write_bytes(b"45")
    assert size_of(tmp_path) == 5


def test_object_storage() -> None:
    pytest.importorskip("upath")
    pytest.importorskip("s3fs")
    place = store_path("s3://bucket/store/")
    assert str(place) == "s3://bucket/store"
    assert str(place / "store.json") == "s3://bucket/store/store.json"
    assert is_remote(place)
    assert store_path(place) is place


def test_a_storage_that_cannot_be_reached_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = pytest.importorskip("botocore.exceptions")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")

    for error, said in (
        (
            errors.EndpointConnectionError(endpoint_url="http://127.0.0.1:9"),
            "the endpoint is http://127.0.0.1:9",
        ),
        (errors.NoCredentialsError(), "set AWS_ACCESS_KEY_ID"),
        (PermissionError(13, "Access Denied"), "set AWS_ACCESS_KEY_ID"),
    ):
        with pytest.raises(StoreError, match=said) as caught:
            store_for(FakeEncoder(), Path("run"), Objects(error))
        assert "\n" not in str(caught.value)
    with pytest.raises(ZeroDivisionError), reached(Path("x")):
        raise ZeroDivisionError


class Objects:
    """A folder of an object storage on which all fails alike."""

    name = "store"

    path = "bucket/store"

    def __init__(self, error: Exception) -> None:
        self.error = error

    @property
    def fs(self) -> "Objects":
        return self

    def cat_file(self, path: str, start: int) -> bytes:
        raise self.error

    def __str__(self) -> str:
        return "s3://bucket/store"

    def __truediv__(self, name: str) -> "Objects":
        return self

    def iterdir(self) -> Iterator["Objects"]:
        raise self.error

    def write_text(self, data: str, encoding: str | None = None) -> int:
        raise self.error

    def is_dir(self) -> bool:
        raise self.error

    def exists(self) -> bool:
        raise self.error

    def read_text(self, encoding: str | None = None) -> str:
        raise self.error


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="expected a folder or s3://"):
        store_path("ftp://host/store")
    monkeypatch.setitem(__import__("sys").modules, "upath", None)
    with pytest.raises(SettingsError, match=r"pip install 'limner\[s3\]'"):
        store_path("s3://bucket/store")
