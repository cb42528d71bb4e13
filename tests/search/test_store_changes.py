"""Any order of adding, updating, deleting and erasing leaves exactly what a dictionary would hold."""

import shutil
import sqlite3
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limner.errors import StoreError
from limner.store.contents import region_blocks, region_features, thumbnails
from limner.store.entry import StoredImage, key_of
from limner.store.erase import erase
from limner.store.files import StoreFiles
from limner.store.sqlite_transactions import SqliteWriting
from limner.store.verify import DAMAGE, verify
from tests.search.fake import vectors_of

SHAPE = (1, 2, 3)
DIM = 3
NAMES = "abcdefgh"


@dataclass(frozen=True)
class Held:
    """What a store should hold of one image."""

    entry: StoredImage
    vector: bytes
    regions: bytes
    thumbnail: bytes | None


def make(name: str, seed: int) -> Held:
    rng = np.random.default_rng(seed)
    thumbnail = None if seed % 4 == 0 else rng.bytes(int(rng.integers(1, 40)))
    return Held(
        StoredImage(f"/{name}", f"{seed:064x}", 1, seed, metadata={"seed": seed}),
        rng.standard_normal(DIM).astype(np.float32).tobytes(),
        rng.standard_normal(SHAPE).astype(np.float16).tobytes(),
        thumbnail,
    )


def arrays(some: list[Held]) -> dict[str, Any]:
    return {
        "entries": [one.entry for one in some],
        "vectors": np.stack([np.frombuffer(one.vector, np.float32) for one in some]),
        "region_features": np.stack([np.frombuffer(one.regions, np.float16).reshape(SHAPE) for one in some]),
        "thumbnails": [one.thumbnail for one in some],
    }


def content(files: StoreFiles) -> dict[str, Held]:
    """All that a store holds, by path."""
    entries = files.entries()
    ids = [key_of(path) for path in entries]
    vectors, small, regions = vectors_of(files, ids), thumbnails(files, ids), region_features(files, ids)
    blocks = np.empty_like(regions)
    for places, block in region_blocks(files, ids, 2):
        blocks[places] = block
    np.testing.assert_array_equal(blocks, regions)
    assert len(files) == len(entries)
    return {
        path: Held(entry, vectors[row].tobytes(), regions[row].tobytes(), small[row])
        for row, (path, entry) in enumerate(entries.items())
    }


def check(files: StoreFiles, expected: dict[str, Held]) -> None:
    assert content(files) == expected
    snapshot = files.snapshot()
    assert snapshot.columns.paths == sorted(expected)
    assert [row.tobytes() for row in snapshot.matrix] == [expected[path].vector for path in sorted(expected)]


NAMED = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), NAMED),
        st.tuples(st.just("update"), NAMED),
        st.tuples(st.just("delete"), NAMED),
        st.tuples(st.sampled_from(["purge", "killed", "reopen"]), st.just([])),
    ),
    min_size=3,
    max_size=14,
)


@given(steps=STEPS)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_order_of_changes(steps: list[tuple[str, list[str]]], tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "store", ignore_errors=True)
    files = StoreFiles.create(
        tmp_path / "store", fingerprint="a" * 64, dim=DIM, run="run", region_shape=SHAPE
    )
    reader = StoreFiles.open(tmp_path / "store")
    expected: dict[str, Held] = {}
    for number, (step, names) in enumerate(steps, start=1):
        if step == "add":
            some = [make(name, 10 * number + place) for place, name in enumerate(names)]
            files.add(**arrays(some))
            expected |= {one.entry.path: one for one in some}
        elif step == "update":
            update(files, expected, names, number)
        elif step == "delete":
            files.delete([key_of(f"/{name}") for name in names])
            for name in names:
                expected.pop(f"/{name}", None)
        elif step == "killed":
            killed(files)
        elif step == "reopen":
            files = StoreFiles.open(files.folder)
        else:
            erase(files)
            check(reader, expected)
        check(files, expected)
    files = StoreFiles.open(files.folder)
    check(files, expected)
    assert not verify(files).found.keys() & DAMAGE.keys()


def update(files: StoreFiles, expected: dict[str, Held], names: list[str], number: int) -> None:
    """New facts for those that are there, through a writer that also adds one."""
    there = [expected[f"/{name}"] for name in names if f"/{name}" in expected]
    changed = [replace(one, entry=replace(one.entry, identity=f"p{number}")) for one in there]
    fresh = make("new", 10 * number)
    with files.changing() as writer:
        if changed:
            writer.update([one.entry for one in changed])
        writer.add(**arrays([fresh]))
    expected |= {one.entry.path: one for one in [*changed, fresh]}


def killed(files: StoreFiles) -> None:
    """A writer that ends between its rows and their commit."""
    with suppress(KilledError), files.changing() as writer:
        writer.add(**arrays([make("a", 7001), make("z", 7002)]))
        raise KilledError


class KilledError(Exception):
    """In place of a signal, which nothing could clean up after either."""


def test_a_step_that_fails_has_not_been_made_and_those_before_it_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Indexing commits what is whole when the disk is full in the middle of a batch."""
    files = StoreFiles.create(
        tmp_path / "store", fingerprint="a" * 64, dim=DIM, run="run", region_shape=SHAPE
    )
    first, second = make("a", 1), make("b", 2)

    def full(rows: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with files.changing() as writer:
        writer.add(**arrays([first]))
        with monkeypatch.context() as patch:
            patch.setattr(SqliteWriting, "_insert", lambda self, rows: full(rows))
            with pytest.raises(StoreError, match="disk is full"):
                writer.add(**arrays([second]))
    check(files, {"/a": first})
    assert verify(files).found.keys() == {"missing"}
