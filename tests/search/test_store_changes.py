"""Any order of adding, updating, deleting and compacting leaves exactly what a dictionary would hold."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limner.errors import StoreError
from limner.search import compaction, segments, store_writer
from limner.store.entry import StoredImage, key_of
from limner.store.erase import erase
from limner.store.manifest import read_manifest, write_manifest
from limner.search.segments import Segments
from limner.store.files import StoreFiles
from limner.search.table import Table
from limner.store.verify import DAMAGE, verify

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
    vectors, thumbnails, regions = files.vectors(ids), files.thumbnails(ids), files.region_features(ids)
    blocks = np.empty_like(regions)
    for places, block in files.region_blocks(ids, 2):
        blocks[places] = block
    np.testing.assert_array_equal(blocks, regions)
    assert len(files) == len(entries)
    return {
        path: Held(entry, vectors[row].tobytes(), regions[row].tobytes(), thumbnails[row])
        for row, (path, entry) in enumerate(entries.items())
    }


def check(files: StoreFiles, expected: dict[str, Held]) -> None:
    assert content(files) == expected
    snapshot = files.snapshot()
    assert snapshot.columns["path"].to_pylist() == sorted(expected)
    assert [row.tobytes() for row in snapshot.matrix] == [expected[path].vector for path in sorted(expected)]


@contextmanager
def small_sizes() -> Iterator[None]:
    """Limits of a size that tiny stores reach."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "TOGETHER", 3)
        patch.setattr(compaction, "FULL", 150)
        patch.setattr(compaction, "_IMAGES", 2)
        patch.setattr(store_writer, "FULL", 150)
        patch.setattr("limner.search.table._NEWS", 2)
        yield


NAMED = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), NAMED),
        st.tuples(st.just("update"), NAMED),
        st.tuples(st.just("delete"), NAMED),
        st.tuples(st.sampled_from(["tidy", "compact", "purge", "killed", "reopen"]), st.just([])),
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
    with small_sizes():
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
                change: Callable[[StoreFiles], object] = {
                    "tidy": StoreFiles.tidy,
                    "compact": StoreFiles.compact,
                    "purge": lambda files: erase(files),
                }[step]
                change(files)
                check(reader, expected)
            check(files, expected)
    files = StoreFiles.open(files.folder)
    check(files, expected)
    with files.writing():
        pass  # a writer that comes next removes what was left
    kinds = verify(files).found.keys()
    assert not kinds & DAMAGE.keys()
    wanted = files.table.all(["segment"])["segment"].to_pylist() if files.has_table else []
    assert set(Segments(files.folder).sizes()) == set(wanted)


def update(files: StoreFiles, expected: dict[str, Held], names: list[str], number: int) -> None:
    """New facts for those that are there, through a writer that also adds one."""
    there = [expected[f"/{name}"] for name in names if f"/{name}" in expected]
    changed = [replace(one, entry=replace(one.entry, identity=f"p{number}")) for one in there]
    fresh = make("new", 10 * number)
    before = Segments(files.folder).sizes()
    with files.writing():
        writer = files.writer()
        if changed:
            writer.update([one.entry for one in changed])
        writer.add(**arrays([fresh]))
        writer.commit()
    # the facts alone were written: one segment came, that of the added image
    assert len(Segments(files.folder).sizes().keys() - before.keys()) == 1
    expected |= {one.entry.path: one for one in [*changed, fresh]}


def killed(files: StoreFiles) -> None:
    """A writer that is killed between the bytes of a segment and the commit of its rows."""

    def kill(table: Table, rows: object) -> None:
        raise KilledError

    with pytest.MonkeyPatch.context() as patch, files.writing():
        patch.setattr(Table, "merge", kill)
        writer = files.writer()
        writer.add(**arrays([make("a", 7001), make("z", 7002)]))
        with pytest.raises(KilledError):
            writer.commit()


class KilledError(Exception):
    """In place of a signal, which nothing could clean up after either."""


def test_a_killed_writer_leaves_a_segment_that_the_next_one_removes(tmp_path: Path) -> None:
    files = StoreFiles.create(
        tmp_path / "store", fingerprint="a" * 64, dim=DIM, run="run", region_shape=SHAPE
    )
    kept = make("a", 1)
    files.add(**arrays([kept]))
    before = set(Segments(files.folder).sizes())
    killed(files)
    assert len(Segments(files.folder).sizes()) == 2
    check(StoreFiles.open(files.folder), {"/a": kept})
    later = StoreFiles.open(files.folder)
    later.delete(["nothing"])
    assert set(Segments(files.folder).sizes()) == before
    # what a generation that was never finished, or one that is over, leaves
    for name in ("pictures-2.lance", "sentences-7.lance", "pictures.lance"):
        shutil.copytree(tmp_path / "store" / "pictures-1.lance", tmp_path / "store" / name)
    unfinished = (".store.json.partial", "pictures-2.commits.json", ".pictures-1.commits.json.partial")
    for name in (*unfinished, ".generation-2.partial", ".generation-7.partial"):
        (tmp_path / "store" / name).write_text("{")
    later.delete(["nothing"])
    names = {path.name for path in (tmp_path / "store").iterdir()}
    assert names == {
        ".store.lock",
        "pictures-1.commits.json",
        "pictures-1.lance",
        "segments",
        "store.json",
    }
    check(later, {"/a": kept})


def test_readers_follow_a_generation(tmp_path: Path) -> None:
    files = StoreFiles.create(
        tmp_path / "store", fingerprint="a" * 64, dim=DIM, run="run", region_shape=SHAPE
    )
    first, second = make("a", 1), make("b", 2)
    files.add(**arrays([first, second]))
    reader = StoreFiles.open(files.folder)
    check(reader, {"/a": first, "/b": second})
    manifest = read_manifest(files.folder)
    with files.writing():
        rows = files.table.all(files.table.schema.names)
        later = Table(files.folder, "pictures-2", files.table.schema, files.lock)
        later.merge(rows.filter([path == "/a" for path in rows["path"].to_pylist()]))
        write_manifest(files.folder, manifest.model_copy(update={"generation": 2}))
    files.delete(["nothing"])  # removes the tables of before
    assert not (tmp_path / "store" / "pictures-1.lance").exists()
    check(reader, {"/a": first})
    check(files, {"/a": first})


def test_a_generation_that_goes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader looks into the manifest, and then a writer removes the table before it is read."""
    files = StoreFiles.create(
        tmp_path / "store", fingerprint="a" * 64, dim=DIM, run="run", region_shape=SHAPE
    )
    one = make("a", 1)
    files.add(**arrays([one]))
    reader = StoreFiles.open(files.folder)
    reader.snapshot()
    read = Table.all
    done: list[bool] = []

    def late(table: Table, columns: list[str]) -> Any:
        if not done:
            done.append(True)
            rows = read(table, files.table.schema.names)
            Table(files.folder, "pictures-2", files.table.schema, files.lock).merge(rows)
            manifest = read_manifest(files.folder)
            write_manifest(files.folder, manifest.model_copy(update={"generation": 2}))
            shutil.rmtree(tmp_path / "store" / "pictures-1.lance")
        return read(table, columns)

    monkeypatch.setattr(Table, "all", late)
    assert list(reader.entries()) == ["/a"]
    assert reader.snapshot().keys == [key_of("/a")]


def test_a_segment_that_is_compacted_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = StoreFiles.create(
        tmp_path / "store", fingerprint="a" * 64, dim=DIM, run="run", region_shape=SHAPE
    )
    expected = {f"/{name}": make(name, place) for place, name in enumerate("abcd", start=1)}
    for one in expected.values():
        files.add(**arrays([one]))
    reader = StoreFiles.open(files.folder)
    ids = [key_of(path) for path in expected]
    fill = Segments.fill
    with small_sizes():
        for read in (
            lambda: reader.region_features(ids).reshape(4, -1),
            lambda: next(block for _, block in reader.region_blocks(ids, 4)).reshape(4, -1),
            lambda: reader.thumbnails(ids),
        ):
            files.add(**arrays([expected["/a"]]))
            files.add(**arrays([expected["/b"]]))
            files.add(**arrays([expected["/c"]]))
            done: list[bool] = []

            def late(self: Segments, extents: Any, places: Any, done: list[bool] = done) -> None:
                if not done:
                    done.append(True)
                    erase(files)
                fill(self, extents, places)

            with monkeypatch.context() as patch:
                patch.setattr(Segments, "fill", late)
                found = read()
            assert done
            if isinstance(found, list):
                assert found == [one.thumbnail for one in expected.values()]
            else:
                assert sorted(row.tobytes() for row in found) == sorted(
                    one.regions for one in expected.values()
                )


def test_full_segments_are_never_written_again(tmp_path: Path) -> None:
    files = StoreFiles.create(tmp_path / "store", fingerprint="a" * 64, dim=DIM, run="run")
    full = bytes(200)

    def add(name: str, thumbnail: bytes) -> None:
        entry = StoredImage(f"/{name}", "0" * 64, 1, 1)
        files.add([entry], np.ones((1, DIM), np.float32), thumbnails=[thumbnail])

    with small_sizes():
        for number in range(8):
            add(f"full-{number}", full)
        before = set(Segments(files.folder).sizes())
        files.tidy()
        assert set(Segments(files.folder).sizes()) == before
        for number in range(3):
            add(f"small-{number}", bytes(30))
        files.tidy()
        after = Segments(files.folder).sizes()
        # three small ones have become one, which is not touched until it has two more of its size beside it
        assert before < after.keys()
        assert sorted(after.values()) == [90, *[200] * 8]
        files.tidy()
        assert Segments(files.folder).sizes() == after


def test_a_disk_that_is_full_leaves_the_store_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = StoreFiles.create(
        tmp_path / "store", fingerprint="a" * 64, dim=DIM, run="run", region_shape=SHAPE
    )
    one = make("a", 1)
    files.add(**arrays([one]))
    before = set(Segments(files.folder).sizes())

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(segments.os, "fsync", full)  # type: ignore[attr-defined]
    with pytest.raises(StoreError, match=r"cannot be written \(No space left"):
        files.add(**arrays([make("b", 2)]))
    monkeypatch.undo()
    check(files, {"/a": one})
    assert set(Segments(files.folder).sizes()) == before
