import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from limner.search.commits import Commits, Record, files_of
from PIL import Image

from limner.errors import StoreError
from limner.search.index import index_pictures
from limner.search.repair import repair
from limner.search.sentences import Sentence, SentenceTable
from limner.store.contents import region_features, thumbnails
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


@contextmanager
def unnoticed(store: StoreFiles, table: str = "pictures-1") -> Iterator[None]:
    """Commits of LanceDB alone, put on record with all but the sum of digests, so that rows alone tell of them."""
    yield
    commits = Commits(store.folder, table, store.manifest.id)
    record = commits.read()
    assert record is not None
    folder = Path(str(store.folder)) / f"{table}.lance"
    opened = (store.table if table == store.table.name else store.sentences).opened_unchecked()
    state = replace(record.done, version=opened.version, rows=opened.count_rows(), files=files_of(folder, {}))
    commits.write(Record(state, None, record.before))


def rewritten(store: StoreFiles, **changes: Any) -> None:
    """Change columns of the first row as no writing of limner does."""
    table = store.table.opened()
    rows = table.search().to_arrow().to_pylist()
    row = min(rows, key=lambda one: one["path"])
    with unnoticed(store):
        table.delete(f"id = '{row['id']}'")
        table.add(pa.Table.from_pylist([{**row, **changes}], schema=table.schema))


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
    assert (report.pictures, report.sound, kinds(report)) == (0, True, {"table": 1})


def test_a_table_that_is_gone_is_told(store: StoreFiles) -> None:
    shutil.rmtree(f"{store.folder}/pictures-1.lance")
    with pytest.raises(StoreError, match="its files are gone"):
        StoreFiles.open(store.folder)
    report = verify(StoreFiles.open(store.folder, check=False))
    assert (kinds(report), report.sound) == ({"files": 1}, False)
    (Path(str(store.folder)) / "pictures-1.commits.json").unlink()
    # store.json knows that there was one
    with pytest.raises(StoreError, match=r"its files and pictures-1\.commits\.json are gone"):
        StoreFiles.open(store.folder)
    report = verify(StoreFiles.open(store.folder, check=False))
    assert (kinds(report), report.sound) == ({"files": 1}, False)
    assert repair(StoreFiles.open(store.folder, check=False), FakeEncoder, accept_loss=True).missing
    assert verify(StoreFiles.open(store.folder)).sound


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


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"vector": [float("inf")] + [0.0] * (DIM - 1)}, "vector"),
        ({"metadata": "{"}, "metadata"),
        ({"metadata": "[1]"}, "metadata"),
        ({"id": "0" * 32}, "key"),
    ],
)
def test_damage_is_told_apart(store: StoreFiles, pictures: Path, changes: dict[str, Any], kind: str) -> None:
    rewritten(store, **changes)
    report = verify(store)
    assert not report.sound
    assert report.found[kind] == Finding(count=1, example=str(pictures / "0.png"))
    assert report.found.keys() == ({"vector"} if kind == "vector" else {kind, "row"})


def test_a_picture_that_stands_twice(store: StoreFiles, pictures: Path) -> None:
    rows = store.table.opened().search().limit(1).to_arrow()
    with unnoticed(store):
        store.table.opened().add(rows)
    report = verify(store)
    assert kinds(report) == {"twice": 1, "rows": 1}
    assert report.pictures == 8


def test_a_sentence_that_stands_twice(store: StoreFiles) -> None:
    SentenceTable(store).index(FakeEncoder(), [Sentence("red"), Sentence("blue")])
    rows = store.sentences.opened().search().limit(1).to_arrow()
    with unnoticed(store, "sentences-1"):
        store.sentences.opened().add(rows)
    assert kinds(verify(store)) == {"twice": 1, "rows": 1}


def test_maps_are_read_as_well(tmp_path: Path, pictures: Path) -> None:
    from limner.store.entry import StoredImage

    store = StoreFiles.create(
        tmp_path / "regions", fingerprint="a" * 64, dim=4, run="run", region_shape=(1, 2, 2)
    )
    file = pictures / "0.png"
    entry = StoredImage(str(file), "0" * 64, file.stat().st_size, file.stat().st_mtime_ns)
    store.add([entry], np.ones((1, 4), np.float32), np.ones((1, 1, 2, 2), np.float16), [b"small"])
    assert verify(store).sound
    [segment] = (tmp_path / "regions" / "segments").iterdir()
    whole = segment.read_bytes()
    for place, kind in ((3, "map"), (9, "thumbnail")):
        segment.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert kinds(verify(store)) == {kind: 1}
        with pytest.raises(StoreError, match="damaged"):
            region_features(store, [entry.id]) if kind == "map" else thumbnails(store, [entry.id])
    segment.write_bytes(whole[:-1])
    assert kinds(verify(store)) == {"thumbnail": 1}
    segment.unlink()
    assert kinds(verify(store)) == {"map": 1, "thumbnail": 1, "segment": 1}
    with pytest.raises(StoreError, match="is gone"):
        region_features(store, [entry.id])


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


def test_a_table_with_a_lost_file_is_said_in_a_line(store: StoreFiles) -> None:
    shutil.rmtree(Path(str(store.folder)) / "pictures-1.lance" / "data")
    with pytest.raises(StoreError, match="damaged"):
        StoreFiles.open(store.folder)
    assert kinds(verify(StoreFiles.open(store.folder, check=False))) == {"files": 1}


def test_sentences_are_looked_at_too(store: StoreFiles) -> None:
    sentences = SentenceTable(store)
    sentences.index(FakeEncoder(), [Sentence("red"), Sentence("blue", "/a.png")])
    assert verify(store).sentences == 2
    table = store.sentences.opened()
    with unnoticed(store, "sentences-1"):
        table.update(where="text = 'red'", values={"text": "green"})
    report = verify(store)
    assert (kinds(report), report.sound) == ({"sentence": 1}, False)


@pytest.mark.parametrize("place", ["store.json", "pictures-1.commits.json", "segments/new", "model/run.json"])
def test_a_pipe_in_the_place_of_a_file(store: StoreFiles, place: str) -> None:
    """Nobody waits for what it will never give."""
    pipe = Path(str(store.folder)) / place
    pipe.parent.mkdir(exist_ok=True)
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    with pytest.raises(StoreError, match=f"{place}: is a pipe"):
        StoreFiles.open(store.folder)
    if place == "store.json":
        with pytest.raises(StoreError, match="is a pipe"):
            StoreFiles.open(store.folder, check=False)
        return
    found = verify(StoreFiles.open(store.folder, check=False)).found
    assert (list(found), "is a pipe" in found["files"].example) == (["files"], True)
    with pytest.raises(StoreError, match="is a pipe"):
        repair(StoreFiles.open(store.folder, check=False), FakeEncoder)
