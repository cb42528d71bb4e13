from pathlib import Path

import pytest

from limner.errors import SettingsError
from limner.search.place import Place, is_remote, place_of, size_of, storage_options


def test_folders(tmp_path: Path) -> None:
    assert place_of("store") == Path("store")
    assert place_of(tmp_path) is not None
    assert isinstance(place_of(tmp_path), Place)
    assert not is_remote(place_of("store"))
    assert storage_options(tmp_path) is None
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a").write_bytes(b"123")
    (tmp_path / "b").write_bytes(b"45")
    assert size_of(tmp_path) == 5


def test_object_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("upath")
    pytest.importorskip("s3fs")
    place = place_of("s3://bucket/store/")
    assert str(place) == "s3://bucket/store"
    assert str(place / "store.json") == "s3://bucket/store/store.json"
    assert is_remote(place)
    assert place_of(place) is place
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert storage_options(place) == {"endpoint": "http://127.0.0.1:9", "allow_http": "true"}
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://storage.example")
    assert storage_options(place) == {"endpoint": "https://storage.example", "allow_http": "false"}


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="expected a folder or s3://"):
        place_of("ftp://host/store")
    monkeypatch.setitem(__import__("sys").modules, "upath", None)
    with pytest.raises(SettingsError, match=r"pip install 'limner\[s3\]'"):
        place_of("s3://bucket/store")
