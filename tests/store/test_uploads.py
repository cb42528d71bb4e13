"""Which pictures of a folder of uploads are leftovers, and whose folder it is."""

import hashlib
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limner.errors import SettingsError
from limner.store.entry import StoredImage
from limner.store.erase import erase
from limner.store.files import StoreFiles
from limner.store.uploads import ENDINGS, MARK, Uploads, is_upload
from tests.search.fake import DIM, unit


def store(folder: Path) -> StoreFiles:
    return StoreFiles.create(folder, fingerprint="a" * 64, dim=DIM, run="run")


def upload(folder: Path, seed: int, ending: str = ".png") -> Path:
    content = f"picture {seed}".encode()
    path = folder / (hashlib.sha256(content).hexdigest() + ending)
    path.write_bytes(content)
    return path


def row(path: str | Path, identity: str | None = None) -> StoredImage:
    return StoredImage(str(path), Path(path).stem, 1, 1, identity=identity)


def add(files: StoreFiles, *rows: StoredImage) -> None:
    files.add(rows, unit(np.random.default_rng(0).standard_normal((len(rows), DIM)).astype(np.float32)))


def test_a_picture_and_its_name_are_on_the_disk_before_its_row_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut could take the picture and leave the row that names it."""
    (tmp_path / "up").mkdir()
    uploads, synced = Uploads(tmp_path / "up"), []

    def noted(folder: Path) -> None:
        synced.append((folder, (folder / "a.png").read_bytes()))

    monkeypatch.setattr("limner.durable.sync", noted)
    uploads.write("a.png", b"a picture")
    assert synced == [(tmp_path / "up", b"a picture")]


def test_the_mark_of_a_change_outlives_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, files = tmp_path / "uploads", store(tmp_path / "store")
    folder.mkdir()
    uploads = Uploads.claim(folder, files)
    flushed: list[int] = []
    monkeypatch.setattr("os.fsync", lambda handle: flushed.append(os.fstat(handle).st_ino))
    with uploads.changing([f"{folder}/{64 * '0'}.png"], files):
        # first its bytes and then its name, both before anything is changed
        assert flushed == [(folder / ".changing").stat().st_ino, folder.stat().st_ino]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kinds=st.lists(
        st.sampled_from(
            ["row", "by a link", "in a container", "victim", "no row", "elsewhere", "owner", "other bytes"]
        ),
        min_size=1,
        max_size=8,
    ),
    ending=st.sampled_from(sorted(ENDINGS.values())),
    by_link=st.booleans(),
)
def test_what_no_row_names_goes_and_nothing_else(
    kinds: list[str], ending: str, by_link: bool, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path)
    folder, elsewhere = tmp_path / "uploads", tmp_path / "elsewhere"
    folder.mkdir(parents=True)
    elsewhere.mkdir()
    (tmp_path / "link").symlink_to(folder)
    files = store(tmp_path / "store")
    Uploads.claim(folder, files)
    expected: dict[Path, bool] = {}
    wrong = []
    for number, kind in enumerate(kinds):
        path = upload(folder, number, ending)
        expected[path] = kind in ("row", "by a link", "in a container", "other bytes")
        if kind == "row":
            add(files, row(path))
        elif kind == "by a link":
            add(files, row(tmp_path / "link" / path.name))
        elif kind == "in a container":
            add(files, row(f"/somewhere else/{path.name}"))
        elif kind == "victim":
            add(files, row(tmp_path / "link" / path.name, "victim"))
        elif kind == "elsewhere":
            # the owner's own picture of the same bytes is another file
            add(files, row(shutil.copy(path, elsewhere)))
            expected[elsewhere / path.name] = True
        elif kind == "owner":
            path.rename(folder / f"mine {number}.png")
            del expected[path]
            expected[folder / f"mine {number}.png"] = True
        elif kind == "other bytes":
            path.write_bytes(b"of the owner, or damaged")
            wrong.append(path.name)
    uploads = tmp_path / "link" if by_link else folder
    report = erase(files, identity="victim", uploads=uploads)
    assert {path: path.exists() for path in expected} == expected
    assert (report.uploads, report.leftovers) == (
        kinds.count("victim"),
        kinds.count("no row") + kinds.count("elsewhere"),
    )
    # what cannot be told from a damaged upload is not touched, and not passed over either
    assert sorted(one.file for one in report.found) == sorted(f"uploads/{name}" for name in wrong)


def test_whose_folder_it_is(tmp_path: Path) -> None:
    files, others = store(tmp_path / "store"), store(tmp_path / "others")
    folder = tmp_path / "uploads"
    with pytest.raises(SettingsError, match=r"no server of .* has taken uploads there"):
        erase(files, uploads=folder)
    folder.mkdir()
    path = upload(folder, 1)
    # a cache whose files have hashes for names, named by mistake
    for call in (lambda: erase(files, uploads=folder), lambda: Uploads.claim(folder, files)):
        with pytest.raises(SettingsError, match=r"no server of|no picture of the store is"):
            call()
    add(files, row(path))
    Uploads.claim(folder, files)
    Uploads.claim(folder, files)
    for call in (lambda: erase(others, uploads=folder), lambda: Uploads.claim(folder, others)):
        with pytest.raises(
            SettingsError,
            match=r"holds the uploads of .*/store; if .*/others takes its place, remove .*/\.limner-",
        ):
            call()
    # a copy has the same id, and not the rows of what was added since
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    with pytest.raises(SettingsError, match="holds the uploads of"):
        erase(StoreFiles.open(tmp_path / "copy"), uploads=folder)
    (folder / MARK).write_text("no JSON")
    with pytest.raises(SettingsError, match="another store"):
        erase(files, uploads=folder)
    assert path.exists()
    (folder / MARK).unlink()
    Uploads.claim(folder, files)
    assert erase(files, uploads=folder).found == ()
    # as in a store of another model, which `reindex` has made
    add(others, row(path, "victim"))
    mine = tmp_path / "mine"
    mine.mkdir()
    Uploads.claim(mine, others)
    assert [(one.file, one.count) for one in erase(others, identity="victim", uploads=mine).found] == [
        ("uploads", 1)
    ]
    assert path.exists()


def test_a_lost_row_is_no_reason_to_delete_at_a_start(tmp_path: Path) -> None:
    """As after a backup: only an erasure deletes what no row names."""
    files, folder = store(tmp_path / "store"), tmp_path / "uploads"
    folder.mkdir()
    Uploads.claim(folder, files)
    path = upload(folder, 1)
    with files.writing():
        Uploads.claim(folder, files).recover(files)
    assert path.exists()
    assert Uploads.of(folder, files).leftovers(files) == [path]
    assert erase(files, uploads=folder).leftovers == 1
    assert not path.exists()


def test_names_of_uploads(tmp_path: Path) -> None:
    (tmp_path / "uploads").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "uploads")
    name = f"{'0a' * 32}.png"
    for folder in (tmp_path / "uploads", tmp_path / "link"):
        assert is_upload(str(tmp_path / "uploads" / name), folder)
        assert is_upload(str(tmp_path / "link" / name), folder)
        assert not is_upload(str(tmp_path / name), folder)
        for other in (f"{name}.part", "0a.png", f"{'0a' * 32}.txt", f"{'0A' * 32}.png"):
            assert not is_upload(str(folder / other), folder)
    assert not is_upload(str(tmp_path / "uploads" / name), None)
