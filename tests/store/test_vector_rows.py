"""A store on disk beside commits: what it answers is what one in memory does, and its file holds what is in use."""

import gc
import queue
import threading
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from limner.conditions import Condition
from limner.errors import StoreError
from limner.requests import SearchRequest
from limner.search.engine import Engine
from limner.search.inverted_file import InvertedFile
from limner.store import scratch, vector_rows, vectors
from limner.store.columns import Columns
from limner.store.entry import StoredImage, key_of
from limner.store.files import StoreFiles
from limner.store.int8_codes import Int8Codes
from limner.store.scratch import ScratchFile
from limner.store.snapshot import Snapshot
from limner.store.sqlite_transactions import SqliteReading
from limner.store.vectors import Vectors
from tests.search.fake import DIM, FakeEncoder, unit

Rows = Any  # arrays of numpy, whose arithmetic has no types

pytest.importorskip("numkong")
pytest.importorskip("usearch")

CAMERA = Condition.parse("camera=1|2")
MEMORY = 1 << 60


def path_of(number: int) -> str:
    return f"/pictures/{number:04d}.jpg"


def vector_of(name: str) -> Rows:
    """The vector of a picture whose file has this digest: with it a row says itself what its vector is."""
    # some are the same, so that equal scores have to be told apart
    rng = np.random.default_rng(int(name[:8], 16) % 5000)
    return unit(rng.normal(size=(1, DIM)))[0].astype(np.float32)


def vectors_of(snapshot: Snapshot) -> Rows:
    return np.array(
        [vector_of(name) for name in map(bytes.decode, snapshot.columns.sha256.tolist())]
    ).reshape(-1, DIM)


class Writer:
    """Adds and replaces pictures, each time with vectors of their own."""

    def __init__(self, store: StoreFiles) -> None:
        self.store = store
        self.rng = np.random.default_rng(0)
        self.numbers: set[int] = set()

    def add(self, *numbers: int) -> list[str]:
        names = [f"{self.rng.integers(1 << 32):08x}{number:056x}" for number in numbers]
        images = [
            StoredImage(path_of(number), name, 1, 1, metadata={"camera": number % 4})
            for number, name in zip(numbers, names, strict=True)
        ]
        self.store.add(images, np.stack([vector_of(name) for name in names]))
        self.numbers.update(numbers)
        return names

    def delete(self, *numbers: int) -> None:
        self.store.delete([key_of(path_of(number)) for number in numbers])
        self.numbers.difference_update(numbers)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every store is on disk, and nothing is too small for codes and blocks."""
    monkeypatch.setenv("LIMNER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(scratch, "ON_DISK_FROM", 1)
    monkeypatch.setattr(vectors, "CODED_FROM", 1)
    monkeypatch.setattr(vectors, "_READ", 4)
    monkeypatch.setattr(vectors, "_BLOCK", 3)
    monkeypatch.setattr(vector_rows, "_BLOCK", 3)
    monkeypatch.setattr(vector_rows, "_COPIED", 5)


def made(folder: Path) -> Writer:
    return Writer(StoreFiles.create(folder, fingerprint=FakeEncoder().fingerprint, dim=DIM, run="run"))


def in_memory(store: StoreFiles) -> StoreFiles:
    """The same store, read anew into memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scratch, "ON_DISK_FROM", MEMORY)
        opened = StoreFiles.open(store.folder)
        opened.snapshot()
    return opened


def file_of(snapshot: Snapshot) -> ScratchFile:
    assert snapshot.vectors._file is not None
    return snapshot.vectors._file


def slots_of(snapshot: Snapshot) -> Rows:
    assert snapshot.vectors.slots is not None
    return snapshot.vectors.slots


def files_of(folder: Path) -> list[bytes]:
    """The bytes of all files without a name that this process has open in the folder."""
    found = {}
    for one in Path("/proc/self/fd").iterdir():
        try:
            target = str(one.readlink())
        except FileNotFoundError:
            continue
        if target.startswith(str(folder)) and target.endswith("(deleted)"):
            found[target] = one.read_bytes()
    return list(found.values())


def expect_alike(found: Vectors, expected: Vectors, rows: Rows, seed: int) -> None:
    """Hold all ways to ask against those of vectors in memory, bit by bit."""
    assert found.on_disk
    assert not expected.on_disk
    rng = np.random.default_rng(seed)
    queries = unit(rng.normal(size=(3, DIM))).astype(np.float32)
    for query in queries:
        assert found.scores(query).tobytes() == expected.scores(query).tobytes()
        assert found.scores(query, rows).tobytes() == expected.scores(query, rows).tobytes()
        for k in (1, 5, len(expected)):
            for some in (None, rows, rows[::3]):
                one, other = found.first(query, k, some), expected.first(query, k, some)
                assert one[0].tolist() == other[0].tolist()
                assert one[1].tobytes() == other[1].tobytes()
    for one, other in zip(found.first_of_each(queries, 4), expected.first_of_each(queries, 4), strict=True):
        assert one[0].tolist() == other[0].tolist()
        assert one[1].tobytes() == other[1].tobytes()


def expect_codes(codes: Int8Codes, matrix: Rows) -> None:
    anew = Int8Codes.of(matrix)
    assert anew is not None
    for field in ("codes", "scales", "lengths", "residuals"):
        assert getattr(codes, field).tobytes() == getattr(anew, field).tobytes()


def expect_clean(file: ScratchFile, *snapshots: Snapshot) -> None:
    """Whatever none of the snapshots has is zero; each slot has as many readers as snapshots."""
    assert not file._dropped
    count = np.zeros(len(file.matrix), int)
    for snapshot in snapshots:
        if file_of(snapshot) is file:
            count[slots_of(snapshot)] += 1
    assert file._readers.tolist() == count.tolist()
    assert not file.matrix[count == 0].any()


changes = st.lists(
    st.tuples(
        st.integers(0, 9),  # added
        st.integers(0, 5),  # replaced
        st.integers(0, 9),  # deleted
        st.booleans(),  # an older snapshot is held from now on
        st.sampled_from(["", "exact", "lists"]),  # what searches before the next change
    ),
    min_size=3,
    max_size=5,
)


@pytest.mark.slow
# making a failing case smaller took minutes
@settings(
    max_examples=12,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@example(steps=[(0, 0, 0, False, "lists")] * 2 + [(0, 0, 0, False, "exact")], begins=30, seed=0)
@example(steps=[(0, 0, 9, False, "exact")] * 3, begins=30, seed=0)
# never empty: five steps delete 45 at most
@given(steps=changes, begins=st.integers(50, 70), seed=st.integers(0, 1000))
def test_after_each_commit_it_answers_as_a_store_in_memory_that_is_read_anew(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any], begins: int, seed: int
) -> None:
    writer = made(tmp_path_factory.mktemp("store") / "store")
    store, rng = writer.store, np.random.default_rng(seed)
    writer.add(*rng.permutation(200)[:begins].tolist())
    held: list[tuple[Snapshot, Rows]] = []
    lists, twins = InvertedFile(), InvertedFile()
    following: Snapshot | None = None
    for added, replaced, deleted, holds, searched in [(0, 0, 0, True, "lists"), *steps]:
        before = store.snapshot()
        file, free = file_of(before), int((file_of(before)._readers == 0).sum())
        if holds:
            held.append((before, vectors_of(before)))
        have = rng.permutation(sorted(writer.numbers)).tolist()
        others = rng.permutation(np.setdiff1d(np.arange(200, 1000), have))
        numbers = [*have[:replaced], *others[:added].tolist()]
        if deleted:
            writer.delete(*have[replaced : replaced + deleted])
        if numbers:
            writer.add(*numbers)
        now = store.snapshot()
        # two commits are read at once
        new = len(np.setdiff1d(slots_of(now), slots_of(before))) if file_of(now) is file else len(numbers)
        is_half_full = 2 * len(now.vectors) >= len(file.matrix)
        assert (file_of(now) is file) == (len(numbers) <= free and is_half_full)
        assert new == len(numbers)

        twin = in_memory(store).snapshot()
        for one in fields(Columns):
            np.testing.assert_array_equal(getattr(now.columns, one.name), getattr(twin.columns, one.name))
        assert now.vectors.matrix.tobytes() == twin.vectors.matrix.tobytes() == vectors_of(now).tobytes()
        assert now.vectors[len(twin.vectors) // 2].tobytes() == twin.matrix[len(twin.vectors) // 2].tobytes()
        if searched:
            expect_alike(now.vectors, twin.vectors, now.meeting((CAMERA,)), seed)
            # of eight rows and fewer all are scored, and with lists the codes are in their order
            coded = now.vectors._codes
            assert coded is not None or len(twin.vectors) <= 8 or now.vectors.coded is not None
            if coded is not None:
                expect_codes(coded, twin.matrix)
        if searched == "lists":
            # theirs follows in memory
            following = Snapshot(Vectors(twin.matrix), twin.columns)
            assert lists.update(now) == twins.update(following)
            assert lists._list_of.tolist() == twins._list_of.tolist()
            assert now.vectors.coded is not None
            expect_codes(now.vectors.coded.codes, twin.matrix[now.vectors.coded.order])
            for query in unit(rng.normal(size=(3, DIM))).astype(np.float32):
                for rows in (None, now.meeting((CAMERA,))):
                    nearest, twin_of = lists.nearest(query, 3, rows), twins.nearest(query, 3, rows)
                    assert nearest[0].tolist() == twin_of[0].tolist()
                    assert nearest[1].tobytes() == twin_of[1].tobytes()
            expect_alike(now.vectors, twin.vectors, now.meeting((CAMERA,)), seed)
        # those that are still in use have their own rows
        for older, own in held:
            assert older.vectors[:].tobytes() == own.tobytes()
            expect_alike(older.vectors, Vectors(own), older.meeting((CAMERA,)), seed)
        if len(held) > 2:
            held.pop(0)
            del older, own
        listed = [] if lists._snapshot is None else [lists._snapshot]
        every = {id(one): one for one in (before, now, *listed, *(one for one, _ in held))}
        expect_clean(file_of(now), *every.values())
        del before, every, listed


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    writer = made(tmp_path / "store")
    writer.add(*range(60))
    return writer


def test_a_commit_writes_its_own_rows_and_no_others(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    store, query = writer.store, vector_of("0" * 8)
    before = store.snapshot()
    before.vectors.prepare()
    coded: list[int] = []
    put = Int8Codes.put

    def counted(codes: Int8Codes, into: Any, rows: Rows) -> None:
        coded.append(len(rows))
        put(codes, into, rows)

    monkeypatch.setattr(Int8Codes, "put", counted)
    bytes_before = file_of(before).matrix.copy()
    [name, _, _] = writer.add(3, 100, 101)
    now = store.snapshot()
    assert file_of(now) is file_of(before)
    differ = np.flatnonzero((file_of(now).matrix != bytes_before).any(axis=1))
    assert sorted(differ.tolist()) == sorted(np.setdiff1d(slots_of(now), slots_of(before)).tolist())
    assert len(differ) == 3
    now.vectors.first(query, 3)
    # the query is coded, too
    assert sum(coded) == 3 + 1
    # without a search in between
    writer.delete(5)
    writer.add(102)
    store.snapshot()
    writer.add(103)
    coded.clear()
    store.snapshot().vectors.prepare()
    assert sum(coded) == 2
    assert vector_of(name).tobytes() in file_of(store.snapshot()).matrix.tobytes()


def test_of_what_was_dropped_no_byte_is_left_when_nobody_has_it(writer: Writer, tmp_path: Path) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("finds files without a name where Linux lists them")
    cache = tmp_path / "cache"
    store = writer.store
    [name] = writer.add(7)
    gone = vector_of(name).tobytes()
    before = store.snapshot()
    [held] = files_of(cache)
    assert gone in held
    writer.delete(7)
    now = store.snapshot()
    assert file_of(now) is file_of(before)
    writer.add(200)
    later = store.snapshot()
    del now
    # two later ones have no such row, and one of these is no longer there
    [held] = files_of(cache)
    assert gone in held
    assert gone in before.vectors[:].tobytes()
    row = before.row(key_of(path_of(7)))
    vector = before.vectors[row]
    del before
    [held] = files_of(cache)
    assert gone not in held
    # what a query has taken of it is its own
    assert vector.tobytes() == gone
    assert later.vectors[:].tobytes() == vectors_of(later).tobytes()
    # its slot is of use again
    free = int((file_of(later)._readers == 0).sum())
    writer.add(*range(300, 300 + free))
    assert file_of(store.snapshot()) is file_of(later)
    # and the file goes with the last that reads it
    writer.add(400)
    assert file_of(store.snapshot()) is not file_of(later)
    assert len(files_of(cache)) == 2
    del later
    assert len(files_of(cache)) == 1


def test_lists_that_have_followed_hold_nothing_of_before(writer: Writer) -> None:
    engine = Engine(writer.store, FakeEncoder(), approximate_from=10)
    engine.prepare()
    assert engine.approximate.proposer is not None
    engine.approximate.proposer.wait()
    [name] = writer.add(7)
    for _ in range(2):
        engine.answer(SearchRequest(text="blue", k=3))
        engine.approximate.proposer.wait()
    writer.delete(7)
    assert engine.answer(SearchRequest(text="blue", k=3)).total == 59
    engine.approximate.proposer.wait()
    engine.answer(SearchRequest(text="blue", k=3))
    assert vector_of(name).tobytes() not in file_of(writer.store.snapshot()).matrix.tobytes()


def test_what_the_engine_answers(writer: Writer) -> None:
    store = writer.store
    Engine(store, FakeEncoder()).prepare()
    writer.add(5, 100)
    writer.delete(9)
    on_disk, exact = Engine(store, FakeEncoder()), Engine(in_memory(store), FakeEncoder())
    assert slots_of(store.snapshot()).tolist() != sorted(slots_of(store.snapshot()).tolist())
    key = key_of(path_of(5))
    for query in (
        SearchRequest(text="blue"),
        SearchRequest(like=key),
        SearchRequest(like=key, where=("camera=1|2",), k=3),
        SearchRequest(text="red", marks={key: "right", key_of(path_of(8)): "wrong"}),
        SearchRequest(like=key, group="near", k=20),
        SearchRequest(text="grey", offset=4),
    ):
        assert on_disk.answer(query) == exact.answer(query)


def test_a_new_file_is_made_where_there_is_no_room_and_where_most_of_it_would_be_empty(
    writer: Writer,
) -> None:
    store = writer.store
    first = store.snapshot()
    assert len(file_of(first).matrix) == 66
    writer.add(*range(100, 106))
    second = store.snapshot()
    assert file_of(second) is file_of(first)
    writer.add(106)
    third = store.snapshot()
    assert file_of(third) is not file_of(first)
    assert len(file_of(third).matrix) == 73
    writer.delete(*range(30))
    fourth = store.snapshot()
    assert file_of(fourth) is file_of(third)
    writer.delete(30)
    fifth = store.snapshot()
    assert file_of(fifth) is not file_of(third)
    assert len(file_of(fifth).matrix) == 39
    for snapshot in (first, second, third, fourth, fifth):
        assert snapshot.matrix.tobytes() == vectors_of(snapshot).tobytes()


def test_a_store_grows_beyond_memory_and_back(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    store = writer.store
    monkeypatch.setattr(scratch, "ON_DISK_FROM", 4 * DIM * 61)
    small = store.snapshot()
    small.vectors.prepare()
    writer.add(100)
    large = store.snapshot()
    writer.add(3)
    larger = store.snapshot()
    writer.delete(4, 5)
    back = store.snapshot()
    assert [one.vectors.on_disk for one in (small, large, larger, back)] == [False, True, True, False]
    for snapshot in (small, large, larger, back):
        assert snapshot.matrix.tobytes() == vectors_of(snapshot).tobytes()
        snapshot.vectors.prepare()
        assert snapshot.vectors._codes is not None
        expect_codes(snapshot.vectors._codes, vectors_of(snapshot))


def test_rows_that_cannot_be_read_leave_nothing_in_the_file(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = writer.store
    before = store.snapshot()
    writer.add(100, 101)
    now = store.snapshot()
    assert file_of(now) is file_of(before)
    expect_clean(file_of(now), before, now)
    writer.add(102)
    vectors_of_numbers = SqliteReading.vectors

    def breaks(reading: SqliteReading, numbers: Rows) -> Any:
        yield from vectors_of_numbers(reading, numbers)
        raise StoreError("the disk has gone", "damaged")

    with monkeypatch.context() as patch:
        patch.setattr(SqliteReading, "vectors", breaks)
        with pytest.raises(StoreError, match="gone"):
            store.snapshot()
    # what the error's traceback holds
    gc.collect()
    expect_clean(file_of(before), before, now)
    assert now.matrix.tobytes() == vectors_of(now).tobytes()
    later = store.snapshot()
    assert later.matrix.tobytes() == vectors_of(later).tobytes()


def test_without_room_for_a_new_file_snapshots_in_use_answer(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object) -> None:
        raise OSError(28, "No space left on device")

    store = writer.store
    before = store.snapshot()
    with monkeypatch.context() as patch:
        patch.setattr("os.posix_fallocate", full)
        writer.add(*range(100, 104))
        now = store.snapshot()
        writer.add(*range(104, 110))
        with pytest.raises(StoreError, match="LIMNER_CACHE"):
            store.snapshot()
    for snapshot in (before, now):
        expect_alike(snapshot.vectors, Vectors(vectors_of(snapshot)), snapshot.meeting((CAMERA,)), 0)
    expect_clean(file_of(before), before, now)
    assert len(store.snapshot().vectors) == 70


def test_threads_that_search_older_rows_beside_commits_find_these(writer: Writer) -> None:
    snapshots: queue.Queue[Snapshot | None] = queue.Queue(maxsize=4)
    wrong: list[str] = []

    def search() -> None:
        # each takes some time, so that several versions are in use
        while (snapshot := snapshots.get()) is not None:
            own = vectors_of(snapshot)
            for _ in range(10):
                if snapshot.vectors[:].tobytes() != own.tobytes():
                    wrong.append("rows")
                found = snapshot.vectors.first(own[3], 5)
                if found[0].tolist() != Vectors(own).first(own[3], 5)[0].tolist():
                    wrong.append("search")
            del snapshot

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    rng = np.random.default_rng(0)
    for _ in range(25):
        have = rng.permutation(sorted(writer.numbers)).tolist()
        writer.add(have[0], *rng.integers(100, 900, 2).tolist())
        writer.delete(*have[1:3])
        snapshots.put(writer.store.snapshot())
    for _ in threads:
        snapshots.put(None)
    for thread in threads:
        thread.join()
    assert not wrong
    now = writer.store.snapshot()
    expect_clean(file_of(now), now)


@pytest.fixture
def file() -> ScratchFile:
    return ScratchFile(20, DIM)


def test_what_is_dropped_while_the_file_is_in_use_is_freed_after(file: ScratchFile) -> None:
    first = file.take(np.empty(0, np.int32), 18)
    assert first is not None
    file.matrix[first] = 1
    second = file.take(first[:10], 2)
    assert second is not None
    # as the garbage collector does in the thread that has the lock
    with file._lock:
        file.drop(first)
        assert file.matrix[first].all()
    third = file.take(second, 0)
    assert third is None
    assert file.matrix[first[:10]].all()
    assert not file.matrix[first[10:]].any()


def test_what_is_dropped_while_a_place_is_looked_for_waits_for_no_other_call(
    file: ScratchFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, last = file.take(np.empty(0, np.int32), 11), file.take(np.empty(0, np.int32), 11)
    assert first is not None
    assert last is not None
    file.matrix[:] = 1
    flatnonzero = np.flatnonzero

    def collects(where: Rows) -> Rows:
        file.drop(first)
        return flatnonzero(where)

    with monkeypatch.context() as patch:
        patch.setattr(np, "flatnonzero", collects)
        assert file.take(np.empty(0, np.int32), 1) is None
    assert not file.matrix[first].any()
    assert file.matrix[last].all()
