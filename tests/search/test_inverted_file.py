"""Lists of codes against exact search, and against a slow twin that reads them one by one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limner.requests import SearchRequest
from limner.search import inverted_file
from limner.search.approximate import proposer_for, trial
from limner.search.engine import Engine
from limner.search.inverted_file import DEPTHS, InvertedFile, spherical_kmeans
from limner.search.store_info import store_info
from limner.store import scratch
from limner.store.columns import Columns
from limner.store.entry import PictureRow, StoredImage
from limner.store.files import StoreFiles
from limner.store.snapshot import Snapshot
from limner.store.vectors import Vectors
from tests.search.fake import DIM, FakeEncoder, unit, vectors_of

Rows = Any  # arrays of numpy, whose arithmetic has no types

pytest.importorskip("numkong")
pytest.importorskip("usearch")


def drawn(rng: np.random.Generator, count: int, dim: int = 16, clusters: int = 30) -> Rows:
    centres = rng.normal(size=(clusters, dim))
    noise = rng.normal(size=(count, dim)) / dim**0.5
    return unit(unit(centres)[rng.integers(0, clusters, count)] + noise)


def snapshot_of(matrix: Rows, numbers: Rows | None = None) -> Snapshot:
    numbers = np.arange(len(matrix)) if numbers is None else numbers
    return Snapshot(Vectors(matrix, on_disk=True), columns_of(numbers))


def columns_of(numbers: Rows) -> Columns:
    """Facts of rows of which only the numbers are looked at."""
    none = [PictureRow("", "", "[]", "", 0, 0, None, None, None, "{}", None, 0, 0, None, None, b"")] * len(
        numbers
    )
    return replace(Columns.of(none), numbers=numbers)


def lists_of(matrix: Rows, **given: Any) -> InvertedFile:
    lists = InvertedFile(**given)
    lists.update(snapshot_of(matrix))
    return lists


def agreement(lists: InvertedFile, queries: Rows, k: int, rows: Rows | None = None) -> float:
    assert lists._snapshot is not None
    vectors = lists._snapshot.vectors
    shares = []
    for query in queries:
        found, scores = lists.nearest(query, k, rows)
        best, exact = vectors.first(query, k, rows)
        assert len(found) == len(set(found.tolist())) == len(best)
        assert scores.tolist() == vectors.scores(query, found).tolist()
        order = np.lexsort((found, -scores))
        assert order.tolist() == list(range(len(found)))
        if rows is not None:
            assert np.isin(found, rows).all()
        shares.append((scores >= exact[-1]).mean())
    return float(np.mean(shares))


@pytest.mark.parametrize("share", [1.0, 0.5, 0.1, 0.02])
def test_finds_the_best_of_those_that_take_part(share: float) -> None:
    rng = np.random.default_rng(0)
    matrix = drawn(rng, 20_000)
    lists = lists_of(matrix)
    queries = unit(matrix[:60] + rng.normal(size=(60, 16)) / 4)
    rows = None if share == 1 else np.flatnonzero(rng.random(len(matrix)) < share)
    # 0.995 is what these lists were measured to find, for other queries
    assert agreement(lists, queries, 10, rows) >= 0.98


def test_finds_those_that_are_far_from_the_query() -> None:
    # what takes part lies in clusters that the query is far from: lists near it hold none of it
    rng = np.random.default_rng(1)
    matrix = drawn(rng, 20_000)
    lists = lists_of(matrix)
    query = matrix[0]
    scores = matrix @ query
    rows = np.flatnonzero(scores < np.quantile(scores, 0.3))
    assert len(lists.nearest(query, 10, rows)[0]) == 10
    assert agreement(lists, matrix[:1], 10, rows) >= 0.9


@pytest.mark.parametrize("rows", [1, 2, 5, 40, 300])
def test_few_rows(rows: int) -> None:
    matrix = drawn(np.random.default_rng(2), rows)
    lists = lists_of(matrix)
    for k in (1, 3, rows, rows + 5):
        assert agreement(lists, matrix[:3], min(k, rows)) == 1


@pytest.mark.parametrize("rounds", [0, 1, 5])
def test_centres_are_the_means_of_their_rows(rounds: int) -> None:
    rows = drawn(np.random.default_rng(4), 300, clusters=5).astype(np.float32)
    centres = spherical_kmeans(rows, 40, np.random.default_rng(7), rounds)
    twin = rows[np.sort(np.random.default_rng(7).choice(300, 40, replace=False))].astype(float)
    for _ in range(rounds):
        nearest = [int(np.argmax([row @ centre for centre in twin])) for row in rows.astype(float)]
        for number in range(len(twin)):
            total = sum(row for row, own in zip(rows.astype(float), nearest, strict=True) if own == number)
            if (length := np.linalg.norm(total)) > 1e-6:
                twin[number] = total / length
    np.testing.assert_allclose(centres, twin, atol=1e-5)
    assert np.linalg.norm(centres, axis=1) == pytest.approx(1, abs=1e-5)


def test_centres_without_rows_stay() -> None:
    rows = np.repeat(unit(np.eye(2, 4)).astype(np.float32), [40, 1], axis=0)
    centres = spherical_kmeans(rows, 9, np.random.default_rng(0))
    assert {tuple(centre) for centre in centres.round(5).tolist()} <= {(1, 0, 0, 0), (0, 1, 0, 0)}


def test_two_servers_have_the_same_lists() -> None:
    matrix = drawn(np.random.default_rng(5), 3000).astype(np.float32)
    one, other = lists_of(matrix), lists_of(matrix.copy())
    assert one._centres.tobytes() == other._centres.tobytes()
    assert one._list_of.tolist() == other._list_of.tolist()


def test_the_lists_are_those_of_the_nearest_centres() -> None:
    matrix = drawn(np.random.default_rng(3), 3000)
    lists = lists_of(matrix)
    assert 50 <= len(lists._centres) <= 64
    assert np.linalg.norm(lists._centres, axis=1) == pytest.approx(1, abs=1e-3)
    products = matrix @ lists._centres.T
    # a product in blocks may round otherwise
    assert (products[np.arange(3000), lists._list_of] >= products.max(axis=1) - 1e-6).all()
    assert lists._snapshot is not None
    coded = lists._snapshot.vectors.coded
    assert coded is not None
    for number in range(len(lists._centres)):
        rows = coded.order[lists._starts[number] : lists._starts[number + 1]]
        assert rows.tolist() == np.flatnonzero(lists._list_of == number).tolist()
    assert coded.order[coded.places].tolist() == list(range(3000))


def test_reads_the_fewest_lists_that_hold_enough() -> None:
    matrix = drawn(np.random.default_rng(4), 20_000)
    lists = lists_of(matrix, recall=0.9)
    assert list(lists._read) == list(DEPTHS)
    assert list(lists._read.values()) == sorted(lists._read.values())
    assert lists.tried[-1].width == lists._read[10]
    assert lists.tried[-1].recall >= 0.9
    assert all(one.recall < 0.9 for one in lists.tried[:-1])
    assert lists_of(matrix, recall=1.0).tried[-1].width >= lists.tried[-1].width


def test_reads_on_until_as_many_have_taken_part(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    matrix = drawn(rng, 20_000)
    lists = lists_of(matrix)
    assert lists._snapshot is not None
    coded = lists._snapshot.vectors.coded
    assert coded is not None
    query = matrix[7]
    nearest = np.argsort(-(lists._centres @ query), kind="stable")
    sizes = np.diff(lists._starts)
    for takes_part in (rng.random(20_000) < 0.3, matrix @ query < 0.2, matrix @ query > 0.5):
        count = int(takes_part.sum())
        rows, _ = lists._coarse(query, 3, coded.codes, coded.order, takes_part, count)
        # the slow twin
        wanted = count / 20_000 * sizes[nearest[:3]].sum()
        seen: list[int] = []
        for turn, number in enumerate(nearest):
            if turn >= 3 and len(seen) >= wanted:
                break
            seen += [row for row in np.flatnonzero(lists._list_of == number).tolist() if takes_part[row]]
        assert sorted(rows.tolist()) == sorted(seen)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_follows_changes(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    matrix, numbers = drawn(rng, 600), np.arange(600)
    lists = InvertedFile()
    lists.update(snapshot_of(matrix, numbers))
    centres = lists._centres
    for _ in range(3):
        gone = data.draw(st.integers(0, 40))
        new = data.draw(st.integers(0, 40))
        stays = np.sort(rng.choice(len(matrix), len(matrix) - gone, replace=False))
        matrix = np.concatenate([matrix[stays], drawn(rng, new)])
        numbers = np.concatenate([numbers[stays], numbers.max() + 1 + np.arange(new)])
        order = rng.permutation(len(matrix))
        matrix, numbers = matrix[order], numbers[order]
        snapshot = snapshot_of(matrix, numbers)
        learnt_before = lists._changed
        fresh = lists.update(snapshot)
        if lists._centres is centres:
            assert fresh == new
        else:
            # more than a tenth has changed since they were learnt
            assert learnt_before + new > 0.1 * len(matrix)
            assert fresh == len(matrix)
        centres = lists._centres
        products = matrix @ centres.T
        assert (products[np.arange(len(matrix)), lists._list_of] >= products.max(axis=1) - 1e-6).all()
        assert agreement(lists, matrix[:5], 10) >= 0.9
        assert lists.update(snapshot) == 0


def test_rows_of_another_store_are_others() -> None:
    matrix = drawn(np.random.default_rng(6), 2000).astype(np.float32)
    numbers = columns_of(np.arange(2000))
    lists = InvertedFile()
    lists.update(Snapshot(Vectors(matrix, on_disk=True), numbers, store="one"))
    after = Snapshot(Vectors(matrix[::-1].copy(), on_disk=True), numbers, store="other")
    assert lists.update(after) == 2000
    assert lists._list_of.tolist() == lists_of(after.matrix)._list_of.tolist()


def test_what_fails_leaves_the_lists_that_were_there(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = drawn(np.random.default_rng(10), 1000)
    lists = lists_of(matrix)
    before = lists._snapshot
    monkeypatch.setattr(Vectors, "arrange", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        lists.update(snapshot_of(drawn(np.random.default_rng(11), 1500), np.arange(1500) + 1000))
    monkeypatch.undo()
    assert lists._snapshot is before
    assert agreement(lists, matrix[:5], 10) >= 0.9
    assert lists.update(snapshot_of(matrix[:900])) == 0


def entries(numbers: range) -> list[StoredImage]:
    return [
        StoredImage(f"/pictures/{number:04d}.jpg", "0" * 64, 1, 1, metadata={"camera": number % 5})
        for number in numbers
    ]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoreFiles:
    monkeypatch.setenv("LIMNER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(scratch, "ON_DISK_FROM", 1)
    encoder = FakeEncoder()
    store = StoreFiles.create(tmp_path / "store", fingerprint=encoder.fingerprint, dim=DIM, run="run")
    store.add(entries(range(2000)), drawn(np.random.default_rng(0), 2000, DIM))
    return store


def test_a_store_on_disk_is_searched_by_lists_with_conditions(store: StoreFiles) -> None:
    engine, exact = Engine(store, FakeEncoder(), approximate_from=100), Engine(store, FakeEncoder())
    assert store.snapshot().vectors.on_disk
    assert store_info(engine).approximate is None
    engine.prepare()
    assert isinstance(engine.approximate.proposer, InvertedFile)
    engine.approximate.proposer.wait()
    about = store_info(engine).approximate
    assert about is not None
    assert (about.by, about.width) == ("lists", engine.approximate.proposer.tried[-1].width)
    asked: list[int] = []
    nearest = engine.approximate.proposer.nearest
    engine.approximate.proposer.nearest = lambda *given: asked.append(1) or nearest(*given)  # type: ignore[method-assign, func-returns-value]
    camera = ("camera=3",)
    key = exact.answer(SearchRequest(text="blue", k=1)).hits[0].id
    queries = [
        SearchRequest(text="blue"),
        SearchRequest(text="a red coat", where=camera),
        SearchRequest(like=key, k=5),
        SearchRequest(like=key, k=5, where=camera),
        SearchRequest(text="grey", marks={key: "right"}),
    ]
    for number, query in enumerate(queries, start=1):
        found, best = engine.answer(query), exact.answer(query)
        assert found.matching == best.matching
        same = {hit.id for hit in found.hits} & {hit.id for hit in best.hits}
        assert len(same) >= len(best.hits) - 1
        assert key not in same or number <= 2
        assert len(asked) == number
    for query in (
        SearchRequest(text="blue", group="near", k=3),
        SearchRequest(text="blue", offset=3, where=camera),
    ):
        assert engine.answer(query) == exact.answer(query)
    assert len(asked) == len(queries)


def test_a_store_that_has_shrunk_lets_its_lists_go(store: StoreFiles) -> None:
    engine = Engine(store, FakeEncoder(), approximate_from=100)
    engine.answer(SearchRequest(text="blue"))
    assert isinstance(engine.approximate.proposer, InvertedFile)
    engine.approximate.proposer.wait()
    assert store.snapshot().store == store.manifest.id
    engine.approximate.smallest = len(store.snapshot().vectors) + 1
    expected = engine.answer(SearchRequest(text="blue")).hits
    assert engine.approximate.proposer is None
    # and has new ones when it has grown
    engine.approximate.smallest = 100
    assert engine.answer(SearchRequest(text="blue")).hits == expected
    assert isinstance(engine.approximate.proposer, InvertedFile)
    engine.approximate.proposer.wait()


def test_exact_search_of_a_store_on_disk_is_that_in_memory(
    store: StoreFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("limner.store.vectors.CODED_FROM", 1)
    monkeypatch.setattr("limner.store.vectors._READ", 16)
    on_disk = store.snapshot()
    in_memory = Vectors(np.array(on_disk.matrix))
    queries = drawn(np.random.default_rng(6), 20, DIM)
    for arranged in (False, True):
        if arranged:
            lists = InvertedFile()
            lists.update(on_disk)
        for rows in (None, np.arange(0, 2000, 3), np.arange(0, 2000, 40)):
            for query in queries:
                for _ in range(2):
                    found, expected = on_disk.vectors.first(query, 7, rows), in_memory.first(query, 7, rows)
                    assert found[0].tolist() == expected[0].tolist()
                    assert found[1].tolist() == expected[1].tolist()
        together = on_disk.vectors.first_of_each(queries, 7)
        for found, expected in zip(together, in_memory.first_of_each(queries, 7), strict=True):
            assert found[0].tolist() == expected[0].tolist()
            assert found[1].tolist() == expected[1].tolist()


def test_copies_are_found_in_their_order_whatever_the_order_of_their_codes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("limner.store.vectors._READ", 1)
    rng = np.random.default_rng(12)
    matrix = drawn(rng, 20)[rng.integers(0, 20, 1000)]
    vectors, in_memory = Vectors(matrix, on_disk=True), Vectors(matrix)
    vectors.arrange(rng.permutation(1000).astype(np.int32))
    for rows in (None, np.arange(0, 1000, 2)):
        for query in matrix[:10]:
            found, expected = vectors.first(query, 15, rows), in_memory.first(query, 15, rows)
            assert found[0].tolist() == expected[0].tolist()


def test_the_file_of_vectors_has_no_name_and_follows_the_store(store: StoreFiles, tmp_path: Path) -> None:
    before = store.snapshot()
    assert list((tmp_path / "cache" / "vectors").iterdir()) == []
    store.delete([one.id for one in entries(range(10))])
    store.add(entries(range(3000, 3010)), drawn(np.random.default_rng(7), 10, DIM))
    now = store.snapshot()
    assert len(before.matrix) == len(now.matrix) == 2000
    for key in (entries(range(20, 21))[0].id, entries(range(3000, 3001))[0].id):
        row = now.row(key)
        assert row is not None
        assert now.keys_of(np.array([row])) == [key]
        assert vectors_of(store, [key])[0].tolist() == now.matrix[row].tolist()
    assert now.row(entries(range(1))[0].id) is None


def test_a_full_disk_is_told_before_anything_is_written(
    store: StoreFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(Exception, match="LIMNER_CACHE") as told:
        store.snapshot()
    assert "No space left" in str(told.value)


def test_what_store_recall_measures(store: StoreFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    report = trial(store.snapshot())
    assert report.by == "lists"
    assert report.recall >= 0.98
    assert report.tried[-1].recall >= report.wanted
    assert "lists built in" in str(report)
    monkeypatch.setattr(scratch, "ON_DISK_FROM", 1 << 40)
    assert proposer_for(StoreFiles.open(store.folder).snapshot()).name == "graph"


def test_without_numkong_lists_search_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("limner.store.int8_codes.kernel", lambda: None)
    matrix = drawn(np.random.default_rng(8), 500)
    assert agreement(lists_of(matrix), matrix[:5], 10) == 1


def test_blocks_do_not_change_the_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = drawn(np.random.default_rng(9), 2000)
    whole = lists_of(matrix)
    monkeypatch.setattr(inverted_file, "_BLOCK", 100)
    parts = InvertedFile()
    parts._centres, parts._changed = whole._centres, -2000
    parts.update(snapshot_of(matrix))
    assert (parts._list_of == whole._list_of).mean() > 0.999


def test_making_lists_can_be_ended_at_any_time() -> None:
    lists, asked = InvertedFile(), []
    lists.go_on = lambda: asked.append(1)  # type: ignore[method-assign]
    lists.update(snapshot_of(drawn(np.random.default_rng(3), 20_000)))
    # eight rounds for the centres, blocks of rows, and the queries
    assert len(asked) >= 8 + 20_000 // 8192 + 200
