"""Marks move a query: the rule itself, and searches with marks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limner.errors import DataError, SettingsError, UnknownPictureError
from limner.judgements import MarkName
from limner.requests import SearchRequest
from limner.search.engine import Engine
from limner.search.feedback import RIGHT, WRONG, moved
from limner.search.store import Store
from tests.search.fake import unit
from tests.server.serving import toy_engine

TEXT = "a red coat"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(toy_engine(tmp_path))


def slow_twin(query: Any, right: Any, wrong: Any) -> list[float]:
    """The rule in loops: q + RIGHT · mean(right) - WRONG · mean(wrong), at unit length."""
    target = [float(one) for one in query]
    for rows, weight in ((right, RIGHT), (wrong, -WRONG)):
        for row in rows:
            for place, value in enumerate(row):
                target[place] += weight * float(value) / len(rows)
    length = sum(one * one for one in target) ** 0.5
    return [one / length for one in target]


@given(st.integers(0, 4), st.integers(0, 4), st.integers(0, 1000))
def test_it_is_rocchios_rule_in_any_order(right: int, wrong: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    query, rights, wrongs = (unit(rng.normal(size=(count, 6))) for count in (1, right, wrong))
    found = moved(query[0], rights, wrongs)
    np.testing.assert_allclose(found, slow_twin(query[0], rights, wrongs), rtol=0, atol=1e-6)
    np.testing.assert_allclose(found, moved(query[0], rights[::-1], wrongs[::-1]), rtol=0, atol=1e-7)
    assert np.linalg.norm(found) == pytest.approx(1, abs=1e-6)


def test_without_marks_the_query_stays() -> None:
    query = unit(np.arange(1, 7)[None].astype(float))[0]
    none = np.empty((0, 6), np.float32)
    np.testing.assert_allclose(moved(query, none, none), query, atol=1e-7)


def test_marks_that_cancel_the_query_are_refused() -> None:
    query = unit(np.arange(1, 7)[None].astype(float))[0]
    none = np.empty((0, 6), np.float32)
    with pytest.raises(DataError, match="cancel the query"):
        moved(query, -query[None] / np.float32(RIGHT), none)


def test_marks_by_their_names() -> None:
    asked = SearchRequest(text=TEXT, marks={"b": "right", "a": "right", "c": "wrong", "d": "maybe"})
    assert (asked.right, asked.wrong) == (("a", "b"), ("c",))
    with pytest.raises(SettingsError, match="expected 'right', 'wrong' or 'maybe' for 'a', got 'good'"):
        SearchRequest.parse({"text": TEXT, "marks": {"a": "good"}})


def test_a_search_with_marks_ranks_the_rest_by_the_moved_query(store: Store) -> None:
    plain = store.search(TEXT, k=8)
    first, second, *rest = [hit.id for hit in plain]
    found = store.search(TEXT, k=8, marks={first: "wrong", second: "right"})
    snapshot = store.files.snapshot()
    rows = {key: snapshot.matrix[snapshot.places[key]] for key in snapshot.keys}
    vector = slow_twin(store.engine.encoder.encode_queries(TEXT)[0], [rows[second]], [rows[first]])
    expected = sorted(rest, key=lambda key: -float(np.dot(vector, rows[key])))
    assert [hit.id for hit in found] == expected
    assert [hit.score for hit in found] == pytest.approx(
        [float(np.dot(vector, rows[key])) for key in expected]
    )
    assert (found.total, found.matching) == (8, 6)
    assert [hit.rank for hit in found] == [1, 2, 3, 4, 5, 6]


def test_maybe_changes_nothing(store: Store) -> None:
    plain = store.search(TEXT, k=8)
    assert store.search(TEXT, k=8, marks={plain[0].id: "maybe"}) == plain


def test_marks_beside_a_picture_of_the_store_and_conditions(store: Store) -> None:
    items = list(store)
    found = store.search(like=items[0].id, marks={items[1].id: "right"}, k=8, where="camera=1")
    assert {hit.id for hit in found} == {items[2].id, items[4].id, items[6].id}


def test_a_graph_is_not_asked_with_marks(tmp_path: Path) -> None:
    pytest.importorskip("usearch")
    exact = toy_engine(tmp_path)
    graph = Engine(exact.files, exact.encoder, approximate_from=1)
    key = exact.files.snapshot().keys[3]
    query = SearchRequest(text=TEXT, marks={key: "right"}, k=8)
    assert graph.answer(query) == exact.answer(query)
    assert key not in {hit.id for hit in graph.answer(query).hits}


def test_each_query_of_many_has_its_own_marks(store: Store) -> None:
    key, other = (item.id for item in list(store)[:2])
    both: tuple[tuple[str, MarkName], ...] = ((key, "right"), (other, "wrong"))
    many = store.search_many([TEXT, {"text": TEXT, "marks": {other: "wrong"}}], k=8, marks={key: "right"})
    assert many == [store.search(TEXT, k=8, marks={one: mark}) for one, mark in both]


def test_what_makes_no_sense_is_refused(store: Store) -> None:
    key = next(iter(store)).id
    with pytest.raises(UnknownPictureError, match="holds no picture"):
        store.search(TEXT, marks={"0" * 32: "right"})
    with pytest.raises(SettingsError, match="a reranker does not know them"):
        store.search(TEXT, marks={key: "right"}, rerank=5)
