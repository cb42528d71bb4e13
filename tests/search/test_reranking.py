"""Search with a reranker: from the region features in the store, and never from the pictures."""

import json
import shutil
import time
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from PIL import Image

import limner
from limner.data.records import Dataset
from limner.data.transforms import crop_of
from limner.errors import DataError, SearchTimeoutError, SettingsError, StoreError
from limner.evaluation.calibration import Calibration
from limner.inference.calibration_file import RunCalibration
from limner.inference.trained import TrainedModel
from limner.requests import SearchRequest
from limner.search.engine import Engine
from limner.search.index import index_pictures
from limner.search.store import Store, open_store
from limner.store.contents import region_features
from limner.store.entry import StoredImage
from limner.store.files import StoreFiles, store_for
from limner.store.snapshot import Snapshot
from limner.wire import Answer
from tests.search.fake import FakeEncoder, calibration


@pytest.fixture(scope="module")
def run(reranking_run: Path) -> TrainedModel:
    return limner.load(reranking_run, stage="stage-2", device="cpu", precision="fp32")


@pytest.fixture(scope="module")
def engine(run: TrainedModel, toys: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    folder = tmp_path_factory.mktemp("reranking") / "store"
    store = store_for(run, run.path, folder)
    index_pictures(run, store, [record.image for record in toys.records[:12]], batch_size=5)
    return open_store(folder, run=run).engine


QUERY = "a red bar on white"


def test_the_first_are_ordered_by_confidence_and_the_rest_stay_below(
    engine: Engine, run: TrainedModel
) -> None:
    screened = Store(engine).search(QUERY, k=12, rerank=0)
    assert all(hit.confidence is None for hit in screened)
    hits = Store(engine).search(QUERY, k=12)
    assert [hit.rank for hit in hits] == list(range(1, 13))
    assert {hit.id for hit in hits[:5]} == {hit.id for hit in screened[:5]}
    assert [hit.id for hit in hits[5:]] == [hit.id for hit in screened[5:]]
    sure = [hit.confidence for hit in hits[:5]]
    assert sure == sorted(sure, reverse=True)  # type: ignore[type-var]
    region_features = run.encode_regions([str(hit.path) for hit in hits[:5]])
    assert run.reranker is not None
    logits = run.reranker.rerank(QUERY, region_features).logits
    np.testing.assert_allclose(sure, 1 / (1 + np.exp(-logits)), rtol=1e-3)  # type: ignore[arg-type]
    assert Store(engine).search(QUERY, k=3).hits == hits[:3]
    assert (
        len([hit for hit in Store(engine).search(QUERY, k=12, rerank="all") if hit.confidence is not None])
        == 12
    )


def test_re_ranked_hits_say_which_rank_they_had_before(
    run: TrainedModel, toys: Dataset, tmp_path: Path
) -> None:
    pictures = [record.image for record in toys.records[:6]]
    # each picture twice, at the same place of a batch: equal cosines, of which neither was before the other
    copies = [
        Path(shutil.copy(picture, tmp_path / f"{picture.stem}-copy{picture.suffix}")) for picture in pictures
    ]
    for copy in copies:
        copy.write_bytes(copy.read_bytes() + b"\0")
    files = store_for(run, run.path, tmp_path / "store")
    index_pictures(run, files, [*pictures, *copies], batch_size=6)
    store = open_store(tmp_path / "store", run=run)
    screened = store.search(QUERY, k=12, rerank=0)
    assert {hit.rank_before for hit in screened} == {None}
    better = {hit.id: sum(other.score > hit.score for other in screened) for hit in screened}
    hits = store.search(QUERY, k=3, rerank=8)
    assert [hit.rank_before for hit in hits] == [1 + better[hit.id] for hit in hits]
    every = store.search(QUERY, k=12, rerank=8)
    assert sorted(hit.rank_before for hit in every[:8] if hit.rank_before) == [1, 1, 3, 3, 5, 5, 7, 7]
    # what no reranker has ordered stands where it stood
    assert {hit.rank_before for hit in every[8:]} == {None}
    assert "rank_before" not in every[8].model_dump(mode="json")
    # ranks of pictures say nothing beside those of groups
    assert {hit.rank_before for hit in store.search(QUERY, k=4, rerank=8, group="near")} == {None}


def test_one_batched_forward_and_no_picture_is_opened(
    engine: Engine, run: TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run.model.cross_encoder is not None
    calls: list[int] = []
    hook = run.model.cross_encoder.co_attention.register_forward_hook(
        lambda module, given, found: calls.append(len(given[0]))
    )
    monkeypatch.setattr(
        "limner.inference.encoder_base.load", lambda *arguments: pytest.fail("a picture was opened")
    )
    Store(engine).search(QUERY, k=3)
    hook.remove()
    assert calls == [5]


def test_many_are_matched_in_parts(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    together = Store(engine).search(QUERY, k=12, rerank="all", explain=True)
    monkeypatch.setattr("limner.search.ranking._BLOCK", 5)
    monkeypatch.setattr("limner.inference.rerank_co_attention._MEETINGS", 60)
    by_key = Store(engine).search(QUERY, k=11, rerank=11)
    monkeypatch.setattr("limner.store.sqlite_file.AT_ONCE", 2)
    apart = Store(engine).search(QUERY, k=12, rerank="all", explain=True)
    ids = {hit.id for hit in by_key}
    assert [hit.id for hit in by_key] == [hit.id for hit in apart if hit.id in ids]
    assert [hit.id for hit in apart] == [hit.id for hit in together]
    for one, other in zip(apart, together, strict=True):
        assert one.confidence == pytest.approx(other.confidence, rel=1e-4)
        assert one.attention is not None
        assert other.attention is not None
        np.testing.assert_allclose(one.attention.of_regions, other.attention.of_regions, rtol=1e-4)  # type: ignore[arg-type]


def test_a_sentence_without_a_known_word_has_no_attention(run: TrainedModel, engine: Engine) -> None:
    assert run.reranker is not None
    found = run.reranker.rerank(
        "zebra", region_features(engine.files, [Store(engine).search(QUERY, k=1)[0].id])
    )
    assert found.words == ()
    assert found.of_regions is not None
    assert found.of_regions.shape[:2] == (1, 0)


def test_a_store_without_maps_is_named(run: TrainedModel, tmp_path: Path) -> None:
    store = StoreFiles.create(tmp_path / "store", fingerprint=run.fingerprint, dim=run.dim, run="run")
    with pytest.raises(SettingsError, match="keeps no region features"):
        Store(Engine(store, run)).search(QUERY, rerank=3)


def test_attention_comes_back(engine: Engine, run: TrainedModel) -> None:
    hits = Store(engine).search(QUERY, k=12, explain=True)
    attention = hits[0].attention
    assert attention is not None
    assert attention.words == ("a", "red", "bar", "on", "white")
    plain = json.loads(json.dumps(hits[0].model_dump(mode="json")))["attention"]
    assert np.asarray(plain["of_regions"]).shape == (5, *engine.files.region_shape[:2])  # type: ignore[index]
    assert np.asarray(plain["of_words"]).shape == (2, 5)
    with Image.open(str(hits[0].path)) as picture:
        assert tuple(plain["crop"]) == attention.crop == crop_of(*picture.size, run.images)
    explained = engine.explain(QUERY, hits[0].id).attention
    assert explained is not None
    assert explained.crop == attention.crop
    assert hits[6].attention is None
    assert "attention" not in Store(engine).search(QUERY, k=1)[0].model_dump(mode="json")


def test_maps_survive_a_change_of_metadata(run: TrainedModel, toys: Dataset, tmp_path: Path) -> None:
    pictures = [record.image for record in toys.records[:3]]
    store = store_for(run, run.path, tmp_path / "store")
    index_pictures(run, store, pictures)
    ids = sorted(entry.id for entry in store.entries().values())
    before = region_features(store, ids)
    summary = index_pictures(run, store, pictures, metadata={str(pictures[0]): {"shelf": 3}})
    assert summary.updated == 1
    np.testing.assert_array_equal(region_features(store, ids), before)
    assert StoreFiles.open(tmp_path / "store").region_shape == store.region_shape


def test_re_ranking_stops_between_blocks(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("limner.search.ranking._BLOCK", 5)
    asked: list[float | None] = []

    def check(until: float | None) -> None:
        asked.append(until)
        if len(asked) == 3:
            raise SearchTimeoutError("too long")

    monkeypatch.setattr("limner.search.ranking.check_time", check)
    until = time.monotonic() + 60
    found = engine.answers([SearchRequest(text=QUERY, rerank="all")], [until])
    assert isinstance(found[0], SearchTimeoutError)
    assert asked == [until] * 3


def test_a_picture_that_is_deleted_meanwhile_is_left_out(
    run: TrainedModel, toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_for(run, run.path, tmp_path / "store")
    index_pictures(run, store, [record.image for record in toys.records[:5]])
    engine, snapshot = Engine(store, run), store.snapshot()
    stale = iter([snapshot])
    fresh = store.snapshot
    monkeypatch.setattr(store, "snapshot", lambda: next(stale, None) or fresh())
    store.delete([snapshot.keys[2]])
    hits = Store(engine).search(QUERY, k=5)
    assert {hit.id for hit in hits} == {*snapshot.keys} - {snapshot.keys[2]}


def test_pictures_that_are_deleted_one_after_the_other_meanwhile_are_left_out(
    run: TrainedModel, toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the store is out of date again when the region features are read."""
    store = store_for(run, run.path, tmp_path / "store")
    index_pictures(run, store, [record.image for record in toys.records[:6]])
    engine, keys, fresh = Engine(store, run), store.snapshot().keys, store.snapshot
    doomed = iter(keys[:3])

    def deleted_at_once() -> Snapshot:
        snapshot = fresh()
        store.delete([key for key in (next(doomed, None),) if key is not None])
        return snapshot

    monkeypatch.setattr(store, "snapshot", deleted_at_once)
    hits = Store(engine).search(QUERY, k=6)
    assert {hit.id for hit in hits} == {*keys[3:]}


def test_what_does_not_fit_is_refused(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="at least 0"):
        Store(engine).search(QUERY, k=3, rerank=-1)
    with pytest.raises(SettingsError, match="at least 1"):
        Store(engine).search(QUERY, k=3, rerank=0, explain=True)
    with pytest.raises(StoreError, match="does not hold"):
        region_features(engine.files, ["nothing"])
    entry = StoredImage("/nowhere.png", "0" * 64, 1, 1)
    vector = np.ones((1, engine.files.dim), np.float32)
    features = np.zeros((1, *engine.files.region_shape), np.float16)  # type: ignore[misc]
    for wrong in (None, features[:, :, :, 1:]):
        with pytest.raises(StoreError, match="expected region features of shape"):
            engine.files.add([entry], vector, wrong)
    with pytest.raises(DataError, match="NaN"):
        engine.files.add([entry], vector, features * np.float16("nan"))
    assert len(engine.files) == 12
    encoder = FakeEncoder()
    files = StoreFiles.create(tmp_path / "store", fingerprint=encoder.fingerprint, dim=12, run="run")
    plain = Store(Engine(files, encoder))
    for asked in ({"rerank": 20}, {"rerank": "all"}, {"explain": True}):
        with pytest.raises(SettingsError, match="has no reranker"):
            plain.search("a red coat", **asked)
    assert plain.search("a red coat", rerank=0).hits == ()
    with pytest.raises(StoreError, match="keeps no region features"):
        region_features(files, ["one"])


def calibrated_by(run: TrainedModel, reranked: int | Literal["all"]) -> RunCalibration:
    fitted = Calibration(of_score=1, of_lead=3, offset=-2, floor=-1, right=9, wrong=9)
    return calibration(run.fingerprint, reranked=reranked, reranker=fitted)


def test_a_probability_does_not_depend_on_how_many_are_ordered(engine: Engine, run: TrainedModel) -> None:
    calibrated = Engine(engine.files, run, calibrated_by(run, "all"))
    sure = [Store(calibrated).search(QUERY, k=1, rerank=rerank)[0] for rerank in range(1, 7)]
    alike = [hit.probability for hit in sure if hit.id == sure[-1].id]
    assert len(alike) > 1
    assert alike == pytest.approx([alike[0]] * len(alike))
    one = Store(calibrated).search(QUERY, k=12, rerank=1)
    assert [hit.confidence is None for hit in one] == [False] + [True] * 11
    assert one[1:] == Store(calibrated).search(QUERY, k=12, rerank=0)[1:]
    few = SearchRequest(text=QUERY, rerank=1, where=("path~*0*",))
    assert calibrated.answer(few).hits[0].probability is not None


def test_good_is_what_the_best_answer_says(engine: Engine, run: TrainedModel) -> None:
    unsure = Calibration(of_score=1, of_lead=3, offset=-50, floor=-1, right=9, wrong=9)
    certain = Calibration(of_score=2, of_lead=5, offset=50, floor=0.1, right=9, wrong=9)
    odd = calibrated_by(run, 5).model_copy(update={"reranker": unsure, "embedding": certain})
    found = Engine(engine.files, run, odd).answer(SearchRequest(text=QUERY, k=12))
    assert found.hits[-1].probability == pytest.approx(1)
    assert not found.good


@pytest.mark.parametrize(("useless", "used"), [("embedding", "reranker"), ("reranker", "embedding")])
def test_the_threshold_is_that_of_the_first_hits_kind_of_score(
    useless: Literal["embedding", "reranker"], used: str, engine: Engine, run: TrainedModel
) -> None:
    fitted = calibrated_by(run, 5).replace(unusable={useless: "only 9% of the right first hits reach 0.5"})
    calibrated = Store(Engine(engine.files, run, fitted))
    by = {"embedding": calibrated.search(QUERY, rerank=0), "reranker": calibrated.search(QUERY)}
    assert (by[useless].threshold, by[useless].good) == (None, None)
    assert by[used].threshold == 0.5
    assert by[used].good is not None


def test_probabilities_of_what_was_judged_and_of_the_rest(engine: Engine, run: TrainedModel) -> None:
    fitted = calibrated_by(run, 5)
    cosines, reranked = fitted.embedding, fitted.reranker
    assert reranked is not None
    hits = Store(Engine(engine.files, run, fitted)).search(QUERY, k=12)
    screened = np.array([hit.score for hit in Store(engine).search(QUERY, k=12, rerank=0)])
    sure = np.array([hit.confidence for hit in hits[:5]], np.float64)
    logits = np.log(sure / (1 - sure))
    expected = [
        *reranked.probability(logits, logits),
        *cosines.probability(np.array([hit.score for hit in hits[5:]]), screened),
    ]
    assert [hit.probability for hit in hits] == pytest.approx(expected, abs=1e-5)


def test_a_query_to_be_re_ranked_leaves_its_rest_to_the_caller(engine: Engine) -> None:
    queries = [
        SearchRequest(text=QUERY, k=6),
        SearchRequest(text=QUERY, k=6, rerank=0),
        SearchRequest(text=QUERY, rerank=2, like="0" * 32),
    ]
    first, plain, wrong = engine.begin(queries)
    assert callable(first)
    assert isinstance(plain, Answer)
    assert isinstance(wrong, Exception)
    again = first()
    assert isinstance(again, Answer)
    assert [again, plain] == engine.answers(queries)[:2]
    assert all(hit.confidence is not None for hit in again.hits[:5])
