import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from limner.errors import SettingsError, StoreError
from limner.search.engine import Engine
from limner.search.index import index_pictures, reindex
from limner.search.sync import sync
from limner.server.answer_forms import for_clients
from limner.server.problems import RefusedError
from limner.server.settings import ServerSettings
from limner.server.uploads import Changes, writable
from limner.store.entry import key_of
from limner.store.erase import erase
from limner.store.folders import Folder, folders_of, follow_folders
from limner.store.uploads import MARK, shown_name
from tests.search.fake import draw
from tests.search.test_places import made
from tests.server.serving import COUNT, HOME, added_to


def test_a_full_disk_leaves_nothing(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = Changes(engine, tmp_path / "uploads")
    content = draw(tmp_path / "a.png", 99).read_bytes()

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(StoreError, match="No space left") as told:
            changes.add(content, "a.png", {})
        assert (told.value.trouble, told.value.part) == ("full", "the folder of uploads")
    assert added_to(tmp_path / "uploads") == []
    with engine.files.writing():
        other = Engine(type(engine.files).open(engine.files.folder), engine.encoder)
        with pytest.raises(StoreError, match="another process"):
            Changes(other, tmp_path / "uploads").add(content, "a.png", {})
    assert added_to(tmp_path / "uploads") == []
    assert len(engine.files) == COUNT
    changes.add(content, "a.png", {})
    assert len(engine.files) == COUNT + 1


def test_broken_pictures(engine: Engine, tmp_path: Path) -> None:
    changes = Changes(engine, tmp_path / "uploads")
    content = draw(tmp_path / "a.png", 99).read_bytes()
    for broken in (b"", b"GIF89a", content[: len(content) // 2]):
        with pytest.raises(RefusedError, match=r"a\.png: "):
            changes.add(broken, "a.png", {})
    assert added_to(tmp_path / "uploads") == []


def test_the_owners_pictures_are_never_deleted(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"a folder of their own; 0\.png was indexed"):
        Changes(engine, tmp_path / HOME)
    changes = Changes(engine, tmp_path / "uploads")
    # indexed from there while the server runs, by its own name and under a hash that is not its own
    content = draw(tmp_path / "a.png", 99).read_bytes()
    for name in ("mine", "0" * 64):
        file = tmp_path / "uploads" / f"{name}.png"
        file.write_bytes(content)
        index_pictures(engine.encoder, engine.files, [file])
        changes.delete(key_of(str(file)))
        erase(engine.files, uploads=tmp_path / "uploads")
        assert file.exists()
    assert len(engine.files) == COUNT


_KILLED = """
import os, signal, sys
from pathlib import Path
from limner.search.engine import Engine
from limner.store.erase import erase
from limner.store.folders import Folder, folders_of, follow_folders
from limner.store.uploads import MARK
from limner.store.files import StoreFiles
from limner.store.uploads import Uploads
from limner.server import uploads
from tests.search.fake import FakeEncoder

def end(*given, **named):
    os.kill(os.getpid(), signal.SIGKILL)

store, folder, kind, argument = sys.argv[1:]
changes = uploads.Changes(Engine(StoreFiles.open(store), FakeEncoder()), Path(folder))
if kind == "before the rename":
    # the picture's file, not the mark that is written before it
    both = [Path(folder) / name for name in (".changing", ".adding")]
    os.fsync = lambda handle: all(path.exists() for path in both) and end()
elif kind == "before the row":
    uploads.index_pictures = end
elif kind == "before the file goes":
    StoreFiles.delete = lambda *given, real=StoreFiles.delete: real(*given) and end()
elif kind == "before the row goes":
    StoreFiles.delete = end
elif kind == "before the erased file goes":
    Uploads.remove_leftovers = end
    erase(changes.engine.files, argument, uploads=folder)
if "goes" in kind:
    changes.delete(argument)
else:
    changes.add(Path(argument).read_bytes(), "a.png", {"identity": "victim"})
"""


@pytest.mark.parametrize(
    "kind",
    [
        *("before the rename", "before the row", "before the file goes", "before the row goes"),
        "before the erased file goes",
    ],
)
def test_a_killed_change_leaves_no_picture(kind: str, engine: Engine, tmp_path: Path) -> None:
    """Whoever comes next removes it: the next start, the next change, or an erasure."""
    uploads, picture = tmp_path / "uploads", draw(tmp_path / "a.png", 99)
    changes = Changes(engine, uploads)
    other = changes.add(draw(tmp_path / "b.png", 98).read_bytes(), "b.png", {"identity": "other"})
    argument = str(picture)
    if "goes" in kind:
        argument = changes.add(picture.read_bytes(), "a.png", {"identity": "victim"}).id
    stays = kind == "before the row goes"
    command = [sys.executable, "-c", _KILLED, str(engine.files.folder), str(uploads), kind, argument]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    # the other picture, the name of what was changed, and what the change has left
    assert len(added_to(uploads)) == 3
    copy = shutil.copytree(tmp_path, tmp_path.with_name(f"{tmp_path.name}-killed"))

    def killed() -> None:
        """Leave the store and its uploads as the kill did."""
        shutil.rmtree(tmp_path)
        shutil.copytree(copy, tmp_path)

    def expect(*, and_victim: bool) -> None:
        held = [Path(other.path).name]
        if and_victim:
            held.append(f"{hashlib.sha256(picture.read_bytes()).hexdigest()}.png")
        assert [path.name for path in added_to(uploads)] == sorted(held)

    Changes(engine, uploads)
    expect(and_victim=stays)
    killed()
    third = changes.add(draw(tmp_path / "c.png", 97).read_bytes(), "c.png", {})
    changes.delete(third.id)
    expect(and_victim=stays)
    killed()
    report = erase(engine.files, identity="victim", uploads=uploads)
    assert report.found == ()
    assert (report.uploads, report.leftovers) == ((1, 0) if stays else (0, 1))
    expect(and_victim=False)
    assert Path(other.path).exists()


def test_an_upload_takes_nothing_from_a_picture_whose_disk_is_away(engine: Engine, tmp_path: Path) -> None:
    folder = tmp_path / HOME
    content, before = (folder / "0.png").read_bytes(), engine.files.entries()[str(folder / "0.png")]
    folder.rename(tmp_path / "away")
    changes = Changes(engine, tmp_path / "uploads")
    added = changes.add(content, "mine.png", {})
    assert (added.identity, added.metadata) == (None, {"name": "mine.png"})
    assert engine.files.entries()[before.path] == before
    # a folder of uploads that was moved holds the same pictures
    (tmp_path / "uploads").rename(tmp_path / "moved")
    index_pictures(engine.encoder, engine.files, [tmp_path / "moved"])
    assert engine.files.entries()[str(tmp_path / "moved" / Path(added.path).name)].id == added.id


def test_a_folder_of_uploads_by_a_link_holds_the_same_pictures(engine: Engine, tmp_path: Path) -> None:
    """Else one picture had two rows, and a deletion of one took the file of the other."""
    (tmp_path / "uploads").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "uploads")
    content = draw(tmp_path / "a.png", 99).read_bytes()
    first = Changes(engine, tmp_path / "link").add(content, "a.png", {"identity": "ann"})
    changes = Changes(engine, tmp_path / "uploads")
    again = changes.add(content, "b.png", {})
    assert (again.id, again.identity, len(engine.files)) == (first.id, "ann", COUNT + 1)
    changes.delete(first.id)
    assert (len(engine.files), added_to(tmp_path / "uploads")) == (COUNT, [])


def test_a_change_while_the_store_is_away_leaves_nothing(engine: Engine, tmp_path: Path) -> None:
    changes, files = Changes(engine, tmp_path / "uploads"), engine.files
    store, away = Path(str(files.folder)), tmp_path / "away"
    content = draw(tmp_path / "a.png", 99).read_bytes()
    store.rename(away)
    for _ in range(2):
        with pytest.raises(StoreError, match="the folder is gone"):
            changes.add(content, "a.png", {})
        # what is moved back would land in a folder of this name
        assert not store.exists()
        with pytest.raises(StoreError, match="the folder is gone"):
            files.lock.check()
    # a folder on which no disk is mounted
    store.mkdir()
    with pytest.raises(StoreError):
        changes.add(content, "a.png", {})
    assert added_to(tmp_path / "uploads") == []
    shutil.rmtree(store)
    away.rename(store)
    changes.delete(changes.add(content, "a.png", {}).id)
    assert len(files) == COUNT


def test_what_a_change_left_when_the_store_went_is_removed_later(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads, store = tmp_path / "uploads", Path(str(engine.files.folder))
    changes, content = Changes(engine, uploads), draw(tmp_path / "a.png", 99).read_bytes()

    def goes(*given: object, **named: object) -> None:
        store.rename(tmp_path / "moved")
        raise StoreError("gone")

    with monkeypatch.context() as patch:
        patch.setattr("limner.server.uploads.index_pictures", goes)
        with pytest.raises(StoreError, match="gone"):
            changes.add(content, "a.png", {})
    assert len(added_to(uploads)) == 2
    # as docs/server.md says to do of a store that has moved
    (uploads / ".limner-uploads").unlink()
    moved = Engine(type(engine.files).open(tmp_path / "moved"), engine.encoder)
    other = uploads / f"{'0a' * 32}.png"
    other.write_bytes(content)
    with pytest.raises(SettingsError, match=f"no picture of the store is {other.name}"):
        Changes(moved, uploads)
    other.unlink()
    Changes(moved, uploads)
    assert added_to(uploads) == []


def test_names_of_pictures() -> None:
    name = f"{'0a' * 32}.png"
    assert shown_name(f"/uploads/{name}", {"name": "a.png"}) == "a.png"
    assert shown_name(f"/uploads/{name}", {"name": 3}) == name
    assert shown_name(f"/uploads/{name}", {}) == name
    assert shown_name("/uploads/b.png", {"name": "a.png"}) == "b.png"
    assert shown_name(f"/{name}/b.png", {"name": "a.png"}) == "b.png"


def test_an_added_picture_keeps_its_name_in_a_store_of_another_model(engine: Engine, tmp_path: Path) -> None:
    content = draw(tmp_path / "a.png", 99).read_bytes()
    added = Changes(engine, tmp_path / "uploads").add(content, "a.png", {})
    for uploads in (tmp_path / "uploads", tmp_path / "of the new store", None):
        item = for_clients(added.to_item(), ServerSettings(uploads=uploads))
        assert item.name == "a.png"


def test_a_store_of_another_model_takes_the_uploads_over_and_an_erasure_reaches_them(
    engine: Engine, tmp_path: Path
) -> None:
    """An erasure looks in one folder: with another one the picture of a person would stay in the former."""
    uploads, content = tmp_path / "uploads", draw(tmp_path / "a.png", 99).read_bytes()
    added = Changes(engine, uploads).add(content, "a.png", {"identity": "gina"})
    new = Engine(made(tmp_path / "new"), engine.encoder)
    reindex(engine.files, engine.encoder, new.files)
    with pytest.raises(SettingsError, match=f"lie in {uploads}; name that folder"):
        Changes(new, tmp_path / "uploads3")
    # the store that holds them may be served yet
    takes = f"if {new.files.folder} takes its place, remove {uploads / MARK} and start its server with this folder"
    for call in (lambda: Changes(new, uploads), lambda: erase(new.files, identity="gina", uploads=uploads)):
        with pytest.raises(SettingsError, match=re.escape(takes)):
            call()
    (uploads / MARK).unlink()
    with pytest.raises(SettingsError, match="or start it with this one"):
        erase(new.files, identity="gina", uploads=uploads)
    Changes(new, uploads)
    report = erase(new.files, identity="gina", uploads=uploads)
    assert (report.uploads, report.found, Path(added.path).exists()) == (1, (), False)
    with pytest.raises(SettingsError, match=r"holds the uploads of .*/new"):
        Changes(engine, uploads)


def test_the_folder_of_uploads_can_be_another_one_when_its_pictures_have_moved(
    engine: Engine, tmp_path: Path
) -> None:
    content = draw(tmp_path / "a.png", 99).read_bytes()
    added = Changes(engine, tmp_path / "uploads").add(content, "a.png", {"identity": "gina"})
    other = tmp_path / "other"
    with pytest.raises(SettingsError, match="move it as a whole, and run `limner index"):
        Changes(engine, other)
    assert added_to(other) == []
    other.rmdir()
    (tmp_path / "uploads").rename(other)
    index_pictures(engine.encoder, engine.files, [other])
    changes = Changes(engine, other)
    assert engine.files.entry(added.id) is not None
    changes.delete(added.id)
    assert added_to(other) == []


def test_a_look_at_followed_folders_takes_no_upload_in(engine: Engine, tmp_path: Path) -> None:
    """Else a deleted picture whose file is there yet came back without what was told of it."""
    files, home, content = engine.files, tmp_path / HOME, draw(tmp_path / "a.png", 99).read_bytes()
    changes = Changes(engine, home / "uploads")
    added = changes.add(content, "a.png", {"identity": "gina"})
    # as after a restore, by the name of the folder itself
    assert index_pictures(engine.encoder, files, [home, home / "uploads"]).unchanged == COUNT + 1
    assert [one.path for one in folders_of(files)] == [str(home)]
    follow_folders(files, [Folder(str(home / "uploads"))])
    assert sync(engine.encoder, files).unchanged == COUNT
    files.delete([added.id])
    report = sync(engine.encoder, files)
    assert (report.added, report.gone, report.left_out) == (0, (), {"folders of uploads": 1})
    assert Path(added.path).exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="uploads cannot be written"):
        writable(tmp_path / "file" / "folder")
    assert writable(tmp_path / "a" / ".." / "b") == tmp_path / "b"
