"""A store is calibrated on its own images and sentences, as a split of the same would be, without encoding any."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import limner
from limner.data.records import Dataset
from limner.errors import CheckpointError, DataError, SettingsError, StoreError
from limner.inference.calibration import calibrate_run
from limner.inference.calibration_file import RunCalibration
from limner.inference.trained import TrainedModel
from limner.search import calibration
from limner.search.calibration import calibrate_store
from limner.search.index import index_pictures
from limner.search.index_dataset import index_dataset
from limner.search.sentences import Sentence, SentenceTable
from limner.store.calibration import write_store_calibration
from limner.store.files import StoreFiles, store_for
from limner.store.verify import verify
from tests.agreeing import agreeing, sharing


@pytest.fixture(scope="module")
def run(toy_run: Path) -> TrainedModel:
    # as one that does not say what it has learnt from: the pictures below are its training pictures
    return replace(limner.load(toy_run, device="cpu"), learnt={})


@pytest.fixture(scope="module")
def val(toys: Dataset, run: TrainedModel) -> Dataset:
    return agreeing(run, toys, "val")


def store_of(run: TrainedModel, dataset: Dataset, folder: Path) -> StoreFiles:
    store = store_for(run, run.path, folder)
    index_dataset(run, store, dataset)
    return store


def check_same(found: RunCalibration, expected: RunCalibration) -> None:
    """Equal but for the order of the sentences, which moves the last digits, and for their source."""
    for one, other in ((found.embedding, expected.embedding), (found.reranker, expected.reranker)):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert (one.right, one.wrong) == (other.right, other.wrong)
            assert one.of_lead == pytest.approx(other.of_lead, rel=1e-3)
            assert one.offset == pytest.approx(other.offset, rel=1e-3)
    for kind, worth in expected.reliability.items():
        assert found.reliability[kind].right == pytest.approx(worth.right)
    assert (found.images, found.sentences) == (expected.images, expected.sentences)
    assert (found.fingerprint, found.reranked) == (expected.fingerprint, expected.reranked)


def test_it_is_the_calibration_of_the_same_pictures_as_a_split(
    run: TrainedModel, val: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(run, val, tmp_path / "store")
    # a sentence without an image, and one of an image that the store does not hold, search for nothing
    SentenceTable(store).index(run, [Sentence("a red bar"), Sentence("a red bar", "/gone.png")])
    monkeypatch.setattr(TrainedModel, "encode_images", None)
    monkeypatch.setattr(TrainedModel, "encode_texts", None)
    found = calibrate_store(run, store)
    monkeypatch.undo()
    check_same(found.calibration, calibrate_run(run, val, "val"))
    assert (found.calibration.split, found.calibration.data, found.left_out) == (
        "store",
        str(tmp_path / "store"),
        0,
    )
    assert calibrate_store(run, store, threshold=0.0).calibration.unusable == {}
    # no first hit has a probability of 1
    assert calibrate_store(run, store, threshold=1.0).calibration.unusable == {
        "embedding": "only 0% of the right first hits reach 1"
    }


@pytest.mark.parametrize("system", ["cross", "hgan"])
def test_a_reranker_reads_the_stores_region_features(
    system: str, toys: Dataset, reranking_run: Path, hgan_run: Path, tmp_path: Path
) -> None:
    run = (
        limner.load(hgan_run, device="cpu")
        if system == "hgan"
        else limner.load(reranking_run, stage="stage-2", device="cpu")
    )
    run = replace(run, learnt={})  # as in `run` above
    val = agreeing(run, toys, "val")
    if len({record.group for record in val.records if record.sentences}) < 2:
        pytest.skip("the toy takes all sentences for those of one picture")
    store = store_of(run, val, tmp_path / "store")
    found = calibrate_store(run, store)
    check_same(found.calibration, calibrate_run(run, val, "val"))
    assert found.calibration.reranker is not None
    assert calibrate_store(run, store, rerank=0).calibration.reranker is None


def test_pictures_of_an_identity_are_right_and_others_only_themselves(
    run: TrainedModel, val: Dataset, tmp_path: Path
) -> None:
    pairs = tuple(replace(record, group=f"pair {place // 2}") for place, record in enumerate(val.records))
    shown = store_of(run, replace(val, records=pairs), tmp_path / "identities")
    check_same(
        calibrate_store(run, shown).calibration, calibrate_run(run, replace(val, records=pairs), "val")
    )
    alone = store_of(run, replace(val, records=pairs, group_kind="image"), tmp_path / "alone")
    check_same(calibrate_store(run, alone).calibration, calibrate_run(run, val, "val"))


def test_what_fits_is_asked_of_a_store_as_of_a_split(run: TrainedModel, val: Dataset, tmp_path: Path) -> None:
    shared = sharing(val)
    found = calibrate_store(run, store_of(run, shared, tmp_path / "store"), question="fits").calibration
    made = calibrate_run(run, shared, "val", question="fits")
    check_same(found, made)
    assert (found.question, found.images) == ("fits", made.images)


def test_sentences_of_training_and_test_pictures_take_no_part(
    run: TrainedModel, val: Dataset, tmp_path: Path
) -> None:
    silent = [place for place, one in enumerate(val.records) if not one.sentences]
    records = list(val.records)
    for place, split in zip(silent, ("train", "train", "test"), strict=False):
        records[place] = replace(records[place], sentences=("a red bar", f"a {split} set"), split=split)
    store = store_of(run, replace(val, records=tuple(records)), tmp_path / "store")
    found = calibrate_store(run, store)
    assert found.left_out == 6
    # all pictures are searched all the same
    assert found.calibration.images == 36
    check_same(found.calibration, calibrate_run(run, val, "val"))


def test_pictures_that_the_run_was_trained_on_take_no_part_whatever_their_split_says(
    run: TrainedModel, toys: Dataset, toy_run: Path, tmp_path: Path
) -> None:
    trained = {f"copy-{place}.png" for place, one in enumerate(toys.records) if one.split == "train"}
    copies = tuple(
        replace(record, image=Path(shutil.copy(record.image, tmp_path / f"copy-{place}.png")), split=None)
        for place, record in enumerate(toys.records)
    )
    snapshot = store_of(run, replace(toys, records=copies), tmp_path / "store").snapshot()
    names = [Path(path).name for path in snapshot.columns.paths]
    assert calibration._unseen(run, snapshot) == [True] * len(names)
    knows = limner.load(toy_run, device="cpu")
    assert calibration._unseen(knows, snapshot) == [name not in trained for name in names]


def test_of_many_sentences_some_are_drawn(
    run: TrainedModel, val: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(run, val, tmp_path / "store")
    monkeypatch.setattr("limner.search.calibration._MOST", 60)
    one, other = (calibrate_store(run, store).calibration for _ in range(2))
    assert one.sentences == 60
    assert one == other


def test_the_stores_own_goes_before_that_of_the_run(
    run: TrainedModel, val: Dataset, toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(run, val, tmp_path / "store")
    assert limner.open_store(tmp_path / "store", run=run).engine.calibration is None
    answer = limner.open_store(tmp_path / "store", run=run).search("a red bar")
    assert (answer.threshold, answer.good, answer[0].probability) == (None, None, None)
    of_run = calibrate_run(run, val, "val", threshold=0.3)
    of_store = calibrate_store(run, store, threshold=0.2).calibration
    monkeypatch.setattr("limner.store.calibration.load_calibration", lambda path, fingerprint: of_run)
    assert limner.open_store(tmp_path / "store", run=run).engine.calibration == of_run
    write_store_calibration(store, of_store)
    of_store = of_store.replace(store=store.manifest.id)
    assert limner.open_store(tmp_path / "store", run=run).engine.calibration == of_store
    assert limner.open_store(tmp_path / "store", run=run).search("a red bar")[0].probability is not None
    # of weights that are gone
    write_store_calibration(store, of_store.replace(fingerprint="xyz"))
    assert limner.open_store(tmp_path / "store", run=run).engine.calibration == of_run
    store.rows.set_text("calibration", "{")
    with pytest.raises(CheckpointError, match="damaged"):
        limner.open_store(tmp_path / "store", run=run)


def test_what_cannot_be_fitted_is_refused_in_one_line(
    run: TrainedModel, val: Dataset, toys: Dataset, tmp_path: Path
) -> None:
    store = store_for(run, run.path, tmp_path / "store")
    with pytest.raises(DataError, match="holds no sentence of its pictures"):
        calibrate_store(run, store)
    index_pictures(run, store, [record.image for record in toys.records])
    with pytest.raises(DataError, match="holds no sentence of its pictures"):
        calibrate_store(run, store)
    index_dataset(run, store, toys, split="train")
    with pytest.raises(DataError, match="of the splits train and test"):
        calibrate_store(run, store)
    for threshold in (-0.1, 1.1, float("nan")):
        with pytest.raises(SettingsError, match="expected a probability"):
            calibrate_store(run, store, threshold=threshold)
    with pytest.raises(SettingsError, match="has no reranker"):
        calibrate_store(run, store, rerank=3)
    other = StoreFiles.create(tmp_path / "other", fingerprint="b" * 64, dim=run.dim, run="run")
    with pytest.raises(StoreError, match="built with model"):
        calibrate_store(run, other)


def test_another_calibration_in_its_place_is_refused(run: TrainedModel, val: Dataset, tmp_path: Path) -> None:
    store, other = (store_of(run, val, tmp_path / name) for name in ("store", "other"))
    made = calibrate_store(run, store).calibration
    write_store_calibration(other, made.replace(threshold=0.1))

    def refused(text: str | None, reason: str) -> None:
        store.rows.set_text("calibration", text)
        with pytest.raises(CheckpointError, match=reason + ".*limner calibrate"):
            limner.open_store(tmp_path / "store", run=run)
        report = verify(store)
        assert (report.sound, list(report.found)) == (False, ["calibration"])

    refused(other.rows.text("calibration"), "the calibration of another store")
    refused("{", "damaged, not JSON")
    refused((other.rows.text("calibration") or "").replace('"threshold": 0.1', '"threshold": 0.2'), "damaged")
    write_store_calibration(store, made)
    assert verify(store).sound
