"""Parts of a list: put together they are the whole ranking, with marks, conditions, groups and a reranker, too."""

from pathlib import Path
from typing import Any

import pytest

from limner.errors import SettingsError
from limner.evaluation.calibration import Calibration
from limner.requests import SearchRequest
from limner.search.engine import Engine
from limner.search.index import index_pictures
from limner.search.store import Store
from limner.store.files import StoreFiles
from limner.store.sqlite_rows import SqliteRows
from limner.wire import Grouping, Hit
from tests.search.fake import DIM, FakeEncoder, calibration, draw

COUNT = 23
TEXT = "a red coat"


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    """A store of 23 pictures, two of each colour but for one, in three cameras."""
    encoder = FakeEncoder()
    pictures = [draw(tmp_path / f"{number:02}.png", number // 2) for number in range(COUNT)]
    for picture in pictures[1::2]:
        # the same to look at, in other bytes
        picture.write_bytes(picture.read_bytes() + b"\0")
    files = StoreFiles.create(tmp_path / "store", fingerprint=encoder.fingerprint, dim=DIM, run="run")
    facts = {
        str(path): {"camera": number % 3, "identity": f"id-{number // 4}"}
        for number, path in enumerate(pictures)
    }
    index_pictures(encoder, files, pictures, metadata=facts)
    return Engine(files, encoder)


def parts(store: Store, size: int, **query: Any) -> list[Hit]:
    """The hits of all parts of a list, one behind the other."""
    hits: list[Hit] = []
    while found := store.search(TEXT, k=size, offset=len(hits), **query).hits:
        hits += found
    return hits


@pytest.mark.parametrize("size", [1, 4, 7, 30])
@pytest.mark.parametrize("group", [None, "identity", "near"])
def test_parts_are_the_whole_list(engine: Engine, size: int, group: Grouping | None) -> None:
    store = Store(engine)
    marks = {
        hit.id: name for hit, name in zip(store.search(TEXT, k=3), ("right", "wrong", "maybe"), strict=True)
    }
    for query in ({}, {"where": "camera=1|2"}, {"marks": marks}, {"marks": marks, "where": "camera!=0"}):
        whole = store.search(TEXT, k=COUNT, group=group, **query)
        found = parts(store, size, group=group, **query)
        assert found == list(whole.hits)
        assert [hit.rank for hit in found] == list(range(1, len(found) + 1))


def test_a_part_says_of_the_search_what_the_first_one_says(engine: Engine) -> None:
    fitted = Calibration(of_score=40, of_lead=5, offset=-20, floor=-0.5, right=9, wrong=9)
    engine.calibration = calibration(embedding=fitted)
    first, later = (engine.answer(SearchRequest(text=TEXT, k=5, offset=offset)) for offset in (None, 20))
    assert len(later.hits) == 3
    for name in ("total", "matching", "threshold", "good", "unknown", "snapshot"):
        assert getattr(later, name) == getattr(first, name)


def test_a_change_of_the_store_shows_in_the_name_of_its_state(engine: Engine) -> None:
    before = engine.answer(SearchRequest(text=TEXT, k=2))
    assert before.snapshot == engine.answer(SearchRequest(text="another coat", k=1, offset=3)).snapshot
    engine.files.delete([before.hits[0].id])
    assert engine.answer(SearchRequest(text=TEXT, k=2)).snapshot != before.snapshot


def test_behind_the_end_there_is_nothing(engine: Engine) -> None:
    answer = engine.answer(SearchRequest(text=TEXT, offset=COUNT + 5))
    assert (answer.hits, answer.matching) == ((), COUNT)
    with pytest.raises(SettingsError, match="offset: expected at least 0"):
        SearchRequest.parse({"text": TEXT, "offset": -1})


def test_a_part_is_of_the_exact_ranking_also_where_a_graph_answers(engine: Engine) -> None:
    graph = Engine(engine.files, engine.encoder, approximate_from=1)
    every = SearchRequest(text=TEXT, k=COUNT)
    snapshot = graph.files.snapshot()
    assert graph.approximate.answers(every, COUNT, snapshot)
    assert not graph.approximate.answers(SearchRequest(text=TEXT, k=COUNT, offset=0), COUNT, snapshot)


def test_two_readers_of_other_rows_never_name_one_state(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two servers of one store: the parts that a client gets of them in turn fit together by their name."""
    writer = StoreFiles.open(engine.files.folder)
    first, second = (Engine(StoreFiles.open(writer.folder), engine.encoder) for _ in range(2))
    query = SearchRequest(text=TEXT, k=3)
    before = first.answer(query)
    assert second.answer(query).snapshot == before.snapshot
    identity = SqliteRows.identity

    def late(rows: SqliteRows) -> tuple[object, ...]:
        # a commit between the look at the version and the reading
        monkeypatch.setattr(SqliteRows, "identity", identity)
        found = identity(rows)
        writer.delete([before.hits[1].id])
        return found

    writer.delete([before.hits[0].id])
    between = second.answer(query)
    monkeypatch.setattr(SqliteRows, "identity", late)
    after = first.answer(query)
    assert (between.total, after.total) == (COUNT - 1, COUNT - 2)
    assert len({before.snapshot, between.snapshot, after.snapshot}) == 3
    assert second.answer(query).snapshot == after.snapshot
