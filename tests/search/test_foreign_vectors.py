"""A store of embeddings that another program has computed: indexed, searched, refused where it needs the model."""

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limner.errors import DataError, SettingsError, StoreError
from limner.requests import SearchRequest
from limner.search.engine import Engine
from limner.search.foreign_vectors import (
    ForeignModel,
    ForeignVectors,
    foreign_model,
    index_vectors,
    read_query_vectors,
    read_vectors,
    store_of_vectors,
)
from limner.search.image_look import Task, look_at
from limner.search.index import index_pictures, reindex
from limner.search.query_vectors import PreparedRequest
from limner.search.repair import repair
from limner.search.store import open_store
from limner.store import files as store_files
from limner.store.files import StoreFiles
from limner.store.verify import verify
from limner.store_reports import IndexReport
from limner.types import ImageSource, Pixels
from tests.search.fake import FakeEncoder, draw, vectors_of

COUNT, WIDTH = 40, 24


@pytest.fixture
def vectors() -> np.ndarray:
    # of any length, since other programs need not normalise
    return np.random.default_rng(0).normal(size=(COUNT, WIDTH)).astype(np.float32) * 7


@pytest.fixture
def file(tmp_path: Path, vectors: np.ndarray) -> Path:
    names = [draw(tmp_path / "pictures" / f"{number}.png", number).name for number in range(COUNT)]
    groups = np.arange(COUNT) // 4
    np.savez(
        tmp_path / "given.npz",
        images=vectors,
        image_names=[f"pictures/{name}" for name in names],
        image_groups=groups,
    )
    return tmp_path / "given.npz"


def indexed(file: Path, name: str = "their model") -> tuple[StoreFiles, IndexReport]:
    given = read_vectors(file)
    files = store_of_vectors(name, given.vectors.shape[1], file.parent / "store")
    return files, index_vectors(files, given)


def changed(file: Path, **arrays: object) -> Path:
    with np.load(file) as old:
        np.savez(file, **{**{name: old[name] for name in old.files}, **arrays})
    return file


def test_a_vector_finds_what_its_cosines_say(file: Path, vectors: np.ndarray) -> None:
    files, report = indexed(file)
    assert (report.added, report.skipped, verify(files).sound) == (COUNT, (), True)
    rng = np.random.default_rng(1)
    opened = open_store(files.folder)
    for k in (1, 7, COUNT + 3):
        query = rng.normal(size=WIDTH).astype(np.float32)
        query /= np.linalg.norm(query)
        answer = opened.engine.answer(PreparedRequest(vector=query, k=k))
        cosines = (vectors @ query) / np.linalg.norm(vectors, axis=1)
        best = np.argsort(-cosines)[:k]
        assert [hit.name for hit in answer.hits] == [f"{number}.png" for number in best]
        assert [hit.identity for hit in answer.hits] == [str(number // 4) for number in best]
        np.testing.assert_allclose([hit.score for hit in answer.hits], cosines[best], atol=1e-6)
        assert (answer.good, answer.hits[0].probability) == (None, None)
    like = opened.items(where={"identity": "3"}).items[0]
    place = int(Path(like.name).stem)
    cosines = vectors @ vectors[place] / np.linalg.norm(vectors, axis=1) / np.linalg.norm(vectors[place])
    cosines[place] = -2
    assert opened.search(like=like.id, k=1).hits[0].name == f"{cosines.argmax()}.png"


def test_indexing_again_writes_what_has_changed(file: Path, vectors: np.ndarray) -> None:
    files, _ = indexed(file)
    assert indexed(file)[1].unchanged == COUNT
    vectors[5] = -vectors[5]
    vectors[9] *= 2  # the same direction
    _, report = indexed(changed(file, images=vectors))
    assert (report.updated, report.unchanged) == (1, COUNT - 1)
    item = next(item for item in open_store(files.folder).items(limit=COUNT).items if item.name == "5.png")
    assert item.identity == "1"
    np.testing.assert_allclose(
        vectors_of(files, [item.id])[0], vectors[5] / np.linalg.norm(vectors[5]), atol=1e-7
    )
    draw(file.parent / "pictures" / "6.png", 66)
    assert indexed(file)[1].updated == 1


def test_facts_are_taken_and_files_that_are_not_there_listed(file: Path) -> None:
    (file.parent / "pictures" / "3.png").unlink()
    given = read_vectors(file)
    files = store_of_vectors("theirs", WIDTH, file.parent / "store")
    notes: dict[str, dict[str, Any]] = {
        given.paths[0]: {"camera": 2},
        given.paths[1]: {"identity": "x"},
        "/nowhere.png": {"camera": 1},
    }
    seen: list[tuple[int, int]] = []
    report = index_vectors(files, given, metadata=notes, progress=lambda *done: seen.append(done))
    assert (report.added, report.unused_metadata) == (COUNT - 1, ("/nowhere.png",))
    assert [path for path, _ in report.skipped] == [given.paths[3]]
    assert seen[-1] == (COUNT, COUNT)
    entries = files.entries()
    assert (entries[given.paths[0]].metadata, entries[given.paths[0]].identity) == ({"camera": 2}, "0")
    assert entries[given.paths[1]].identity == "x"


def test_what_needs_the_model_is_refused(file: Path) -> None:
    files, _ = indexed(file)
    store = open_store(files.folder)
    with pytest.raises(SettingsError, match=r"their model.*limner reindex"):
        store.search("a red square")
    picture = file.parent / "pictures" / "0.png"
    with pytest.raises(DataError, match="limner index --vectors"):
        store.search(image=picture)
    new = draw(file.parent / "new.png", 99)
    assert index_pictures(ForeignModel("their model", WIDTH), files, [new]).skipped[0][0] == str(new)
    with pytest.raises(StoreError, match="reindex"):
        store_of_vectors("another model", WIDTH, files.folder)
    with pytest.raises(StoreError):
        store_of_vectors("their model", WIDTH + 1, files.folder)
    with pytest.raises(SettingsError, match="name the model"):
        store_of_vectors(" ", WIDTH, file.parent / "other")
    with pytest.raises(DataError, match="25 numbers, the store's 24"):
        store.engine.answer(PreparedRequest(vector=np.ones(25, np.float32)))


def test_another_model_takes_the_pictures_over(file: Path) -> None:
    files, _ = indexed(file)
    encoder = FakeEncoder()
    new = StoreFiles.create(file.parent / "new", fingerprint=encoder.fingerprint, dim=encoder.dim, run="run")
    assert reindex(files, encoder, new).added == COUNT
    assert new.entries() == files.entries()
    assert (foreign_model(new), foreign_model(files) is not None) == (None, True)
    assert len(Engine(new, encoder).answer(SearchRequest(text="red")).hits) == 10


def test_a_damaged_vector_is_lost_and_said(file: Path) -> None:
    files, _ = indexed(file)
    entry = next(entry for path, entry in files.entries().items() if path.endswith("/11.png"))
    row = vectors_of(files, [entry.id])[0].tobytes()
    database = sqlite3.connect(file.parent / "store" / "store.sqlite")
    damaged = bytearray(row)
    damaged[5] ^= 0x20
    assert database.execute("UPDATE vectors SET vector=? WHERE vector=?", (damaged, row)).rowcount == 1
    database.commit()
    database.close()
    broken = StoreFiles.open(files.folder)
    assert not verify(broken).sound
    model = foreign_model(broken)
    assert model is not None
    report = repair(broken, lambda: model, accept_loss=True)
    assert [(path, "--vectors" in reason) for path, reason in report.lost] == [(entry.path, True)]
    assert report.pictures == COUNT - 1
    given = read_vectors(file)
    assert index_vectors(StoreFiles.open(files.folder), given).added == 1


def test_a_name_that_no_file_can_have_is_skipped(tmp_path: Path) -> None:
    def prepare(source: ImageSource) -> Pixels:
        raise AssertionError(source)

    for name in ("zero\0byte", "half a sign \ud800"):
        assert "its name" in str(look_at(Task(f"/pictures/{name}"), prepare))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": np.ones((2, 3))}, "'image_names' has 40 rows, 'images' 2"),
        ({"images": np.zeros((COUNT, 3))}, "row 0 is zero"),
        ({"images": np.full((COUNT, 3), np.nan)}, "row 0 holds NaN"),
        ({"images": np.ones((COUNT, 3), int)}, "'images' must have two axes of floats"),
        ({"image_names": ["a.png"] * COUNT}, "a.png stands there twice"),
        ({"image_names": np.arange(COUNT)}, "'image_names' must have one axis of text"),
        ({"images": np.ones((COUNT, 0))}, "'images' is empty"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(file: Path, arrays: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_vectors(changed(file, **arrays))


def test_files_without_the_arrays_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "none.npz", other=np.ones(3))
    with pytest.raises(DataError, match="lacks the array 'images'"):
        read_vectors(tmp_path / "none.npz")
    with pytest.raises(DataError, match="lacks the array 'sentences'"):
        read_query_vectors(tmp_path / "none.npz")
    with pytest.raises(DataError, match="no such file"):
        read_vectors(tmp_path / "gone.npz")
    np.savez(tmp_path / "twice.npz", sentences=np.ones((2, 3)), sentence_names=["q", "q"])
    with pytest.raises(DataError, match="'q' stands there twice"):
        read_query_vectors(tmp_path / "twice.npz")
    np.savez(tmp_path / "few.npz", sentences=np.ones((2, 3)), sentence_names=["q"])
    with pytest.raises(DataError, match="'sentence_names' has 1 rows, 'sentences' 2"):
        read_query_vectors(tmp_path / "few.npz")


def test_of_many_paths_those_of_others_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond so many paths all rows of the store are read."""
    monkeypatch.setattr(store_files, "_FEW", 1)
    paths = tuple(str(draw(tmp_path / f"{number}.png", number)) for number in range(6))
    vectors, files = np.eye(6, 8, dtype=np.float32), store_of_vectors("theirs", 8, tmp_path / "store")
    for part in (slice(0, 3), slice(3, 6)):
        report = index_vectors(files, ForeignVectors(paths[part], vectors[part], None))
        assert (report.added, report.updated, report.unchanged) == (3, 0, 0)
    assert len(files) == 6
