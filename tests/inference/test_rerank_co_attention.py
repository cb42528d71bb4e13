"""What a model with a cross-encoder answers, alone and through `evaluate_run`."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import limner
from limner.data.records import Dataset
from limner.errors import DataError, SettingsError
from limner.evaluation.measures import RecallAt
from limner.evaluation.protocols import find_protocol
from limner.inference.evaluate_run import evaluate_run
from limner.inference.learnt_images import COMPARED
from limner.inference.rerank_co_attention import CoAttentionReranker
from limner.inference.trained import TrainedModel
from limner.types import Encoder, Reranker
from tests.toy import toy_dataset


@pytest.fixture(scope="module")
def run(reranking_run: Path) -> TrainedModel:
    return limner.load(reranking_run, stage="stage-2", device="cpu", precision="fp32")


@pytest.fixture(scope="module")
def test_split(toys: Dataset) -> Dataset:
    return toy_dataset(toys.records[0].image.parent).split("test")


def test_is_an_encoder_with_a_reranker(run: TrainedModel, reranking_run: Path, toy_run: Path) -> None:
    assert isinstance(run, Encoder)
    assert isinstance(run.reranker, Reranker)
    assert run.rerank == 5
    for other in (limner.load(reranking_run, stage="stage-1"), limner.load(toy_run)):
        assert other.reranker is None
        assert other.rerank == 0
        with pytest.raises(SettingsError, match="no reranker"):
            other.expect_reranker()


def test_logits_are_those_of_single_pairs(
    run: TrainedModel, test_split: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    reranker = run.expect_reranker()
    regions = run.encode_regions([record.image for record in test_split.records[:4]])
    said = ["a red bar", "blue", "on white ground, a bar in red", "yellow yellow"]
    numbers = run.tokenize(said).token_ids
    scorer = reranker.pair_scorer(np.zeros((4, 1), np.float32), np.zeros((4, 1), np.float32), regions, said)
    rng = np.random.default_rng(0)
    images, sentences = rng.integers(4, size=30), rng.integers(4, size=30)
    together = scorer(images, sentences)
    monkeypatch.setattr("limner.inference.rerank_co_attention._MEETINGS", 200)
    in_parts = scorer(images, sentences)
    np.testing.assert_allclose(in_parts, together, rtol=1e-4, atol=1e-5)
    assert run.model.cross_encoder is not None
    for image, sentence, logit in zip(images, sentences, together, strict=True):
        pixels = run.prepare_image(test_split.records[image].image)
        with torch.inference_mode():
            match = run.model.cross_encoder(
                torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None],
                torch.from_numpy(numbers[sentence][None]),
            )
        assert match.logits.item() == pytest.approx(
            logit, rel=2e-2, abs=2e-3
        )  # maps are kept in half precision


def test_scores_have_the_words_and_attention_that_sums_to_one(run: TrainedModel, test_split: Dataset) -> None:
    assert run.reranker is not None
    maps = run.encode_regions([record.image for record in test_split.records[:3]])
    assert maps.shape[1:] == run.reranker.region_shape
    found = run.reranker.rerank("A red, zebra bar", maps)
    assert found.words == ("a", "red", "bar")
    assert found.of_regions is not None
    assert found.of_words is not None
    assert found.of_regions.shape == (3, 3, *maps.shape[1:3])
    assert found.of_words.shape == (3, 2, 3)
    np.testing.assert_allclose(found.of_regions.sum((2, 3)), 1, atol=1e-3)
    np.testing.assert_allclose(found.of_words.sum(2), 1, atol=1e-5)


def test_evaluation_re_ranks_and_says_so(run: TrainedModel, test_split: Dataset) -> None:
    told: list[str] = []
    report = evaluate_run(run, test_split, "test", progress=lambda what, done, total: told.append(what))
    assert "first 5 re-ranked" in report.protocol
    assert report.provenance["reranked"] == 5
    # Pictures that were made seconds ago are read for the comparison with what was learnt, older ones are remembered.
    assert [what for what in dict.fromkeys(told) if what != COMPARED] == [
        "pictures",
        "sentences",
        "regions",
        "pairs",
    ]
    screened = evaluate_run(run, test_split, "test", rerank=0)
    assert "re-ranked" not in screened.protocol
    assert screened.provenance["reranked"] == 0
    for direction in ("image_to_text", "text_to_image"):
        # the first five stay the first five
        assert report.model_dump()[direction]["R@5"] == screened.model_dump()[direction]["R@5"]
    everything = evaluate_run(run, test_split, "test", rerank="all")
    assert everything.model_dump() != report.model_dump()
    classes = evaluate_run(run, test_split, "test", protocol=find_protocol("cub"))
    assert "each sentence of a class matched" in classes.protocol
    assert (
        classes.image_to_text
        == evaluate_run(run, test_split, "test", protocol=find_protocol("cub"), rerank=0).image_to_text
    )


def test_maps_beyond_half_precision_are_refused(run: TrainedModel) -> None:
    pixels = np.full((1, 32, 32, 3), 255, np.uint8)
    model = copy.deepcopy(run.model)
    assert model.cross_encoder is not None
    for parameter in model.cross_encoder.backbone.parameters():
        parameter.data.mul_(1e3)
    with pytest.raises(DataError, match="half precision"):
        CoAttentionReranker(model, run.tokenizer, run.images, "fp32").region_features(pixels)


def test_a_model_without_a_reranker_cannot_re_rank(toy_run: Path, test_split: Dataset) -> None:
    told: list[str] = []
    with pytest.raises(SettingsError, match="ranks alone"):
        evaluate_run(
            limner.load(toy_run),
            test_split,
            "test",
            [RecallAt(1)],
            rerank=20,
            progress=lambda what, done, total: told.append(what),
        )
    assert not told  # before anything is encoded


def test_validation_measured_what_evaluation_measures(
    run: TrainedModel, reranking_run: Path, toys: Dataset
) -> None:
    report = evaluate_run(run, toys.split("val"), "val").model_dump()
    rows = [
        json.loads(line)
        for line in (reranking_run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    best = next(
        row
        for row in rows
        if (row["stage"], row["epoch"]) == ("stage-2", run.description["selected"]["epoch"])
    )
    assert best["text_to_image"] == pytest.approx(report["text_to_image"], abs=0.01)
    assert best["image_to_text"] == pytest.approx(report["image_to_text"], abs=0.01)
