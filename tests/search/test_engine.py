import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limner.conditions import Condition
from limner.errors import (
    DataError,
    ImageError,
    LimnerError,
    SearchTimeoutError,
    SettingsError,
    StoreError,
    UnknownPictureError,
)
from limner.requests import SearchRequest
from limner.search.engine import Engine
from limner.search.index import index_pictures
from limner.search.query_vectors import PreparedRequest
from limner.search.store import Store
from limner.store.contents import thumbnails
from limner.store.entry import StoredImage
from limner.store.files import StoreFiles
from limner.store.snapshot import Snapshot
from limner.store.vectors import Found, Vectors
from limner.wire import Answer, MetadataField
from tests.search.fake import DIM, FakeEncoder, Rows, calibration, draw, unit

COUNT = 12


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pictures")
    return [draw(folder / f"{seed:02d}.png", seed) for seed in range(COUNT)]


@pytest.fixture(scope="module")
def engine(pictures: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """Three pictures of each of four people, at four cameras, an hour apart."""
    encoder = FakeEncoder()
    folder = tmp_path_factory.mktemp("engine") / "store"
    store = StoreFiles.create(folder, fingerprint=encoder.fingerprint, dim=DIM, run="run")
    facts = {
        str(picture): {
            "identity": f"p{number % 4}",
            "camera": number // 3,
            "place": "gate" if number % 2 else "hall",
            "taken": f"2026-11-20T{number:02d}:00:00",
        }
        for number, picture in enumerate(pictures)
    }
    index_pictures(encoder, store, pictures, metadata=facts)
    return Engine(store, encoder)


def key(engine: Engine, picture: Path) -> str:
    return engine.files.entries()[str(picture)].id


def names(answer: Answer) -> list[str]:
    return [hit.name for hit in answer.hits]


def ranked(scores: Rows, rows: list[int] | None = None) -> list[str]:
    """The names of rows by their scores, by a sort."""
    rows = list(range(COUNT)) if rows is None else rows
    return [f"{row:02d}.png" for row in sorted(rows, key=lambda row: -scores[row])]


@pytest.fixture
def vectors(engine: Engine, pictures: list[Path]) -> Rows:
    return FakeEncoder().encode_images(pictures)


@pytest.fixture
def of_text() -> Rows:
    vector: Rows = FakeEncoder().encode_texts(["a red coat"])[0]
    return vector


def test_text_and_picture_queries(engine: Engine, pictures: list[Path], vectors: Rows, of_text: Rows) -> None:
    for picture in pictures:
        best = Store(engine).search(image=picture, k=1)[0]
        assert best.path == picture
        assert best.score == pytest.approx(1, abs=1e-6)
        again = engine.answer(SearchRequest(image=picture.read_bytes(), k=3))
        assert [hit.model_dump(mode="json") for hit in again.hits] == [
            hit.model_dump(mode="json") for hit in Store(engine).search(image=picture, k=3)
        ]
    found = engine.answer(SearchRequest(text="a red coat", k=COUNT))
    assert names(found) == ranked(vectors @ of_text)
    assert (found.total, found.matching, found.good, found.threshold) == (COUNT, COUNT, None, None)
    assert found[:3] == Store(engine).search("a red coat", k=3).hits
    with pytest.raises(ImageError):
        Store(engine).search(image=pictures[0].parent / "missing.png")
    with pytest.raises(ImageError):
        engine.answer(SearchRequest(image=b"no picture"))


def test_a_text_and_a_picture_together(
    engine: Engine, pictures: list[Path], vectors: Rows, of_text: Rows
) -> None:
    for weight in (0.0, 0.3, 0.5, 1.0):
        mean = unit((weight * of_text + (1 - weight) * vectors[4])[None])[0]
        found = engine.answer(
            SearchRequest(text="a red coat", image=pictures[4], text_weight=weight, k=COUNT)
        )
        assert names(found) == ranked(vectors @ mean)
        assert [hit.score for hit in found.hits] == pytest.approx(
            sorted(vectors @ mean, reverse=True), abs=1e-6
        )


def test_more_like_a_picture_of_the_store(engine: Engine, pictures: list[Path], vectors: Rows) -> None:
    found = engine.answer(SearchRequest(like=key(engine, pictures[5]), k=COUNT))
    assert names(found) == ranked(vectors @ vectors[5], [row for row in range(COUNT) if row != 5])
    with pytest.raises(UnknownPictureError, match="holds no picture"):
        engine.answer(SearchRequest(like="nothing"))


def test_conditions_and_times(engine: Engine, vectors: Rows, of_text: Rows) -> None:
    def asked(*where: str, **times: datetime) -> Answer:
        return engine.answer(SearchRequest(text="a red coat", k=COUNT, where=where, **times))  # type: ignore[arg-type]

    scores = vectors @ of_text
    assert names(asked("camera=2|3")) == ranked(scores, list(range(6, 12)))
    assert names(asked("camera>=2", "place=hall")) == ranked(scores, [6, 8, 10])
    assert names(asked("identity=p1")) == ranked(scores, [1, 5, 9])
    assert names(asked("path~*/0?.png", "taken>=2026-11-20T08")) == ranked(scores, [8, 9])
    noon = datetime(2026, 11, 20, 4)
    assert names(asked(after=noon, before=datetime(2026, 11, 20, 7))) == ranked(scores, [4, 5, 6])
    none = asked("camera=77")
    assert (none.hits, none.matching, none.total) == ((), 0, COUNT)


def test_a_hit_knows_when_it_was_taken(engine: Engine) -> None:
    hit = Store(engine).search("a red coat", k=1)[0]
    assert hit.taken == datetime(2026, 11, 20, int(Path(hit.name).stem))
    assert hit.model_dump(mode="json")["taken"] == f"2026-11-20T{Path(hit.name).stem}:00:00"
    entry = engine.files.entry(hit.id)
    assert entry is not None
    assert (entry.taken, entry.path) == (hit.taken, str(hit.path))
    assert engine.files.entry("nothing") is None
    small = thumbnails(engine.files, [hit.id, "nothing"])
    assert small[0] is not None
    assert small[0].startswith(b"\xff\xd8")
    assert small[1] is None


def test_grouped_by_identity(engine: Engine, vectors: Rows, of_text: Rows) -> None:
    found = engine.answer(SearchRequest(text="a red coat", k=3, group="identity"))
    order = ranked(vectors @ of_text)
    expected = list({int(name[:2]) % 4: name for name in reversed(order)}.values())
    assert sorted(names(found)) == sorted(sorted(expected, key=order.index)[:3])
    assert names(found) == sorted(expected, key=order.index)[:3]
    assert [hit.group for hit in found.hits] == [3, 3, 3]
    assert [hit.rank for hit in found.hits] == [1, 2, 3]
    few = engine.answer(SearchRequest(text="a red coat", where=("camera=0",), group="identity"))
    assert [hit.group for hit in few.hits] == [1, 1, 1]


def test_copies_are_one_group(pictures: list[Path], tmp_path: Path) -> None:
    encoder = FakeEncoder()
    copy = tmp_path / "copy.png"
    # what looks the same, in other bytes
    copy.write_bytes(pictures[3].read_bytes() + b"\0")
    store = StoreFiles.create(tmp_path / "store", fingerprint=encoder.fingerprint, dim=DIM, run="run")
    index_pictures(encoder, store, [pictures[3], copy])
    found = Engine(store, encoder).answer(SearchRequest(text="a red coat", group="near"))
    assert [(hit.group, hit.rank) for hit in found.hits] == [(2, 1)]


def test_several_at_once_are_the_same_as_each_alone(engine: Engine, pictures: list[Path]) -> None:
    queries = [
        SearchRequest(text="a red coat"),
        SearchRequest(text="   "),
        SearchRequest(image=pictures[1], k=2),
        SearchRequest(image=b"broken"),
        SearchRequest(text="blue", like=key(engine, pictures[2])),
        SearchRequest(like="nothing"),
        SearchRequest(text="grey shoes", rerank=3),
    ]
    for query, found in zip(queries, engine.answers(queries), strict=True):
        if isinstance(found, Exception):
            with pytest.raises(type(found)) as alone:
                engine.answer(query)
            assert str(alone.value) == str(found)
        else:
            assert names(found) == names(engine.answer(query))
    failed = [type(one) for one in engine.answers(queries) if isinstance(one, LimnerError)]
    assert failed == [DataError, ImageError, UnknownPictureError, SettingsError]
    assert engine.answers([]) == []


def test_one_product_for_many_gives_the_answers_of_each_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("limner.store.vectors.CODED_FROM", 1)
    encoder, rng = FakeEncoder(), np.random.default_rng(0)
    store = StoreFiles.create(tmp_path / "store", fingerprint=encoder.fingerprint, dim=DIM, run="run")
    entries = [StoredImage(f"/pictures/{number:04d}.jpg", "0" * 64, 1, 1) for number in range(400)]
    # ten copies of each, so that the paths decide
    store.add(entries, unit(rng.normal(size=(40, DIM)))[rng.integers(0, 40, 400)])
    engine = Engine(store, encoder)
    rows = engine.files.snapshot().matrix
    queries: list[SearchRequest] = [
        PreparedRequest(
            vector=rows[number] if number % 3 else unit(rng.normal(size=(1, DIM)))[0], k=1 + number % 20
        )
        for number in range(30)
    ]
    queries[3:3] = [
        SearchRequest(text="red", offset=7),
        SearchRequest(like=entries[5].id),
        SearchRequest(text="blue", group="near"),
    ]
    alone = [engine.answer(query) for query in queries]
    asked: list[int] = []
    first_of_each = Vectors.first_of_each

    def counted(self: Vectors, several: Rows, k: int) -> list[Found]:
        asked.append(len(several))
        return first_of_each(self, several, k)

    monkeypatch.setattr(Vectors, "first_of_each", counted)
    assert engine.answers(queries) == alone
    assert asked == [31]
    # whatever is wrong there, each is still answered
    monkeypatch.setattr(Vectors, "first_of_each", lambda *given: 1 / 0)
    assert engine.answers(queries) == alone


def test_a_query_whose_time_is_over_fails_alone(engine: Engine) -> None:
    queries = [SearchRequest(text="a red coat", where=("camera=1",))] * 3
    over, free, early = engine.answers(queries, [time.monotonic() - 1, None, time.monotonic() + 60])
    assert isinstance(over, SearchTimeoutError)
    assert "longer than it may" in str(over)
    assert isinstance(free, Answer)
    assert isinstance(early, Answer)
    snapshot = engine.files.snapshot()
    with pytest.raises(SearchTimeoutError):
        snapshot.meeting(queries[0].conditions, until=time.monotonic() - 1)


def test_a_bug_in_one_query_leaves_the_others_alone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    encode, meeting = engine.encoder.encode_queries, Snapshot.meeting

    def encoded(texts: list[str]) -> Rows:
        if "bug" in texts:
            raise OverflowError("in the encoder")
        return encode(texts)

    def met(self: Snapshot, conditions: tuple[Condition, ...], *limits: Any) -> Any:
        if conditions:
            raise KeyError("in a condition")
        return meeting(self, conditions, *limits)

    monkeypatch.setattr(engine.encoder, "encode_queries", encoded)
    monkeypatch.setattr(Snapshot, "meeting", met)
    odd = SearchRequest(text="red", where=("camera=1",))
    found = engine.answers(
        [SearchRequest(text="red"), SearchRequest(text="bug"), odd, SearchRequest(text="blue")]
    )
    assert [type(one) for one in found] == [Answer, OverflowError, KeyError, Answer]
    with pytest.raises(OverflowError):
        engine.answer(SearchRequest(text="bug"))


def test_a_picture_that_is_the_opposite_of_its_text_fails_alone(
    engine: Engine, pictures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    opposite = FakeEncoder().encode_texts(["a red coat"])
    monkeypatch.setattr(engine.encoder, "encode_pixels", lambda pixels: -opposite)
    both = SearchRequest(text="a red coat", image=pictures[0])
    first, second = engine.answers([both, SearchRequest(text="a red coat")])
    assert isinstance(first, DataError)
    assert isinstance(second, Answer)
    with pytest.raises(DataError, match="opposites"):
        engine.answer(both)


def test_what_each_word_adds(engine: Engine, pictures: list[Path]) -> None:
    picture = key(engine, pictures[7])
    found = engine.explain("a red coat", picture, method="leave-one-out")
    encoder = FakeEncoder()
    vector = encoder.encode_images([pictures[7]])[0]
    whole, *shorter = (
        float(vector @ row) for row in encoder.encode_texts(["a red coat", "red coat", "a coat", "a red"])
    )
    assert found.words == ("a", "red", "coat")
    assert found.weights == pytest.approx([whole - one for one in shorter], abs=1e-6)
    assert found.score == pytest.approx(whole, abs=1e-6)
    assert (found.attention, found.confidence) == (None, None)
    assert engine.explain("red", picture).weights is None
    with pytest.raises(UnknownPictureError, match="holds no picture"):
        engine.explain("red", "nothing")


def test_fields_of_the_metadata(engine: Engine, tmp_path: Path) -> None:
    assert engine.files.snapshot().metadata.fields() == [
        MetadataField(name="camera", values=("0", "1", "2", "3"), kind="number"),
        MetadataField(name="place", values=("gate", "hall"), kind="text"),
    ]
    encoder = FakeEncoder()
    store = StoreFiles.create(tmp_path / "store", fingerprint=encoder.fingerprint, dim=DIM, run="run")
    many = [draw(tmp_path / "many" / f"{seed}.png", seed) for seed in range(22)]
    facts = {str(path): {"number": path.stem, "tags": ["x", "y"], "odd": {"a": 1}} for path in many}
    index_pictures(encoder, store, many, metadata=facts)
    assert store.snapshot().metadata.fields() == [
        MetadataField(name="number", values=(), kind="number"),
        MetadataField(name="tags", values=("x", "y"), kind="text"),
    ]


def test_probabilities_of_a_calibrated_model(engine: Engine, pictures: list[Path]) -> None:
    calibrated = Engine(engine.files, engine.encoder, calibration(threshold=0.5))
    whole = Store(engine).search("a red coat", k=COUNT)
    scores = np.array([hit.score for hit in whole])
    expected = calibration(threshold=0.5).embedding.probability(scores, scores)
    for k in (1, 4, COUNT):
        found = calibrated.answer(SearchRequest(text="a red coat", k=k))
        assert [hit.probability for hit in found.hits] == pytest.approx(expected[:k].tolist(), abs=1e-6)
        assert (found.good, found.threshold) == (bool(expected[0] >= 0.5), 0.5)
    for threshold in (0.0, 1.0):
        always = Engine(engine.files, engine.encoder, calibration(threshold=threshold))
        assert always.answer(SearchRequest(text="a red coat")).good is (threshold == 0)
    few = calibrated.answer(SearchRequest(text="a red coat", where=("path~*/0[01].png",)))
    two = np.array([hit.score for hit in few.hits])
    again = calibration(threshold=0.5).embedding.probability(two, two)
    assert [hit.probability for hit in few.hits] == pytest.approx(again.tolist(), abs=1e-6)
    nothing = calibrated.answer(SearchRequest(text="a red coat", where=("camera=77",)))
    assert (nothing.good, nothing.hits) == (None, ())
    of_picture = calibrated.answer(SearchRequest(image=pictures[0]))
    assert of_picture.good is None
    assert all(hit.probability is None for hit in of_picture.hits)


def test_without_a_usable_threshold_nothing_is_called_good_or_not(engine: Engine) -> None:
    useless = calibration(threshold=1.0).replace(
        unusable={"embedding": "only 0% of the right first hits reach 1"}
    )
    found = Engine(engine.files, engine.encoder, useless).answer(SearchRequest(text="a red coat"))
    assert (found.good, found.threshold) == (None, None)
    # the probabilities are as right as before
    of_usable = Engine(engine.files, engine.encoder, calibration(threshold=1.0)).answer(
        SearchRequest(text="a red coat")
    )
    assert (of_usable.good, of_usable.threshold) == (False, 1.0)
    assert found.hits == of_usable.hits
    without = engine.answer(SearchRequest(text="a red coat"))
    assert (without.good, without.threshold) == (None, None)


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"text": "x", "k": 0},
        {"image": b"x", "like": "y"},
        {"text": "x", "text_weight": 1.5},
        {"text": "x", "rerank": -1},
        {"like": "y", "explain": True},
        {"image": b"y", "rerank": 5},
    ],
)
def test_queries_that_mean_nothing(asked: dict[str, object]) -> None:
    with pytest.raises(SettingsError):
        SearchRequest.parse(asked)


def test_another_model_is_refused(tmp_path: Path) -> None:
    store = StoreFiles.create(tmp_path / "store", fingerprint="b" * 64, dim=DIM, run="run")
    with pytest.raises(StoreError, match=r"b{12} .*a{12};"):
        Engine(store, FakeEncoder())
