import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from limner.requests import SearchRequest
from limner.search.engine import Engine
from limner.search.graph import WIDTHS, Graph
from limner.search.store import Store
from limner.store.entry import StoredImage
from limner.store.files import StoreFiles
from limner.store.snapshot import Snapshot
from limner.store.vectors import Found
from tests.search.fake import DIM, FakeEncoder, Rows, unit


def clustered(count: int, seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(20, DIM))
    return unit(centres[rng.integers(0, 20, count)] + 0.3 * rng.normal(size=(count, DIM)))


def entries(numbers: range) -> list[StoredImage]:
    return [StoredImage(f"/pictures/{number:04d}.jpg", "0" * 64, 1, 1) for number in numbers]


@pytest.fixture
def store(tmp_path: Path) -> StoreFiles:
    encoder = FakeEncoder()
    store = StoreFiles.create(tmp_path / "store", fingerprint=encoder.fingerprint, dim=DIM, run="run")
    store.add(entries(range(400)), clustered(400, 0))
    return store


def test_agrees_with_exact_search(store: StoreFiles) -> None:
    exact = Engine(store, FakeEncoder())
    graph = Engine(store, FakeEncoder(), approximate_from=100)
    assert graph.approximate.proposer is not None
    # the widest: a chosen width is enough for vectors of the store, and these texts lie elsewhere
    graph.approximate.proposer.wanted = 1.1
    graph.prepare()
    graph.approximate.proposer.wait()
    found, expected = 0, 0
    for text in ("a red coat", "blue", "a man with a bag", "grey shoes and a hat"):
        near, best = Store(graph).search(text), Store(exact).search(text)
        found += len({hit.id for hit in near} & {hit.id for hit in best})
        expected += len(best)
        scores = {hit.id: hit.score for hit in best}
        for hit in near:
            assert hit.score == pytest.approx(scores.get(hit.id, hit.score), abs=1e-6)
        assert [hit.rank for hit in near] == list(range(1, 11))
        assert [hit.score for hit in near] == sorted((hit.score for hit in near), reverse=True)
    assert found / expected >= 0.95
    key = Store(exact).search("blue", k=1)[0].id
    alike = graph.answer(SearchRequest(like=key, k=5))
    assert len(alike.hits) == 5
    assert key not in {hit.id for hit in alike.hits}


def test_follows_the_store(store: StoreFiles) -> None:
    graph = Graph(DIM)
    assert graph.update(store.snapshot()) == 400
    assert graph.update(store.snapshot()) == 0
    before = store.snapshot()
    store.add(entries(range(390, 420)), clustered(30, 1))
    store.delete([entry.id for entry in entries(range(50))])
    assert graph.update(store.snapshot()) == 50 + 30
    now = store.snapshot()
    assert len(now.matrix) == 370
    for row in (0, 339, 345, 369):
        rows, scores = graph.nearest(now.matrix[row], 3)
        assert rows[0] == row
        assert scores[0] == pytest.approx(1, abs=1e-5)
    assert graph.recall(clustered(50, 2)) >= 0.95
    assert len(before.matrix) == 400


def test_conditions_and_groups_are_answered_exactly(
    store: StoreFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = Engine(store, FakeEncoder(), approximate_from=100)
    monkeypatch.setattr(Graph, "nearest", lambda *given: pytest.fail("the graph was asked"))
    assert len(graph.answer(SearchRequest(text="blue", group="near", k=3)).hits) == 3
    small = Engine(store, FakeEncoder(), approximate_from=401)
    assert len(Store(small).search("blue")) == 10


def test_copies_have_equal_scores_and_their_order(store: StoreFiles) -> None:
    one = clustered(1, 5)
    store.add(entries(range(500, 505)), np.repeat(one, 5, axis=0))
    graph = Graph(DIM)
    graph.update(store.snapshot())
    rows, scores = graph.nearest(one[0], 5)
    assert len(set(scores.tolist())) == 1
    assert rows.tolist() == sorted(rows.tolist())


def test_the_width_is_the_least_that_finds_enough(store: StoreFiles) -> None:
    graph = Graph(DIM, recall=0.9)
    graph.update(store.snapshot())
    assert [one.width for one in graph.tried] == list(WIDTHS[: len(graph.tried)])
    assert all(one.recall < 0.9 for one in graph.tried[:-1])
    assert graph.tried[-1].recall >= 0.9
    assert graph._graph.expansion_search == graph.tried[-1].width
    before = graph.tried
    store.add(entries(range(400, 410)), clustered(10, 3))
    graph.update(store.snapshot())
    assert graph.tried is before
    store.add(entries(range(410, 450)), clustered(40, 4))
    graph.update(store.snapshot())
    assert graph.tried is not before
    # what no width finds is looked for with the widest
    never = Graph(DIM, recall=1.1)
    never.update(store.snapshot())
    assert [one.width for one in never.tried] == list(WIDTHS)


def test_exact_search_answers_while_the_graph_is_built(
    store: StoreFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    building, built = threading.Event(), threading.Event()
    update, nearest = Graph.update, Graph.nearest
    asked: list[int] = []

    def slowly(graph: Graph, snapshot: Snapshot) -> int:
        building.set()
        assert built.wait(30)
        return update(graph, snapshot)

    def counted(graph: Graph, query: Rows, k: int, rows: Rows | None = None) -> Found:
        asked.append(k)
        return nearest(graph, query, k)

    engine = Engine(store, FakeEncoder(), approximate_from=100)
    graph = engine.approximate.proposer
    assert graph is not None
    exact = Engine(store, FakeEncoder()).answer(SearchRequest(text="blue"))
    monkeypatch.setattr(Graph, "update", slowly)
    engine.prepare()
    assert building.wait(30)
    for _ in range(2):
        assert engine.answer(SearchRequest(text="blue")) == exact
    built.set()
    graph.wait()
    monkeypatch.setattr(Graph, "nearest", counted)
    assert engine.answer(SearchRequest(text="blue")) == exact
    assert len(asked) == 1
    # the next snapshot: the first query has it taken over
    store.delete([exact.hits[0].id])
    assert [hit.id for hit in engine.answer(SearchRequest(text="blue", k=5)).hits] == [
        hit.id for hit in exact.hits[1:6]
    ]
    graph.wait()
    engine.answer(SearchRequest(text="blue"))
    assert len(asked) > 1


def test_an_error_of_the_background_is_told(store: StoreFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(graph: Graph, snapshot: Snapshot) -> int:
        raise MemoryError("too large")

    monkeypatch.setattr(Graph, "update", fails)
    engine = Engine(store, FakeEncoder(), approximate_from=100)
    engine.prepare()
    assert engine.approximate.proposer is not None
    with pytest.raises(MemoryError):
        engine.approximate.proposer.wait()
    with pytest.raises(MemoryError):
        engine.answer(SearchRequest(text="blue"))
    # memory may be free again: the next query has the graph built, and is answered meanwhile
    monkeypatch.undo()
    assert engine.answer(SearchRequest(text="blue")) == Engine(store, FakeEncoder()).answer(
        SearchRequest(text="blue")
    )
    engine.approximate.proposer.wait()
    assert engine.approximate.proposer.proposed(store.snapshot(), store.snapshot().matrix[0], 1) is not None


def test_the_process_ends_while_the_graph_is_built(tmp_path: Path) -> None:
    """It aborted: Python ended the thread inside of usearch."""
    encoder = FakeEncoder()
    store = StoreFiles.create(tmp_path / "store", fingerprint=encoder.fingerprint, dim=DIM, run="run")
    store.add(entries(range(20_000)), clustered(20_000, 0))
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from limner.search.graph import Graph\n"
        "from limner.store.files import StoreFiles\n"
        "files = StoreFiles.open(Path(sys.argv[1]))\n"
        "graph = Graph(files.dim)\n"
        "graph.follow(files.snapshot())\n"
        "time.sleep(0.3)\n"
        "assert not graph.tried\n"
    )
    command = [sys.executable, "-c", script, os.fspath(tmp_path / "store")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=Path(__file__).parents[2])
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_store_that_is_closed_makes_no_graph_to_its_end(
    store: StoreFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    building = threading.Event()
    update = Graph.update

    def slowly(graph: Graph, snapshot: Snapshot) -> int:
        building.set()
        until = time.monotonic() + 10
        while not graph._stopped and time.monotonic() < until:
            time.sleep(0.01)
        return update(graph, snapshot)

    monkeypatch.setattr(Graph, "update", slowly)
    engine = Engine(store, FakeEncoder(), approximate_from=100)
    engine.prepare()
    graph = engine.approximate.proposer
    assert graph is not None
    assert building.wait(30)
    Store(engine).close()
    graph.wait()
    assert graph.tried == []
    assert engine.approximate.proposer is None
    # a later call makes another one
    monkeypatch.undo()
    engine.prepare()
    assert engine.approximate.proposer is not None
    engine.approximate.proposer.wait()
    assert engine.approximate.proposer.tried
