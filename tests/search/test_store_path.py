from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from limner.durable import sealed
from limner.errors import SettingsError, StoreError
from limner.search.commits import Commits, Record, State
from limner.search.manifest import StoreManifest, read_manifest
from limner.search.store_files import store_for
from limner.search.store_path import StorePath, is_remote, reached, size_of, storage_options, store_path
from tests.search.fake import FakeEncoder


def test_folders(tmp_path: Path) -> None:
    assert store_path("store") == Path("store")
    assert store_path(tmp_path) is not None
    assert isinstance(store_path(tmp_path), StorePath)
    assert not is_remote(store_path("store"))
    assert storage_options(tmp_path) is None
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a").write_bytes(b"123")
    (tmp_path / "b").write_bytes(b"45")
    assert size_of(tmp_path) == 5


def test_object_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("upath")
    pytest.importorskip("s3fs")
    place = store_path("s3://bucket/store/")
    assert str(place) == "s3://bucket/store"
    assert str(place / "store.json") == "s3://bucket/store/store.json"
    assert is_remote(place)
    assert store_path(place) is place
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert storage_options(place) == {"endpoint": "http://127.0.0.1:9", "allow_http": "true"}
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://storage.example")
    assert storage_options(place) == {"endpoint": "https://storage.example", "allow_http": "false"}


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
        for ask in (read_manifest, lambda place: store_for(FakeEncoder(), Path("run"), place)):
            with pytest.raises(StoreError, match=said) as caught:
                ask(Objects(error))
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


class Body:
    """The content of an answer."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    async def read(self) -> bytes:
        return self._content

    def close(self) -> None:
        pass


def test_what_a_writer_puts_anew_is_read_in_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """To open an object takes two; with them 52 of 75 readings failed beside a writer that never paused."""
    pytest.importorskip("upath")
    s3fs = pytest.importorskip("s3fs")
    place = store_path("s3://bucket/store")
    manifest = StoreManifest.parse(
        {"fingerprint": "a", "dim": 3, "run": "run", "created": "2026-11-27", "id": "1"}
    )
    record = Record().begun(State(version=1, rows=3))
    objects = {
        "bucket/store/store.json": sealed(manifest.model_dump(mode="json")),
        "bucket/store/pictures-1.commits.json": sealed(asdict(record)),
    }
    asked: list[tuple[str, str]] = []

    async def call_s3(_: object, method: str, Bucket: str, Key: str, **__: object) -> Any:  # noqa: N803
        asked.append((method, f"{Bucket}/{Key}"))
        return {"Body": Body(objects[f"{Bucket}/{Key}"].encode())}

    def expired(*_: object, **__: object) -> None:
        raise s3fs.utils.FileExpired("store.json", "its Etag")

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", call_s3)
    monkeypatch.setattr(s3fs.S3FileSystem, "open", expired)
    assert read_manifest(place) == manifest
    assert Commits(place, "pictures-1").read() == record
    assert asked == [("get_object", path) for path in objects]


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="expected a folder or s3://"):
        store_path("ftp://host/store")
    monkeypatch.setitem(__import__("sys").modules, "upath", None)
    with pytest.raises(SettingsError, match=r"pip install 'limner\[s3\]'"):
        store_path("s3://bucket/store")
