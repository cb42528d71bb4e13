"""Damage of a store changes no answer without an error; `verify` finds it, `repair` mends it or says what is lost."""

import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limner.errors import CheckpointError, LimnerError, StoreError
from limner.search.index import index_pictures
from limner.search.repair import repair
from limner.search.sentences import Sentence, SentenceTable
from limner.store.backup import backup
from limner.store.calibration import load_store_calibration
from limner.store.contents import region_features, thumbnails
from limner.store.entry import key_of
from limner.store.files import StoreFiles
from limner.store.verify import BESIDE, DAMAGE, verify
from limner.types import RegionFeatures
from tests.search.fake import DIM, FakeEncoder, draw

SHAPE = (1, 2, 2)
COUNT = 30


class Regions:
    """A reranker of which only the features are looked at."""

    region_shape = SHAPE
    class_mean = "scores"

    def region_features(self, pixels: np.ndarray) -> RegionFeatures:
        return pixels[:, :1, :2, :2].astype(np.float16)

    def __getattr__(self, name: str) -> Any:
        return None


class Encoder(FakeEncoder):
    def __init__(self) -> None:
        super().__init__()
        self.reranker = Regions()  # type: ignore[assignment]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damage")
    pictures = [draw(folder / "pictures" / f"{number:02}.png", number) for number in range(COUNT)]
    files = StoreFiles.create(folder / "store", fingerprint="a" * 64, dim=DIM, run="run", region_shape=SHAPE)
    facts = {str(path): {"identity": f"p{place % 7}", "camera": place} for place, path in enumerate(pictures)}
    index_pictures(Encoder(), files, pictures, metadata=facts)
    SentenceTable(files).index(Encoder(), [Sentence(f"a {path.stem} coat", str(path)) for path in pictures])
    files.rows.close()
    return folder


def copied(template: Path, to: Path) -> StoreFiles:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(template / "store", to)
    return StoreFiles.open(to)


def planted(store: Path, change: str) -> None:
    with sqlite3.connect(store / "store.sqlite") as database:
        assert database.execute(change).rowcount > 0
    database.close()


def flipped(store: Path, part: bytes, data: st.DataObject, length: int) -> None:
    """Change a bit of the first bytes of a part of the file, wherever it stands there."""
    content = bytearray((store / "store.sqlite").read_bytes())
    place = data.draw(st.sampled_from([found.start() for found in re.finditer(re.escape(part), content)]))
    content[place + data.draw(st.integers(0, length - 1))] ^= 1 << data.draw(st.integers(0, 7))
    (store / "store.sqlite").write_bytes(content)


def all_of(files: StoreFiles) -> dict[str, Any]:
    """Everything that a store answers."""
    snapshot = files.snapshot()
    return {
        "items": [item.model_dump() for item in snapshot.items(np.arange(len(snapshot.keys)))],
        "vectors": snapshot.matrix.tobytes(),
        "entries": files.entries(),
        "thumbnails": thumbnails(files, snapshot.keys),
        "regions": region_features(files, snapshot.keys).tobytes(),
        "sentences": [
            (one.text, one.path, vector.tobytes())
            for one, vector in zip(*SentenceTable(files).describing(), strict=True)
        ],
        "length": len(files),
    }


CHANGES: dict[str, str] = {
    "path": "UPDATE pictures SET path = path || 'x' WHERE id = (SELECT min(id) FROM pictures)",
    "identity": "UPDATE pictures SET identity = 'p9' WHERE id = (SELECT max(id) FROM pictures)",
    "nobody": "UPDATE pictures SET identity = NULL WHERE id = (SELECT max(id) FROM pictures)",
    "metadata": "UPDATE pictures SET metadata = '{}' WHERE id = (SELECT max(id) FROM pictures)",
    "time": "UPDATE pictures SET taken_read = 0 WHERE id = (SELECT max(id) FROM pictures)",
    "told time": "UPDATE pictures SET taken_told = 0 WHERE id = (SELECT max(id) FROM pictures)",
    "key": "UPDATE pictures SET id = 'ff' || id WHERE id = (SELECT min(id) FROM pictures)",
    "exchanged": "UPDATE pictures SET number = 1000 - number",
    "gone": "DELETE FROM pictures WHERE id = (SELECT min(id) FROM pictures)",
    "digest": "UPDATE pictures SET digest = zeroblob(16) WHERE id = (SELECT min(id) FROM pictures)",
    "vector": f"UPDATE vectors SET vector = zeroblob({4 * DIM}) WHERE number = 3",
    "short": "UPDATE vectors SET vector = x'00' WHERE number = 3",
    "no vector": "DELETE FROM vectors WHERE number = 3",
    "another's": "UPDATE vectors SET vector = (SELECT vector FROM vectors WHERE number = 4) WHERE number = 3",
    "thumbnail": "UPDATE thumbnails SET jpeg = x'00' WHERE number = 3",
    "no thumbnail": "DELETE FROM thumbnails WHERE number = 3",
    "regions": "UPDATE regions SET features = zeroblob(8) WHERE number = 3",
    "no regions": "DELETE FROM regions WHERE number = 3",
    "text": "UPDATE sentences SET text = 'another' WHERE id = (SELECT min(id) FROM sentences)",
    "whose": "UPDATE sentences SET path = NULL WHERE id = (SELECT min(id) FROM sentences)",
    "sentence's vector": "UPDATE sentences SET vector = zeroblob(48) WHERE id = (SELECT min(id) FROM sentences)",
    "no sentence": "DELETE FROM sentences WHERE id = (SELECT min(id) FROM sentences)",
    "count": "UPDATE states SET rows = rows + 1 WHERE name = 'pictures'",
    "description": "UPDATE texts SET text = replace(text, '12', '13') WHERE name = 'description'",
    "no bytes": "UPDATE pictures SET identity = CAST(x'ff' AS TEXT) WHERE id = (SELECT min(id) FROM pictures)",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_changes_a_row_changes_no_answer(template: Path, tmp_path: Path, change: str) -> None:
    expected = all_of(copied(template, tmp_path / "whole"))
    files = copied(template, tmp_path / "store")
    files.snapshot()
    planted(tmp_path / "store", change)
    try:
        opened = StoreFiles.open(files.folder)
    except StoreError as error:
        refused = str(error)
        opened = None
    if opened is None:
        assert "description is damaged" in refused
        return
    with pytest.raises(StoreError, match="damaged"):
        all_of(opened)
    report = verify(opened)
    assert not report.sound
    assert report.found.keys() <= DAMAGE.keys()
    # a copy of it is refused
    with pytest.raises(StoreError, match="the copy is damaged"):
        backup(str(opened.folder), tmp_path / "copy")
    planned = repair(opened, Encoder)
    assert planned.applied != planned.loses
    if planned.loses:
        assert repair(opened, Encoder, accept_loss=True).applied
        index_pictures(Encoder(), opened, [template / "pictures"])
    assert verify(opened).sound
    found = all_of(opened)
    if not planned.loses:
        assert found == expected
    assert found["vectors"] == expected["vectors"]
    assert found["regions"] == expected["regions"]
    assert repair(opened, Encoder).repaired == ()


@given(place=st.floats(0, 1), bit=st.integers(0, 7), size=st.sampled_from([1, 1, 16, 4096]))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_damage_of_the_file_changes_an_answer(
    place: float, bit: int, size: int, template: Path, tmp_path: Path
) -> None:
    expected = all_of(copied(template, tmp_path / "whole"))
    shutil.rmtree(tmp_path / "store", ignore_errors=True)
    shutil.copytree(template / "store", tmp_path / "store")
    file = tmp_path / "store" / "store.sqlite"
    content = bytearray(file.read_bytes())
    first = int(place * (len(content) - size))
    for at in range(first, first + size):
        content[at] ^= 1 << bit
    file.write_bytes(content)
    try:
        files = StoreFiles.open(tmp_path / "store")
        found = all_of(files)
    except LimnerError:
        return
    # bytes that nothing is in, or that no reading needs; what SQLite makes of them is its own
    assert found == expected
    report = verify(files)
    if report.sound:
        assert all_of(files) == expected
    else:
        assert report.found.keys() & {*DAMAGE, *BESIDE}


@pytest.mark.parametrize("change", ["vector", "thumbnail", "text", "identity", "key"])
def test_damage_under_an_open_store_is_no_sound_row(template: Path, tmp_path: Path, change: str) -> None:
    """A later change of the same rows must not give them a digest that says that they are sound."""
    files = copied(template, tmp_path / "store")
    files.snapshot()
    planted(tmp_path / "store", CHANGES[change])
    entries = {entry.id: entry for entry in copied(template, tmp_path / "whole").entries().values()}
    with suppress(StoreError), files.changing() as writer:
        writer.update(list(entries.values()))
    assert not verify(files).sound
    with suppress(StoreError), files.changing() as writer:
        writer.delete(list(entries))
    # whoever has the rows in memory shows none that no change finds any more
    with suppress(StoreError):
        assert len(files.snapshot().keys) in (0, COUNT)


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_calibration_whose_row_is_lost_is_no_store_without_one(
    template: Path, tmp_path: Path, data: st.DataObject
) -> None:
    """Its key is changed by a bit, so that nobody finds the row."""
    files = copied(template, tmp_path / "store")
    assert load_store_calibration(files, "a" * 64) is None
    files.rows.set_text("calibration", "{}")
    files.rows.scrub()
    flipped(tmp_path / "store", b"calibration{}", data, len("calibration"))
    assert not verify(files).sound
    # the description, which was there when it was opened, may be out of reach as well
    with pytest.raises((CheckpointError, StoreError)):
        load_store_calibration(StoreFiles.open(tmp_path / "store"), "a" * 64)


@pytest.mark.parametrize("column", ["path", "identity", "number", "digest"])
def test_a_damaged_row_is_not_deleted(template: Path, tmp_path: Path, column: str) -> None:
    """Its vector and thumbnail would stay in the file, whatever is erased later."""
    files = copied(template, tmp_path / "store")
    key = key_of(str(template / "pictures" / "03.png"))
    planted(tmp_path / "store", f"UPDATE pictures SET {column} = '7' WHERE id = '{key}'")
    with pytest.raises(StoreError, match="damaged"):
        files.delete([key])
    assert not verify(files).sound


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damage_of_a_path_keeps_a_sentence_of_what_is_deleted(
    template: Path, tmp_path: Path, data: st.DataObject
) -> None:
    """Wherever in the file the path stands: a deletion, or whoever reads the sentences behind it, tells."""
    path = str(template / "pictures" / "03.png")
    files = copied(template, tmp_path / "store")
    flipped(tmp_path / "store", path.encode(), data, len(path))
    with suppress(StoreError):
        files.delete([key_of(path)])
        assert path not in [one.path for one in SentenceTable(files).describing()[0]]


@pytest.mark.parametrize(
    "change",
    ["name = 'vectorz'", "seq = 0", "seq = 7", "seq = -1", "seq = 'x'", "seq = NULL", f"seq = {2**63 - 1}"],
)
def test_a_lost_number_keeps_no_picture_out(template: Path, tmp_path: Path, change: str) -> None:
    copied(template, tmp_path / "store")
    planted(tmp_path / "store", f"UPDATE sqlite_sequence SET {change}")
    added = draw(tmp_path / "added.png", 77)
    assert index_pictures(Encoder(), StoreFiles.open(tmp_path / "store"), [added]).added == 1
    files = StoreFiles.open(tmp_path / "store")
    assert verify(files).sound
    assert len(files) == COUNT + 1


def test_a_repair_of_a_file_that_sqlite_cannot_read_says_what_to_do(template: Path, tmp_path: Path) -> None:
    files = copied(template, tmp_path / "store")
    files.rows.close()
    file = tmp_path / "store" / "store.sqlite"
    content = bytearray(file.read_bytes())
    content[16384:] = os.urandom(len(content) - 16384)
    file.write_bytes(content)
    before = file.read_bytes()
    with pytest.raises(StoreError) as refused:
        repair(files, Encoder, accept_loss=True)
    # once: SQLite's own errors have it, too
    assert str(refused.value).count("put back a copy of the store, or index into a new folder") == 1
    assert file.read_bytes() == before
    assert "file" in verify(files).found


CHANGED: list[Callable[[Path], object]] = [
    lambda path: path.unlink(),
    lambda path: draw(path, 999),
    lambda path: path.write_bytes(b"no picture"),
]


@pytest.mark.parametrize("change", CHANGED, ids=["gone", "another", "broken"])
def test_a_picture_that_cannot_be_read_again_goes_with_its_sentence(
    template: Path, tmp_path: Path, change: Callable[[Path], object]
) -> None:
    shutil.copytree(template / "pictures", tmp_path / "kept")
    files = copied(template, tmp_path / "store")
    (path,) = [row.path for row in _rows(files) if row.number == 3]
    planted(tmp_path / "store", CHANGES["vector"])
    try:
        change(Path(path))
        planned = repair(files, Encoder)
        assert not planned.applied
        assert [lost for lost, _ in planned.lost] == [path]
        assert planned.lost_sentences == (f"a {Path(path).stem} coat",)
        assert len(files) == COUNT
        done = repair(files, Encoder, accept_loss=True)
        assert (done.applied, done.pictures, done.sentences) == (True, COUNT - 1, COUNT - 1)
        assert (len(files), len(SentenceTable(files))) == (COUNT - 1, COUNT - 1)
        assert not verify(files).found.keys() & DAMAGE.keys()
    finally:
        shutil.copy(tmp_path / "kept" / Path(path).name, path)


def test_sentences_of_all_places_of_a_lost_picture_are_listed(tmp_path: Path) -> None:
    places = [draw(tmp_path / "pictures" / name, 4) for name in ("one.png", "two.png", "three.png")]
    files = StoreFiles.create(tmp_path / "store", fingerprint="a" * 64, dim=DIM, run="run")
    index_pictures(FakeEncoder(), files, places)
    SentenceTable(files).index(FakeEncoder(), [Sentence(path.stem, str(path)) for path in places])
    planted(tmp_path / "store", "UPDATE vectors SET vector = zeroblob(48)")
    for path in places:
        path.unlink()
    assert sorted(repair(files, FakeEncoder).lost_sentences) == ["one", "three", "two"]


def _rows(files: StoreFiles) -> list[Any]:
    with files.rows.reading() as reading:
        return list(reading.pictures())
