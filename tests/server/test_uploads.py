from pathlib import Path

import pytest

from limner.errors import ImageError, SettingsError, StoreError
from limner.search.engine import Engine
from limner.server import uploads
from limner.server.uploads import Changes, shown_name, writable
from tests.search.fake import draw
from tests.server.serving import COUNT


def test_a_full_disk_leaves_nothing(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = Changes(engine, tmp_path / "uploads")
    content = draw(tmp_path / "a.png", 99).read_bytes()

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(StoreError, match="No space left"):
            changes.add(content, "a.png", None, {})
    assert list((tmp_path / "uploads").iterdir()) == []
    with engine.store.writing():
        other = Engine(type(engine.store).open(engine.store.folder), engine.encoder)
        with pytest.raises(StoreError, match="another process"):
            Changes(other, tmp_path / "uploads").add(content, "a.png", None, {})
    assert list((tmp_path / "uploads").iterdir()) == []
    assert len(engine.store) == COUNT
    changes.add(content, "a.png", None, {})
    assert len(engine.store) == COUNT + 1


def test_broken_pictures(engine: Engine, tmp_path: Path) -> None:
    changes = Changes(engine, tmp_path / "uploads")
    content = draw(tmp_path / "a.png", 99).read_bytes()
    for broken in (b"", b"GIF89a", content[: len(content) // 2]):
        with pytest.raises(ImageError):
            changes.add(broken, "a.png", None, {})
    assert list((tmp_path / "uploads").iterdir()) == []


def test_many_changes_are_joined(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "_COMPACT_AFTER", 3)
    joined = []
    monkeypatch.setattr(engine.store, "compact", lambda: joined.append(len(engine.store)))
    changes = Changes(engine, None)
    for key in engine.store.snapshot().keys[:4]:
        changes.delete(key)
    assert joined == [COUNT - 3]


def test_names_of_pictures(tmp_path: Path) -> None:
    folder = tmp_path / "uploads"
    assert shown_name(str(folder / "0a.png"), {"name": "a.png"}, folder) == "a.png"
    assert shown_name(str(folder / "0a.png"), {"name": 3}, folder) == "0a.png"
    assert shown_name(str(folder / "deep" / "0a.png"), {"name": "a.png"}, folder) == "0a.png"
    assert shown_name("/pictures/b.png", {"name": "a.png"}, folder) == "b.png"
    assert shown_name("/pictures/b.png", {"name": "a.png"}, None) == "b.png"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="uploads cannot be written"):
        writable(tmp_path / "file" / "folder")
    assert writable(tmp_path / "a" / ".." / "b") == tmp_path / "b"
