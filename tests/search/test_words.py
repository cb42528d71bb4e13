"""Words beside vectors: what names a picture stands in front, sentences help, and quoted words must occur."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from limner.errors import SettingsError
from limner.search.engine import Engine
from limner.search.index import index_pictures
from limner.search.sentences import Sentence, SentenceTable
from limner.search.store import Store
from limner.search.words import DEPTH, Words, reads_words
from limner.server.app import create_app
from limner.server.settings import ServerSettings
from limner.store.files import StoreFiles
from tests.search.fake import DIM, FakeEncoder, calibration, draw

NAMES = (
    "IMG_2043",
    "anna am strand",
    "rechnung-4711",
    "blue-lagoon",
    "Übung",
    "x1",
    "x2",
    "x3",
    "x4",
    "x5",
    "x6",
    "Große Straße 11",
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Twelve pictures with names, of which three show Anna Berg, one has a sentence and one a fact."""
    encoder = FakeEncoder()
    files = StoreFiles.create(tmp_path / "store", fingerprint=encoder.fingerprint, dim=DIM, run="run")
    pictures = [
        draw(tmp_path / "shots" / ("oslo" if n % 2 else "rom") / f"{name}.png", n)
        for n, name in enumerate(NAMES)
    ]
    facts: dict[str, Any] = {str(picture): {"identity": "Anna Berg"} for picture in pictures[5:8]}
    facts[str(pictures[8])] = {"title": "Sunset at Lake Bled", "keywords": ["boat", "夕阳"]}
    index_pictures(encoder, files, pictures, metadata=facts)
    opened = Store(Engine(files, encoder))
    SentenceTable(files).index(encoder, [Sentence("two men mend a fishing net", str(pictures[9]))])
    return opened


def names(found: Any) -> list[str]:
    return [Path(hit.name).stem for hit in found]


@pytest.mark.parametrize(
    ("text", "first", "where"),
    [
        ("img 2043", ["IMG_2043"], ("name",)),
        ("2043", ["IMG_2043"], ("name",)),
        ("the invoice 4711 of august", ["rechnung-4711"], ("name",)),
        ("ubung", ["Übung"], ("name",)),
        ("ÜBUNG", ["Übung"], ("name",)),
        ("u\u0308bung", ["Übung"], ("name",)),
        ("große straße", ["Große Straße 11"], ("name",)),
        ("anna berg", ["x1", "x2", "x3"], ("identity",)),
        ("sunset at lake bled", ["x4"], ("fact",)),
        ("夕阳", ["x4"], ("fact",)),
    ],
)
def test_what_words_name_stands_in_front(
    store: Store, text: str, first: list[str], where: tuple[str, ...]
) -> None:
    found = store.search(text, k=12, words=True)
    assert sorted(names(found)[: len(first)]) == first
    assert all(hit.words_in == where for hit in found[: len(first)])
    # among themselves, and behind them, in the order of the vectors
    plain = names(store.search(text, k=12, words=False))
    assert [name for name in plain if name in first] == names(found)[: len(first)]
    assert len(found) == 12


def test_a_word_of_many_names_nothing_that_only_part_of_them_is_asked_for(store: Store) -> None:
    """A shirt that is blue is no lagoon, and everything in a folder is not what was asked for."""
    text = "a woman in a blue shirt"
    plain = names(store.search(text, k=12, words=False))
    found = names(store.search(text, k=12, words=True))
    assert not Words(SentenceTable(store.files)).matched(text, (), store.files.snapshot()).named
    assert [one for one in found if one != "blue-lagoon"] == [one for one in plain if one != "blue-lagoon"]


def test_quoted_words_must_occur(store: Store) -> None:
    found = store.search('a boat "lake bled"', k=12, words=True)
    assert (names(found), found.matching) == (["x4"], 1)
    assert not store.search('a boat "bled lake"', words=True)
    assert names(store.search('"lake bled" a "boat"', words=True)) == ["x4"]
    assert not store.search('"lake bled" and a "fishing net"', words=True)
    assert names(store.search('men "fishing net"', words=True)) == ["x5"]
    assert len(store.search('a boat "lake bled"', k=12, words=False)) == 12


def test_it_is_reciprocal_rank_fusion(store: Store) -> None:
    """The rule in loops, for a text of which one sentence has words."""
    text = "some men with a net on a boat"
    plain = store.search(text, k=12, words=False)
    rank = {hit.id: place for place, hit in enumerate(plain)}
    words = Words(SentenceTable(store.files)).matched(text, (), store.files.snapshot())
    assert not words.named
    ids = store.files.snapshot().keys
    joined = {key: 1 / (61 + place) for key, place in rank.items()}
    # of "some", "men", "net" and "boat"; the fact "boat" is of another picture
    shares = {ids[row]: share for row, share in words.rows.items()}
    assert sorted(shares.values()) == [0.25, 0.5]
    for place, (key, share) in enumerate(shares.items()):
        joined[key] += 0.1 * share * share / (61 + place)
    expected = sorted(joined, key=lambda key: (-joined[key], rank[key]))
    assert [hit.id for hit in store.search(text, k=12, words=True)] == expected
    assert DEPTH >= 12


@pytest.mark.parametrize("text", ["anna berg in rom", "some men with a net on a boat"])
def test_parts_are_of_one_order(store: Store, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # as in a store that is larger than what one part ranks
    monkeypatch.setattr("limner.search.engine.AROUND", 1)
    whole = [hit.id for hit in store.search(text, k=12, words=True)]
    parts = [hit.id for start in range(12) for hit in store.search(text, k=1, offset=start, words=True)]
    assert parts == whole


def test_conditions_and_groups_are_of_one_order(store: Store) -> None:
    text = "anna berg in rom"
    whole = [hit.id for hit in store.search(text, k=12, words=True)]
    few = store.search(text, k=12, words=True, where="identity=Anna Berg")
    assert [hit.id for hit in few] == whole[:3]
    of_groups = store.search(text, k=12, words=True, group="identity")
    assert (of_groups[0].id, of_groups[0].group) == (whole[0], 3)


def test_the_index_follows_the_store(store: Store, tmp_path: Path) -> None:
    assert names(store.search("img 2043", k=1, words=True)) == ["IMG_2043"]
    new = draw(tmp_path / "shots" / "rom" / "img-2043-b.png", 99)
    index_pictures(store.engine.encoder, store.files, [new])
    assert set(names(store.search("img 2043", k=2, words=True))) == {"IMG_2043", "img-2043-b"}
    first = store.search("img 2043", k=2, words=True)
    store.delete(next(hit.id for hit in first if hit.name.startswith("IMG")))
    assert names(store.search("img 2043", k=1, words=True)) == ["img-2043-b"]
    index_pictures(store.engine.encoder, store.files, [new], metadata={str(new): {"title": "Tomorrow"}})
    assert store.search("tomorrow", k=1, words=True)[0].words_in == ("fact",)
    SentenceTable(store.files).index(store.engine.encoder, [Sentence("a zebra", str(new))])
    assert store.search("zebra", k=1, words=True)[0].words_in == ("sentence",)


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=30)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(TEXTS)
def test_any_text_may_be_asked(store: Store, text: str) -> None:
    if text.split():
        assert len(store.search(text, k=12, words=True, literal=True)) == 12


def test_a_server_without_paths_tells_nothing_of_folders(store: Store) -> None:
    """Nor would a client find out their names by asking for one word after the other."""
    found = {}
    for shown in (True, False):
        settings = ServerSettings(show_paths=shown)
        with TestClient(create_app(store, settings)) as client:
            for text in ("oslo", '"oslo"', "img 2043"):
                body = {"text": text, "k": 12, "words": True}
                found[shown, text] = client.post("/v1/search", json=body).json()["hits"]
    plain = [hit.id for hit in store.search("oslo", k=12, words=False)]
    assert [hit.get("words_in") for hit in found[True, "oslo"]] == [["folder"]] * 6 + [None] * 6
    assert [hit["id"] for hit in found[False, "oslo"]] == plain
    assert not any("words_in" in hit for hit in found[False, "oslo"])
    assert (len(found[True, '"oslo"']), len(found[False, '"oslo"'])) == (6, 0)
    assert found[False, "img 2043"][0]["words_in"] == ["name"]


def test_a_name_has_no_probability_that_is_called_good_or_not(store: Store) -> None:
    engine = Engine(store.files, store.engine.encoder, calibration(threshold=0.9999))
    sure = Store(engine)
    assert sure.search("img 2043", words=True).good is None
    assert sure.search("img 2043", words=False).good is False


def test_who_reads_words_unless_asked(store: Store) -> None:
    encoder: Any = FakeEncoder()
    for system, source, read in [
        ("pretrained", "hf:openai/clip-vit-base-patch16", True),
        ("pretrained", "flickr8k:DIR", True),
        ("pretrained", "cuhk-pedes:DIR", False),
        ("dual-path", "flickr8k:DIR", False),
    ]:
        encoder.description = {"model": {"system": system}, "data": {"source": source}}
        assert reads_words(encoder) is read
    assert not reads_words(FakeEncoder())
    assert reads_words(type("Export", (FakeEncoder,), {"description": {"system": "pretrained"}})())
    with pytest.raises(SettingsError, match="words: a reranker does not know them"):
        store.search("a man", words=True, rerank=3)
