import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from limner.errors import StoreError
from limner.search.index import index_pictures
from limner.store.files import StoreFiles
from limner.store.verify import verify
from limner.store_reports import Finding, Verification
from tests.search.fake import DIM, FakeEncoder, nearest


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(7):
        Image.new("RGB", (8, 8), (30 * number, 90, 200)).save(folder / f"{number}.png")
    return folder


@pytest.fixture
def store(pictures: Path, tmp_path: Path) -> StoreFiles:
    encoder = FakeEncoder()
    made = StoreFiles.create(tmp_path / "store", fingerprint=encoder.fingerprint, dim=DIM, run="run")
    index_pictures(encoder, made, [pictures], batch_size=3)
    return made


def kinds(report: Verification) -> dict[str, int]:
    return {kind: one.count for kind, one in report.found.items()}


def test_a_whole_store(store: StoreFiles) -> None:
    counted: list[tuple[int, int]] = []
    report = verify(store, hashes=True, progress=lambda done, total: counted.append((done, total)))
    assert report.sound
    assert report.model_dump(mode="json") == {"pictures": 7, "sentences": 0, "sound": True, "found": {}}
    assert counted[-1] == (7, 7)


def test_an_empty_store_is_whole(tmp_path: Path) -> None:
    store = StoreFiles.create(tmp_path / "store", fingerprint="a" * 64, dim=4, run="run")
    report = verify(store)
    assert (report.pictures, report.sound, kinds(report)) == (0, True, {})


def test_files_that_went_or_changed_are_no_damage(store: StoreFiles, pictures: Path) -> None:
    (pictures / "3.png").unlink()
    (pictures / "4.png").write_bytes(b"other")
    (pictures / "5.png").touch()
    report = verify(store)
    assert report.sound
    assert kinds(report) == {"missing": 1, "changed": 2}
    assert report.found["missing"] == Finding(count=1, example=str(pictures / "3.png"))
    assert kinds(verify(store, hashes=True)) == {
        "missing": 1,
        "changed": 1,
    }  # a touched file has the same bytes


def test_bytes_behind_an_unchanged_face_are_found_by_their_hash(store: StoreFiles, pictures: Path) -> None:
    file = pictures / "2.png"
    before = file.stat()
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not verify(store).found
    assert kinds(verify(store, hashes=True)) == {"changed": 1}


def test_deleted_pictures_are_gone_for_every_reader(store: StoreFiles, pictures: Path) -> None:
    reader = StoreFiles.open(store.folder)
    query = np.ones(DIM, np.float32)
    assert len(nearest(reader, query)) == 7
    doomed = [entry.id for path, entry in store.entries().items() if path.endswith(("1.png", "2.png"))]
    assert store.delete([*doomed, "f" * 32, "it's"]) == 2
    assert len(nearest(reader, query)) == 5
    assert store.delete(doomed) == 0
    assert store.delete([]) == 0
    assert kinds(verify(store)) == {}
    assert index_pictures(FakeEncoder(), store, [pictures]).added == 2
    assert verify(store).pictures == 7


def test_nothing_is_deleted_from_an_empty_store_or_while_another_writes(
    store: StoreFiles, tmp_path: Path
) -> None:
    empty = StoreFiles.create(tmp_path / "empty", fingerprint="a" * 64, dim=4, run="run")
    assert empty.delete(["0" * 32]) == 0
    with StoreFiles.open(store.folder).writing(), pytest.raises(StoreError, match="writ"):
        store.delete(["0" * 32])


@pytest.mark.parametrize("place", ["store.sqlite", "store.sqlite-wal", "model/run.json"])
def test_a_pipe_in_the_place_of_a_file(store: StoreFiles, place: str) -> None:
    """Nobody waits for what it will never give."""
    store.forget()
    pipe = Path(str(store.folder)) / place
    pipe.parent.mkdir(exist_ok=True)
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    with pytest.raises(StoreError, match=f"{place}: is a pipe"):
        StoreFiles.open(store.folder)
    found = verify(store).found
    assert (next(iter(found)), "is a pipe" in found["file"].example) == ("file", True)
