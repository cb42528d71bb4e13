"""What a description takes away or weighs moves the query: the rule itself, and searches with such words."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limner.client import Client
from limner.errors import DataError, SettingsError
from limner.requests import SearchRequest
from limner.search.engine import Engine
from limner.search.query_vectors import weighed
from limner.search.sentences import Sentence, SentenceTable
from limner.search.store import Store
from limner.server.app import create_app
from limner.wire import Answer
from tests.search.fake import calibration, unit
from tests.server.running import running
from tests.server.serving import toy_engine


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(toy_engine(tmp_path))


def slow_twin(query: Any, terms: Any) -> list[float]:
    """The rule in loops: q + Σ weight · term, at unit length."""
    target = [float(one) for one in query]
    for weight, row in terms:
        target = [one + weight * float(other) for one, other in zip(target, row, strict=True)]
    length = sum(one * one for one in target) ** 0.5
    return [one / length for one in target]


@given(st.lists(st.floats(-2, 5), max_size=8), st.integers(0, 1000))
def test_it_is_the_weighted_sum(weights: list[float], seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = unit(rng.normal(size=(1 + len(weights), 6)))
    terms = list(zip(weights, rows[1:], strict=True))
    np.testing.assert_allclose(weighed(rows[0], terms), slow_twin(rows[0], terms), rtol=0, atol=1e-5)


def test_terms_that_cancel_the_query_are_refused() -> None:
    query = unit(np.arange(1, 7)[None].astype(float))[0]
    with pytest.raises(DataError, match="cancels what is"):
        weighed(query, [(-1.0, query)])


@pytest.mark.parametrize(
    ("text", "wanted", "terms"),
    [
        ("a red coat without a bag", "a red coat", [(-0.5, "a bag")]),
        ('a red coat -bag -"blue coat"', "a red coat", [(-0.5, "bag"), (-0.5, "blue coat")]),
        ("2*red coat", "red coat", [(1.0, "red")]),
    ],
)
def test_pictures_are_ranked_by_the_moved_query(
    store: Store, text: str, wanted: str, terms: list[tuple[float, str]]
) -> None:
    encode = store.engine.encoder.encode_queries
    vector = slow_twin(encode(wanted)[0], [(weight, encode(term)[0]) for weight, term in terms])
    expected = store.files.snapshot().search(np.array(vector, np.float32), 8)
    for found in (store.search(text, k=8), store.search_many([text, "a man"], k=8)[0]):
        assert [hit.id for hit in found] == [hit.id for hit in expected]
        assert [hit.score for hit in found] == pytest.approx([hit.score for hit in expected], abs=1e-6)
        assert [(term.weight, term.text) for term in found.terms] == terms


def test_read_literally_it_is_one_sentence(store: Store) -> None:
    text = "a red coat without a bag"
    found = store.search(text, k=8, literal=True)
    assert not found.terms
    expected = store.files.snapshot().search(store.engine.encoder.encode_queries(text)[0], 8)
    assert [hit.id for hit in found] == [hit.id for hit in expected]


def test_a_term_without_a_known_word_fails_its_own_query_alone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = store.engine

    def check_query(sentence: str) -> None:
        if "xyzzy" in sentence:
            raise DataError(f"no word of {sentence!r} is known")

    monkeypatch.setattr(engine.encoder, "check_query", check_query)
    asked = [SearchRequest(text="a red coat -xyzzy", k=3), SearchRequest(text="a red coat", k=3)]
    wrong, right = engine.answers(asked)
    assert isinstance(wrong, DataError)
    assert isinstance(right, Answer)
    assert list(right) == list(engine.answer(asked[1]))


def test_sentences_are_searched_by_the_whole_text(store: Store) -> None:
    encoder, text = store.engine.encoder, "a red coat without a bag"
    SentenceTable(store.files).index(encoder, [Sentence(text), Sentence("a red coat"), Sentence("a bag")])
    assert store.sentences(text=text)[0].score == pytest.approx(1, abs=1e-5)


def test_beside_a_picture_there_may_be_nothing_but_what_is_not_wanted(store: Store) -> None:
    key = store.search("a red coat", k=1)[0].id
    snapshot = store.files.snapshot()
    bag = store.engine.encoder.encode_queries("bag")[0]
    vector = slow_twin(snapshot.vectors[snapshot.expect_row(key)], [(-0.5, bag)])
    expected = [hit.id for hit in snapshot.search(np.array(vector, np.float32), 9) if hit.id != key]
    assert [hit.id for hit in store.search("-bag", like=key, k=8)] == expected[:8]
    with pytest.raises(SettingsError, match="says only what is not wanted"):
        store.search("-bag")


def test_nothing_is_called_probable_and_no_reranker_is_asked(store: Store) -> None:
    engine = store.engine
    sure = Store(Engine(engine.files, engine.encoder, calibration(engine.encoder.fingerprint, threshold=0.1)))
    assert sure.search("a red coat").good is not None
    found = sure.search("a red coat without a bag")
    assert found.good is None
    assert all(hit.probability is None for hit in found)
    with pytest.raises(SettingsError, match="cannot take 'a bag' by itself"):
        store.search("a red coat without a bag", rerank=5)


def test_an_explanation_is_of_what_is_wanted(store: Store) -> None:
    key = store.search("a red coat", k=1)[0].id
    with_term = store.explain("a red coat without a bag", key)
    assert with_term.score == store.explain("a red coat", key).score


def test_over_http_and_by_the_client(store: Store) -> None:
    text = "a red coat -bag"
    with running(create_app(store)) as url, Client(url) as client:
        for literal in (False, True):
            expected = store.search(text, k=5, literal=literal)
            found = client.search(text, k=5, literal=literal)
            assert [hit.id for hit in found] == [hit.id for hit in expected]
            assert found.terms == expected.terms
