"""What a model of HGAN answers, alone and through `evaluate_run` and search."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

import limner
from limner.data.records import Dataset
from limner.evaluation.protocols import find_protocol
from limner.inference import rerank_levels as module
from limner.inference.evaluate_run import evaluate_run
from limner.inference.rerank_levels import LevelsReranker
from limner.inference.trained import TrainedModel
from limner.models.hgan import HGAN
from limner.models.levels import ScoreSettings
from limner.models.local_matching import LocalMatching
from limner.models.text_bert import BertSettings
from limner.search.index import index_pictures
from limner.search.store import open_store
from limner.store.files import store_for
from limner.training.loop import train
from limner.types import Encoder, Reranker, TokenBatch
from tests.toy import toy_hgan

SENTENCES = ("a red bar on white", "circle", "on grey ground, a square in blue", "", "of")


@pytest.fixture(scope="module")
def run(hgan_run: Path) -> TrainedModel:
    return limner.load(hgan_run, device="cpu", precision="fp32")


@pytest.fixture(scope="module")
def pictures(toys: Dataset) -> list[Path]:
    return [record.image for record in toys.records[:6]]


def reranker_of(run: TrainedModel) -> LevelsReranker:
    reranker = run.expect_reranker()
    assert isinstance(reranker, LevelsReranker)
    return reranker


def tokenized(run: TrainedModel, sentences: Sequence[str]) -> TokenBatch:
    return run.tokenize(sentences)


def test_is_an_encoder_with_a_reranker(run: TrainedModel) -> None:
    assert isinstance(run, Encoder)
    assert isinstance(run.reranker, Reranker)
    assert run.rerank == "all"


def test_blocks_of_all_pairs_are_single_pairs(
    run: TrainedModel, pictures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    reranker, model = reranker_of(run), run.model
    assert isinstance(model, HGAN)
    region_features, read = run.encode_regions(pictures), tokenized(run, SENTENCES)
    together = reranker.similarities(region_features, read)
    for name, size in {"_IMAGES": 2, "_SENTENCES": 3, "_HALVED": 4}.items():
        monkeypatch.setattr(module, name, size)
    np.testing.assert_allclose(reranker.similarities(region_features, read), together, rtol=1e-4, atol=1e-6)
    assert read.phrases is not None
    for row, picture in enumerate(pictures):
        pixels = torch.from_numpy(run.prepare_image(picture)[None].copy()).permute(0, 3, 1, 2)
        for column in range(len(SENTENCES)):
            numbers, phrases = (
                torch.from_numpy(part[column][None]) for part in (read.token_ids, read.phrases)
            )
            with torch.inference_mode():
                projected = (
                    model.project_pictures(model.read_pictures(pixels).regions),
                    model.project_sentences(model.read_sentences(numbers, phrases)[1]),
                )
                matches = model.match(*projected)
            levels = [match.similarity.item() for match in matches.values()]
            # without a noun phrase, words count for both
            alone = sum(levels) if read.phrases[column].any() else 2 * levels[0]
            # regions are kept in half precision
            assert together[row, column] == pytest.approx(alone, rel=5e-3)


def test_pairs_asked_for_singly_or_as_a_grid_score_the_same(
    run: TrainedModel, pictures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    reranker = reranker_of(run)
    images, texts = run.encode_images(pictures), run.encode_texts(SENTENCES, check=False)
    region_features, read = run.encode_regions(pictures), tokenized(run, SENTENCES)
    score = reranker.pair_scorer(images, texts, region_features, SENTENCES)
    whole = reranker.similarities(region_features, read) + images @ texts.T
    rows, columns = (part.ravel() for part in np.indices(whole.shape))
    np.testing.assert_allclose(score(rows, columns), whole.ravel(), rtol=1e-4)
    rng = np.random.default_rng(0)
    monkeypatch.setattr(module, "_HELD", 2)
    for side in (2, 5, 11):
        chosen = rng.permutation(len(rows))[:side]
        np.testing.assert_allclose(
            score(rows[chosen], columns[chosen]), whole[rows[chosen], columns[chosen]], rtol=1e-4
        )
    texts_of_one = np.array([3, 0]), np.array([4, 2])  # fewer pictures than sentences, and the reverse
    for images_of, sentences_of in (texts_of_one, (np.array([5, 0, 2, 4]), np.array([1, 3, 3, 1]))):
        np.testing.assert_allclose(score(images_of, sentences_of), whole[images_of, sentences_of], rtol=1e-4)


def test_evaluation_ranks_by_the_sum_of_the_levels(run: TrainedModel, toys: Dataset) -> None:
    split = toys.split("test")
    report = evaluate_run(run, split, "test")
    assert "all re-ranked" in report.model_dump()["protocol"]
    images = run.encode_images([record.image for record in split.records])
    sentences = [sentence for record in split.records for sentence in record.sentences]
    region_features, read = (
        run.encode_regions([record.image for record in split.records]),
        tokenized(run, sentences),
    )
    total = images @ run.encode_texts(sentences).T + reranker_of(run).similarities(region_features, read)
    own = [number for number, record in enumerate(split.records) for _ in record.sentences]
    first = np.mean([total[:, column].argmax() == image for column, image in enumerate(own)])
    assert report.text_to_image["R@1"] == pytest.approx(100 * first)
    alone = evaluate_run(run, split, "test", rerank=0)
    assert alone.model_dump()["protocol"] != report.model_dump()["protocol"]


def test_search_screens_by_the_sentence_and_scores_the_shortlist(
    run: TrainedModel, pictures: list[Path], tmp_path: Path
) -> None:
    store = store_for(run, run.path, tmp_path / "store")
    index_pictures(run, store, pictures, batch_size=4)
    assert store.region_shape == (2, 2, 32)
    opened = open_store(tmp_path / "store", run=run)
    for picture in pictures:
        assert picture.exists()
    hits = opened.search(SENTENCES[0], k=6, rerank=4, explain=True)
    screened = opened.search(SENTENCES[0], k=6, rerank=0)
    assert {hit.id for hit in hits[:4]} == {hit.id for hit in screened[:4]}
    region_features = run.encode_regions([Path(str(hit.path)) for hit in hits[:4]])
    totals = reranker_of(run).similarities(region_features, tokenized(run, SENTENCES[:1]))[:, 0]
    totals += [hit.score for hit in hits[:4]]
    assert totals.tolist() == sorted(totals, reverse=True)
    assert [hit.confidence for hit in hits[:4]] == pytest.approx((totals / 3).clip(0, 1), abs=1e-3)
    attention = hits[0].attention
    assert attention is not None
    assert attention.words == ("a", "red", "bar", "on", "white")
    assert attention.reader == "region"
    assert attention.of_regions is not None
    assert attention.of_words is not None
    of_regions, of_words = np.asarray(attention.of_regions), np.asarray(attention.of_words)
    assert of_regions.shape == (5, 2, 2)
    assert of_words.shape == (4, 5)
    assert of_words.sum(axis=1) == pytest.approx(np.ones(4), abs=1e-4)
    assert ((of_words > 0).sum(axis=1) == 4).all()
    assert ((of_regions > 0).sum(axis=(1, 2)) == 2).all()


def test_a_score_is_the_weighted_sum_and_a_confidence_the_weighted_mean(
    run: TrainedModel, pictures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    reranker, regions, read = reranker_of(run), run.encode_regions(pictures), tokenized(run, SENTENCES[:1])
    assert isinstance(run.model, HGAN)
    projected = reranker.project_pictures(regions), reranker.project_sentences(read)
    with torch.inference_mode():
        matches = run.model.eval().match(*projected)
    word, phrase = (matches[level].similarity[:, 0].numpy() for level in ("word", "phrase"))
    weights = ScoreSettings(sentence=0.5, word=2.0, phrase=0.25)
    monkeypatch.setattr(reranker, "settings", reranker.settings.replace(scores=weights))
    cosines = np.linspace(-1, 1, len(pictures), dtype=np.float32)
    scores = reranker.scores(cosines, reranker.similarities(regions, read)[:, 0])
    expected = 0.5 * cosines + 2 * word + 0.25 * phrase
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        reranker.confidences(scores), (expected / 2.75).clip(0, 1), rtol=1e-4, atol=1e-6
    )


def test_words_that_select_k1_regions_are_explained(
    run: TrainedModel, pictures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = run.model
    assert isinstance(model, HGAN)
    local = model.local["word"]
    assert isinstance(local, LocalMatching)
    monkeypatch.setattr(local, "settings", local.settings.replace(selects="words", k_items=3, k_regions=1))
    found = reranker_of(run).rerank(SENTENCES[0], run.encode_regions(pictures))
    assert found.of_regions is not None
    assert found.of_words is not None
    assert ((found.of_regions > 0).sum(axis=(2, 3)) == 3).all()
    assert ((found.of_words > 0).sum(axis=2) == 1).all()


def test_class_queries_are_scored_by_the_mean_over_their_sentences(run: TrainedModel, toys: Dataset) -> None:
    split = toys.split("test")
    report = evaluate_run(run, split, "test", protocol=find_protocol("cub"))
    assert "its mean score" in report.model_dump()["protocol"]
    images = run.encode_images([record.image for record in split.records])
    sentences = [sentence for record in split.records for sentence in record.sentences]
    region_features = run.encode_regions([record.image for record in split.records])
    total = images @ run.encode_texts(sentences).T + reranker_of(run).similarities(
        region_features, tokenized(run, sentences)
    )
    owners = np.array([number for number, record in enumerate(split.records) for _ in record.sentences])
    means = np.stack(
        [total[:, owners == number].mean(axis=1) for number in range(len(split.records))], axis=1
    )
    first = np.mean(means.argmax(axis=1) == np.arange(len(split.records)))  # each toy is a class
    assert report.image_to_text["R@1"] == pytest.approx(100 * first)


def test_a_run_with_a_pretrained_bert_needs_its_folder_no_more(toys: Dataset, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *["a", "red", "bar", "on", "circle", "zebra"],
        "##s",
    ]
    config = transformers.BertConfig(
        vocab_size=len(pieces),
        hidden_size=8,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=16,
    )
    transformers.BertModel(config).save_pretrained(tmp_path / "bert")
    numbered = {piece: number for number, piece in enumerate(pieces)}
    transformers.BertTokenizer(vocab=numbered).save_pretrained(tmp_path / "bert")
    recipe = toy_hgan()
    text = recipe.model.text.replace(bert=BertSettings(model=str(tmp_path / "bert")))
    (first, _) = recipe.stages
    recipe = recipe.replace(
        model=recipe.model.replace(text=text), stages=(first.replace(epochs=1, frozen=("backbone", "bert")),)
    )
    out = train(recipe, toys.split("train"), toys.split("val"), tmp_path / "run", cpu=True)
    there = limner.load(out, device="cpu", precision="fp32")
    asked = ["a zebra on a red bar"]
    before, fingerprint = there.encode_texts(asked), there.fingerprint
    shutil.rmtree(tmp_path / "bert")
    again = limner.load(out, device="cpu", precision="fp32")
    np.testing.assert_array_equal(again.encode_texts(asked), before)
    assert again.fingerprint == fingerprint
    assert "zebra" in again.tokenizer.entries  # which no training sentence has
    assert str(tmp_path / "bert") not in json.dumps(again.description["files"]["text"])
