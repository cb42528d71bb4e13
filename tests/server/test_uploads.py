import hashlib
from pathlib import Path

import pytest

from limner.errors import SettingsError, StoreError
from limner.search.engine import Engine
from limner.search.entry import key_of
from limner.search.index import index_pictures
from limner.server import uploads
from limner.server.problems import RefusedError
from limner.server.uploads import Changes, shown_name, writable
from tests.search.fake import draw
from tests.server.serving import COUNT, HOME


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
    with engine.files.writing():
        other = Engine(type(engine.files).open(engine.files.folder), engine.encoder)
        with pytest.raises(StoreError, match="another process"):
            Changes(other, tmp_path / "uploads").add(content, "a.png", None, {})
    assert list((tmp_path / "uploads").iterdir()) == []
    assert len(engine.files) == COUNT
    changes.add(content, "a.png", None, {})
    assert len(engine.files) == COUNT + 1


def test_broken_pictures(engine: Engine, tmp_path: Path) -> None:
    changes = Changes(engine, tmp_path / "uploads")
    content = draw(tmp_path / "a.png", 99).read_bytes()
    for broken in (b"", b"GIF89a", content[: len(content) // 2]):
        with pytest.raises(RefusedError, match=r"a\.png: "):
            changes.add(broken, "a.png", None, {})
    assert list((tmp_path / "uploads").iterdir()) == []


def test_many_changes_are_joined(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "_TIDY_AFTER", 3)
    joined = []
    monkeypatch.setattr(engine.files, "tidy", lambda: joined.append(len(engine.files)))
    changes = Changes(engine, None)
    for key in engine.files.snapshot().keys[:4]:
        changes.delete(key)
    assert joined == [COUNT - 3]


def test_the_owners_pictures_are_never_deleted(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"a folder of their own; 0\.png was indexed"):
        Changes(engine, tmp_path / HOME)
    changes = Changes(engine, tmp_path / "uploads")
    # indexed from there while the server runs: by its own name, under a hash that is not its own, and under its own
    content = draw(tmp_path / "a.png", 99).read_bytes()
    names = ["mine", "0" * 64, hashlib.sha256(content).hexdigest()]
    files = [tmp_path / "uploads" / f"{name}.png" for name in names]
    for file in files:
        file.write_bytes(content)
        index_pictures(engine.encoder, engine.files, [file])
        changes.delete(key_of(str(file)))
        assert file.exists()
    assert len(engine.files) == COUNT


def test_a_change_that_is_done_is_no_failure(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(uploads, "_TIDY_AFTER", 1)

    def full() -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(engine.files, "tidy", full)
    changes = Changes(engine, tmp_path / "uploads")
    added = changes.add(draw(tmp_path / "a.png", 99).read_bytes(), "a.png", None, {})
    changes.delete(added.id)
    assert len(engine.files) == COUNT
    assert caplog.text.count("the disk is full") == 2


def test_names_of_pictures(tmp_path: Path) -> None:
    folder, name = tmp_path / "uploads", f"{'0a' * 32}.png"
    assert shown_name(str(folder / name), {"name": "a.png"}, folder) == "a.png"
    assert shown_name(str(folder / name), {"name": 3}, folder) == name
    assert shown_name(str(folder / "deep" / name), {"name": "a.png"}, folder) == name
    assert shown_name(str(folder / "b.png"), {"name": "a.png"}, folder) == "b.png"
    assert shown_name("/pictures/b.png", {"name": "a.png"}, folder) == "b.png"
    assert shown_name("/pictures/b.png", {"name": "a.png"}, None) == "b.png"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="uploads cannot be written"):
        writable(tmp_path / "file" / "folder")
    assert writable(tmp_path / "a" / ".." / "b") == tmp_path / "b"
