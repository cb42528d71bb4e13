import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limner.store.entry import StoredImage, key_of
from limner.store.files import StoreFiles
from limner.store.sqlite_transactions import SqliteReading


def test_only_what_has_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = StoreFiles.create(tmp_path / "store", fingerprint="a" * 64, dim=3, run="run")
    held: dict[str, np.ndarray] = {}
    rng = np.random.default_rng(0)
    read: list[int] = []
    rows: list[int] = []
    vectors_of, pictures_of = SqliteReading.vectors, SqliteReading.pictures

    def counted(reading: SqliteReading, numbers: np.ndarray) -> Any:
        read.append(len(numbers))
        return vectors_of(reading, numbers)

    def counted_rows(reading: SqliteReading, ids: Any = None) -> Any:
        found = list(pictures_of(reading, ids))
        rows.append(len(found))
        return iter(found)

    monkeypatch.setattr(SqliteReading, "vectors", counted)
    monkeypatch.setattr(SqliteReading, "pictures", counted_rows)

    def add(*names: str) -> None:
        vectors = rng.standard_normal((len(names), 3)).astype(np.float32)
        store.add([StoredImage(f"/{name}", "0" * 64, 1, 1) for name in names], vectors)
        held.update({f"/{name}": vector for name, vector in zip(names, vectors, strict=True)})

    def check(expected: int, changed: int | None = None) -> None:
        """Look whether so many vectors, and facts of so many images, were read."""
        rows.clear()
        snapshot = store.snapshot()
        assert sum(rows) == (expected if changed is None else changed)
        # the same as to whoever opens the store now
        columns = StoreFiles.open(store.folder).snapshot().columns
        read.pop()
        for name, column in vars(snapshot.columns).items():
            np.testing.assert_array_equal(column, getattr(columns, name), name)
        assert snapshot.columns.paths == sorted(held)
        np.testing.assert_array_equal(
            snapshot.matrix, np.array([held[path] for path in sorted(held)]).reshape(-1, 3)
        )
        assert read.pop() == expected

    check(0)
    add("b", "d", "f", "a")
    check(4)
    add("c", "d")  # d has the same file as before, and another vector
    check(2)
    store.delete([key_of("/a"), key_of("/f")])
    del held["/a"], held["/f"]
    check(0)
    with store.changing() as writer:
        writer.update([StoredImage("/b", "1" * 64, 1, 1)])
    check(0, changed=1)  # other facts, and the vector of before
    store.rows.scrub()
    add("h")
    check(1)
    store.delete([key_of(path) for path in held])
    held.clear()
    check(0)
    add("g")
    check(1)


def test_rows_that_go_while_they_are_read_are_those_of_the_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = StoreFiles.create(tmp_path / "store", fingerprint="a" * 64, dim=3, run="run")
    store.add([StoredImage(f"/{name}", "0" * 64, 1, 1) for name in "ab"], np.eye(3, dtype=np.float32)[:2])
    writer = StoreFiles.open(store.folder)
    vectors_of = SqliteReading.vectors

    def late(reading: SqliteReading, numbers: np.ndarray) -> Any:
        writer.delete([key_of("/a")])
        return vectors_of(reading, numbers)

    with monkeypatch.context() as patch:
        patch.setattr(SqliteReading, "vectors", late)
        assert store.snapshot().columns.paths == ["/a", "/b"]
    assert store.snapshot().columns.paths == ["/b"]


def test_a_commit_beside_a_reading_is_seen_by_the_next_look(tmp_path: Path) -> None:
    """What a reading finds is of its moment, and not of how the file looks by then."""
    files = StoreFiles.create(tmp_path / "store", fingerprint="a" * 64, dim=2, run="run")
    files.add([StoredImage("/a", "0" * 64, 1, 1)], np.eye(2, dtype=np.float32)[:1])
    before = files.rows.identity()
    with files.rows.reading():
        other = StoreFiles.open(tmp_path / "store")
        other.add([StoredImage("/b", "0" * 64, 1, 1)], np.eye(2, dtype=np.float32)[:1])
        # a log whose last change lies back is one that may be trusted
        os.utime(tmp_path / "store" / "store.sqlite-wal", (1, 1))
        assert files.rows.identity() == before
    assert files.rows.identity() != before
    assert files.snapshot().columns.paths == ["/a", "/b"]


@pytest.mark.parametrize("in_place", [False, True])
def test_another_change_of_an_older_copy_has_its_own_vectors(tmp_path: Path, in_place: bool) -> None:
    """It has the number of a picture, and of a commit, that whoever has the store open has read before."""
    folder = tmp_path / "store"
    files = StoreFiles.create(folder, fingerprint="a" * 64, dim=2, run="run")

    def add(name: str) -> None:
        vector = np.full((1, 2), ord(name), np.float32)
        StoreFiles.open(folder).add([StoredImage(name, "0" * 64, 1, 1)], vector)

    add("a")
    shutil.copytree(folder, tmp_path / "copy")
    add("b")
    assert files.snapshot().matrix.tolist() == [[97, 97], [98, 98]]
    if not in_place:
        shutil.rmtree(folder)
    shutil.copytree(tmp_path / "copy", folder, dirs_exist_ok=True)
    add("c")
    snapshot = files.snapshot()
    assert (snapshot.columns.paths, snapshot.matrix.tolist()) == (["a", "c"], [[97, 97], [99, 99]])
