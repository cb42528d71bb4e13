import shutil
from pathlib import Path

import numpy as np
import pytest

from limner.errors import DataError, SettingsError, StoreError
from limner.requests import SearchRequest
from limner.search.engine import Engine
from limner.search.index import index_pictures
from limner.search.sentences import Sentence, SentenceTable
from limner.search.store_info import store_info
from limner.store.files import StoreFiles
from tests.search.fake import DIM, FakeEncoder, draw

TEXTS = ["a red coat", "blue shoes", "a man with a bag", "grey"]


@pytest.fixture
def store(tmp_path: Path) -> StoreFiles:
    return StoreFiles.create(tmp_path / "store", fingerprint="a" * 64, dim=DIM, run="run")


def test_found_by_a_picture(store: StoreFiles, tmp_path: Path) -> None:
    encoder = FakeEncoder()
    picture = draw(tmp_path / "pictures" / "a.png", 1)
    table = SentenceTable(store)
    assert len(table) == 0
    assert Engine(store, encoder).sentences(SearchRequest(image=picture)) == []
    table.index(encoder, [Sentence(TEXTS[0], str(picture)), *map(Sentence, TEXTS[1:])])
    found = Engine(store, encoder).sentences(SearchRequest(image=picture, k=3))
    scores = encoder.encode_texts(TEXTS) @ encoder.encode_images([picture])[0]
    order = np.argsort(-scores)[:3]
    assert [hit.text for hit in found] == [TEXTS[place] for place in order]
    assert [hit.score for hit in found] == pytest.approx(scores[order].tolist(), abs=1e-6)
    assert [hit.rank for hit in found] == [1, 2, 3]
    assert {hit.path for hit in found} <= {None, picture}
    index_pictures(encoder, store, [picture])
    key = next(iter(store.entries().values())).id
    again = Engine(store, encoder).sentences(SearchRequest(like=key, k=3))
    # now that the store holds the picture, its sentence tells its key
    assert [hit.id for hit in found] == [None] * 3
    assert [hit.model_copy(update={"id": None}) for hit in again] == found
    assert [hit.id for hit in again] == [None if hit.path is None else key for hit in again]
    with pytest.raises(StoreError, match="holds no picture"):
        Engine(store, encoder).sentences(SearchRequest(like="nothing"))


def test_each_once(store: StoreFiles) -> None:
    encoder, table = FakeEncoder(), SentenceTable(store)
    seen: list[tuple[int, int]] = []
    first = table.index(
        encoder,
        [*map(Sentence, TEXTS), Sentence("grey"), Sentence(" ")],
        batch_size=3,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert (first.added, first.unchanged, first.unknown) == (4, 0, (" ",))
    assert seen == [(3, 4), (4, 4)]
    again = table.index(encoder, [Sentence("grey"), Sentence("new"), Sentence("grey", "/a.png")])
    assert (again.added, again.unchanged, len(table)) == (2, 1, 6)
    assert len(SentenceTable(StoreFiles.open(store.folder)).search(encoder.encode_texts(["new"])[0], 9)) == 6


def test_what_does_not_fit_is_refused(store: StoreFiles) -> None:
    table = SentenceTable(store)
    with pytest.raises(StoreError, match="built with model"):
        table.index(FakeEncoder("b" * 64), [Sentence("x")])
    with pytest.raises(SettingsError, match="batch size"):
        table.index(FakeEncoder(), [], batch_size=0)
    with pytest.raises(DataError, match="Unicode"):
        table.index(FakeEncoder(), [Sentence("\ud800")])
    with store.writing(), pytest.raises(StoreError, match="is being written"):
        SentenceTable(StoreFiles.open(store.folder)).index(FakeEncoder(), [Sentence("x")])


def test_sentences_go_with_their_picture(store: StoreFiles, tmp_path: Path) -> None:
    encoder, table = FakeEncoder(), SentenceTable(store)
    kept, gone = draw(tmp_path / "p" / "kept.png", 1), draw(tmp_path / "p" / "it's gone.png", 2)
    index_pictures(encoder, store, [kept, gone])
    table.index(encoder, [Sentence("red", str(gone)), Sentence("red", str(kept)), Sentence("grey")])
    assert store.delete([store.entries()[str(gone)].id]) == 1
    assert {hit.path for hit in table.search(encoder.encode_texts(["red"])[0], 9)} == {kept, None}
    assert store.delete(["nothing"]) == 0
    assert len(table) == 2


def test_sentences_of_a_picture_are_replaced(store: StoreFiles) -> None:
    encoder, table = FakeEncoder(), SentenceTable(store)
    table.index(
        encoder,
        [Sentence("red", "/a.png"), Sentence("blue", "/a.png"), Sentence("red", "/b.png"), Sentence("grey")],
    )
    again = table.index(encoder, [Sentence("red", "/a.png"), Sentence("green", "/a.png")])
    assert (again.added, again.unchanged, again.removed) == (1, 1, 1)
    found = {(hit.text, hit.path) for hit in table.search(encoder.encode_texts(["red"])[0], 9)}
    a, b = Path("/a.png"), Path("/b.png")
    assert found == {("red", a), ("green", a), ("red", b), ("grey", None)}


def test_equal_sentences_are_ordered_by_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    wide = StoreFiles.create(tmp_path / "wide", fingerprint="a" * 64, dim=515, run="run")
    encoder = FakeEncoder(dim=515)
    vector = rng.standard_normal(515).astype(np.float32)
    monkeypatch.setattr(encoder, "encode_texts", lambda texts: np.tile(vector, (len(texts), 1)))
    table = SentenceTable(wide)
    table.index(encoder, [Sentence("red", f"/{number:04}.png") for number in range(301)])
    for query in rng.standard_normal((6, 515)).astype(np.float32):
        hits = table.search(query, 301)
        assert len({hit.score for hit in hits}) == 1
        assert [str(hit.path) for hit in hits] == [f"/{number:04}.png" for number in range(301)]


def test_sentences_of_a_store_that_was_replaced(store: StoreFiles) -> None:
    encoder, reader = FakeEncoder(), SentenceTable(StoreFiles.open(store.folder))
    SentenceTable(store).index(encoder, [Sentence("red")])
    red = encoder.encode_texts(["red"])[0]
    assert [hit.text for hit in reader.search(red, 1)] == ["red"]
    shutil.rmtree(str(store.folder))
    new = StoreFiles.create(store.folder, fingerprint="a" * 64, dim=DIM, run="run")
    SentenceTable(new).index(encoder, [Sentence("blue")])
    assert [hit.text for hit in reader.search(red, 1)] == ["blue"]


def test_examples_are_a_stable_choice_of_the_stores_own_sentences(store: StoreFiles, tmp_path: Path) -> None:
    encoder, table = FakeEncoder(), SentenceTable(store)
    pictures = [draw(tmp_path / "pictures" / f"{seed}.png", seed) for seed in range(9)]
    index_pictures(encoder, store, pictures)
    engine = Engine(store, encoder)
    assert store_info(engine).examples == ()
    long = "a red coat " * 40
    # one sentence may fit every picture best: the next best ones stand beside it
    table.index(encoder, [Sentence(text, str(pictures[0])) for text in (*TEXTS, long)])
    chosen = store_info(engine).examples
    assert len(set(chosen)) == len(chosen) == 3
    assert set(chosen) <= set(TEXTS)
    assert store_info(Engine(StoreFiles.open(store.folder), FakeEncoder())).examples == chosen
    table.index(encoder, [Sentence(long, str(pictures[0]))])
    assert store_info(engine).examples == ()
