from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from limner.store.entry import StoredImage, key_of
from limner.store.files import StoreFiles
from limner.search.table import Table


def test_only_what_has_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = StoreFiles.create(tmp_path / "store", fingerprint="a" * 64, dim=3, run="run")
    held: dict[str, np.ndarray] = {}
    rng = np.random.default_rng(0)
    read: list[int] = []
    fill = Table.fill

    def counted(table: Table, matrix: np.ndarray, places: np.ndarray, *rest: Any) -> bool:
        read.append(len(places))
        return fill(table, matrix, places, *rest)

    monkeypatch.setattr(Table, "fill", counted)

    def add(*names: str) -> None:
        vectors = rng.standard_normal((len(names), 3)).astype(np.float32)
        store.add([StoredImage(f"/{name}", "0" * 64, 1, 1) for name in names], vectors)
        held.update({f"/{name}": vector for name, vector in zip(names, vectors, strict=True)})

    def check(expected: int) -> None:
        snapshot = store.snapshot()
        assert snapshot.columns["path"].to_pylist() == sorted(held)
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
    store.compact()
    check(3)
    store.delete([key_of(path) for path in held])
    held.clear()
    check(0)
    add("g")
    check(1)


def test_rows_that_go_while_they_are_read_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = StoreFiles.create(tmp_path / "store", fingerprint="a" * 64, dim=3, run="run")
    store.add([StoredImage(f"/{name}", "0" * 64, 1, 1) for name in "ab"], np.eye(3, dtype=np.float32)[:2])
    numbered = Table.numbered
    asked: list[int] = []

    def late(table: Table, columns: Sequence[str]) -> pa.Table:
        rows = numbered(table, columns)
        if not asked:
            store.delete([key_of("/a")])
        asked.append(len(rows))
        return rows

    monkeypatch.setattr(Table, "numbered", late)
    assert store.snapshot().columns["path"].to_pylist() == ["/b"]
    assert asked == [2, 1]
