from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from limner.data.records import Dataset
from limner.errors import CheckpointError, DataError, SettingsError
from limner.evaluation.calibration import FirstHits, Reliability, fit, measured
from limner.inference import calibration as module
from limner.inference.calibration import calibrate_run, check_calibration
from limner.inference.evaluate_run import evaluate_run
from limner.inference.load import load_model
from limner.inference.trained import TrainedModel
from tests.agreeing import agreeing, sharing


@pytest.fixture(scope="module")
def run(toy_run: Path) -> TrainedModel:
    # as one that does not say what it has learnt from: the pictures below are its training pictures
    return replace(load_model(toy_run, device="cpu"), learnt={})


@pytest.fixture(scope="module")
def cross(reranking_run: Path) -> TrainedModel:
    return replace(load_model(reranking_run, stage="stage-2", device="cpu"), learnt={})


@pytest.fixture(scope="module")
def val(toys: Dataset, run: TrainedModel) -> Dataset:
    return agreeing(run, toys, "val")


@pytest.fixture(scope="module")
def matched(toys: Dataset, cross: TrainedModel) -> Dataset:
    return agreeing(cross, toys, "val")


def _sentences(dataset: Dataset) -> list[str]:
    return [sentence for record in dataset.records for sentence in record.sentences]


def test_the_embedding_is_fitted_to_first_hits(toys: Dataset, run: TrainedModel, val: Dataset) -> None:
    seen: list[tuple[str, int, int]] = []
    made = calibrate_run(run, val, "val", progress=lambda *told: seen.append(told))
    assert made.embedding.right == 72  # each picture is the first for its sentences
    assert made.embedding.wrong == 72 * 9
    assert (made.images, made.sentences) == (len(val), 72) == (36, 72)
    assert (made.reranker, made.reranked, made.threshold) == (None, 0, 0.5)
    assert (made.fingerprint, made.split_fingerprint) == (run.fingerprint, val.fingerprint)
    assert (made.checkpoint, made.split, made.data) == (run.path.name, "val", val.source)
    assert {what for what, _, _ in seen} == {"pictures", "sentences"}
    report = evaluate_run(run, val, "val")
    assert 100 * made.reliability["embedding"].right == pytest.approx(report.text_to_image["R@1"])


def test_what_fits_is_right_too(run: TrainedModel, val: Dataset) -> None:
    """By the sentences that pictures share; pictures that no sentence describes take no part."""
    shared = sharing(val)
    plain, fits = (calibrate_run(run, shared, "val", question=one) for one in ("described", "fits"))
    described = sum(bool(one.sentences) for one in shared.records)
    assert (plain.question, fits.question) == ("described", "fits")
    assert (plain.images, fits.images) == (len(val), described)
    # the twin's sentences find the other one first
    assert plain.reliability["embedding"].right < fits.reliability["embedding"].right == 1
    # measured by the same question, on the same sentences
    assert check_calibration(run, shared, fits)["embedding"].right == 1


def test_another_split_is_measured(toys: Dataset, run: TrainedModel, val: Dataset) -> None:
    made, test = calibrate_run(run, val, "val"), toys.split("test")
    found = check_calibration(run, test, made)
    assert found.keys() == {"embedding"}
    report = evaluate_run(run, test, "test")
    assert 100 * found["embedding"].right == pytest.approx(report.text_to_image["R@1"])
    cosines = run.encode_texts(_sentences(test)) @ run.encode_images([one.image for one in test.records]).T
    rankings = -np.sort(-cosines)
    likely = [made.embedding.probability(row[:1], row)[0] for row in rankings]
    assert found["embedding"].probability == pytest.approx(np.mean(likely), rel=1e-4)
    with pytest.raises(
        CheckpointError, match=r"fitted for another model, x\.safetensors .*`limner calibrate`"
    ):
        check_calibration(run, test, made.replace(fingerprint="xyz", checkpoint="x.safetensors"))


def test_small_blocks_change_nothing(
    cross: TrainedModel, matched: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = calibrate_run(cross, matched, "val")
    monkeypatch.setattr(module, "_BLOCK", 200)
    monkeypatch.setattr(module, "_AT_ONCE", 17)
    parts = calibrate_run(cross, matched, "val")
    for one, other in ((whole.embedding, parts.embedding), (whole.reranker, parts.reranker)):
        assert one is not None
        assert other is not None
        assert one.of_lead == pytest.approx(other.of_lead, rel=0.01)
        assert (one.right, one.wrong) == (other.right, other.wrong)


@pytest.mark.parametrize("system", ["cross", "hgan"])
def test_the_reranker_is_fitted_to_what_the_engine_would_rank_by(
    system: str, toys: Dataset, reranking_run: Path, hgan_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered: list[np.ndarray] = []
    of = FirstHits.of

    def listening(scores: np.ndarray, right: np.ndarray, groups: np.ndarray) -> FirstHits:
        gathered.append(scores)
        return of(scores, right, groups)

    def measured_on_itself(hits: FirstHits, threshold: float) -> Reliability:
        return measured(hits, fit(hits), threshold)

    monkeypatch.setattr(FirstHits, "of", listening)
    # a toy may take all sentences for those of one picture, which cannot be cross-validated
    monkeypatch.setattr(module, "cross_validated", measured_on_itself)
    run = (
        load_model(hgan_run, device="cpu")
        if system == "hgan"
        else load_model(reranking_run, stage="stage-2", device="cpu")
    )
    run = replace(run, learnt={})  # as in `run` above
    count = 36 if system == "hgan" else 5
    val = agreeing(run, toys, "val")
    made = calibrate_run(run, val, "val")
    assert made.reranker is not None
    assert made.reranked == run.rerank
    assert made.reranker.right + made.reranker.wrong == 72 * min(count, 10)
    report = evaluate_run(run, val, "val")
    assert 100 * made.reliability["reranker"].right == pytest.approx(report.text_to_image["R@1"])
    similarities, scores = gathered
    reranker, regions = run.reranker, run.encode_regions([record.image for record in val.records])
    assert reranker is not None
    for row in (0, 50):
        first = np.argsort(-similarities[row])[:count]
        logits = reranker.rerank(_sentences(val)[row], regions[first]).logits
        expected = reranker.scores(similarities[row][first], logits)
        np.testing.assert_allclose(np.sort(scores[row]), np.sort(expected), rtol=1e-4, atol=1e-4)


def test_a_reranker_scores_no_more_pairs_than_it_may(
    cross: TrainedModel, matched: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST", 300)
    told: list[tuple[str, int, int]] = []
    made = calibrate_run(cross, matched, "val", progress=lambda *said: told.append(said))
    assert made.reranker is not None
    assert made.reranker.right + made.reranker.wrong == 300
    assert made.reliability["reranker"].queries == 60
    assert made.reliability["embedding"].queries == made.sentences == 72
    assert told[-1] == ("pairs", 300, 300)
    assert calibrate_run(cross, matched, "val", rerank=0).reranker is None


def test_pictures_match_by_label_where_the_protocol_says_so(run: TrainedModel, val: Dataset) -> None:
    labelled = tuple(replace(record, labels=(str(place % 3),)) for place, record in enumerate(val.records))
    made = calibrate_run(run, Dataset("mscoco-labels:x", "image", labelled), "val")
    places = [place for place, record in enumerate(val.records) for _ in record.sentences]
    cosines = run.encode_texts(_sentences(val)) @ run.encode_images([one.image for one in val.records]).T
    shown = np.argsort(-cosines)[:, :10]
    assert made.embedding.right == (shown % 3 == np.array(places)[:, None] % 3).sum()


def test_what_must_not_be_fitted_on_is_refused(toys: Dataset, run: TrainedModel) -> None:
    with pytest.raises(DataError, match="never fitted on test"):
        calibrate_run(run, toys.split("test"), "test")
    with pytest.raises(DataError, match="never fitted on test"):
        calibrate_run(run, toys, "val")
    with pytest.raises(DataError, match="what the run was trained on"):
        calibrate_run(run, toys.split("train"), "train")
    other = replace(toys.split("val"), source=f"{toys.source}#seed=1")
    with pytest.raises(DataError, match="whose splits are others"):
        calibrate_run(run, other, "val")
    silent = replace(
        toys.split("val"),
        records=tuple(replace(record, sentences=()) for record in toys.split("val").records),
    )
    with pytest.raises(DataError, match="no sentence to calibrate with"):
        calibrate_run(run, silent, "val")
    for threshold in (-0.1, 1.1, float("nan")):
        with pytest.raises(SettingsError, match="expected a probability"):
            calibrate_run(run, toys.split("val"), "val", threshold=threshold)
    with pytest.raises(SettingsError, match="has no reranker"):
        calibrate_run(run, toys.split("val"), "val", rerank=3)
    with pytest.raises(SettingsError, match="at least 0 or 'all'"):
        calibrate_run(run, toys.split("val"), "val", rerank=-1)
