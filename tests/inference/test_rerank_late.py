"""What a pair with late interaction answers, alone and through `evaluate_run`, calibration and search."""

from pathlib import Path

import numpy as np
import pytest
import torch

import limner
from limner.data.records import Dataset
from limner.errors import SettingsError
from limner.evaluation.protocols import find_protocol
from limner.inference import rerank_late as module
from limner.inference.evaluate_run import evaluate_run
from limner.inference.import_model import import_model
from limner.inference.rerank_late import LateReranker
from limner.inference.trained import TrainedModel
from limner.models.late import LateSettings
from limner.models.pretrained import Pretrained
from limner.search.index import index_pictures
from limner.search.store import open_store
from limner.store.files import store_for
from limner.types import Encoder, Reranker
from tests import towers
from tests.reference.losses import maxsim

SENTENCES = ("a red bar on white", "circle", "on grey ground, a square in blue", "", "a")


@pytest.fixture(scope="module")
def run(late_run: Path) -> TrainedModel:
    return limner.load(late_run, device="cpu", precision="fp32")


@pytest.fixture(scope="module")
def pictures(toys: Dataset) -> list[Path]:
    return [record.image for record in toys.records[:6]]


def reranker_of(run: TrainedModel) -> LateReranker:
    reranker = run.expect_reranker()
    assert isinstance(reranker, LateReranker)
    return reranker


def slow_scores(run: TrainedModel, pictures: list[Path], sentences: tuple[str, ...]) -> np.ndarray:
    """The cosine of the wholes and half of MaxSim, pair by pair and without half precision."""
    model = run.model
    assert isinstance(model, Pretrained)
    assert model.late is not None
    found = run.encode_images(pictures) @ run.encode_texts(sentences, check=False).T
    token_ids = torch.from_numpy(run.tokenize(sentences).token_ids)
    for row, picture in enumerate(pictures):
        pixels = torch.from_numpy(run.prepare_image(picture)[None].copy()).permute(0, 3, 1, 2)
        with torch.inference_mode():
            regions = model.late.regions(model.backbone.forward_map(pixels))[0].flatten(0, 1)
            words = [model.late.words(model.text.token_features(ids[None]))[0] for ids in token_ids]
        for column, ids in enumerate(token_ids):
            found[row, column] += 0.5 * maxsim(regions.tolist(), words[column][ids != 0].tolist())
    return np.asarray(found)


def test_is_an_encoder_with_a_reranker_whose_regions_are_small(
    run: TrainedModel, pictures: list[Path]
) -> None:
    assert isinstance(run, Encoder)
    assert isinstance(run.reranker, Reranker)
    assert run.rerank == 4
    regions = run.encode_regions(pictures)
    # a map of 3 × 2, at most five regions
    assert regions.shape == (6, *reranker_of(run).region_shape) == (6, 2, 2, 8)
    assert regions.dtype == np.float16
    np.testing.assert_allclose(np.linalg.norm(regions.astype(np.float32), axis=3), 1, atol=2e-3)


def test_pairs_in_any_order_score_as_the_slow_twin(
    run: TrainedModel, pictures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    reranker, regions = reranker_of(run), run.encode_regions(pictures)
    images, texts = run.encode_images(pictures), run.encode_texts(SENTENCES, check=False)
    expected = slow_scores(run, pictures, SENTENCES)
    rows, columns = (part.ravel() for part in np.indices(expected.shape))
    score = reranker.pair_scorer(images, texts, regions, SENTENCES)
    found = score(rows, columns)
    assert np.abs(found - expected.ravel()).max() < 1e-2
    # an empty sentence has the cosine of the wholes alone
    np.testing.assert_allclose(found.reshape(expected.shape)[:, 3], images @ texts[3], atol=1e-6)
    monkeypatch.setattr(module, "_PAIRS", 7)
    order = np.random.default_rng(0).permutation(len(rows))
    np.testing.assert_allclose(score(rows[order], columns[order]), found[order], atol=1e-6)
    nobody = np.zeros(0, np.int64)
    assert score(nobody, nobody).shape == (0,)
    silent = reranker.pair_scorer(images, texts[[3]], regions, [""])
    np.testing.assert_allclose(silent(np.array([2]), np.array([0])), images[2] @ texts[3], atol=1e-6)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_one_sentence_scores_as_its_pairs_and_says_where_words_point(
    run: TrainedModel, pictures: list[Path], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reranker, regions = reranker_of(run), run.encode_regions(pictures)
    images, texts = run.encode_images(pictures), run.encode_texts([sentence], check=False)
    found = reranker.rerank(sentence, regions)
    pairs = np.arange(6), np.zeros(6, np.int64)
    expected = reranker.pair_scorer(images, texts, regions, [sentence])(*pairs)
    np.testing.assert_allclose(reranker.scores(images @ texts[0], found.logits), expected, atol=1e-6)
    assert found.words == tuple(sentence.replace(",", "").split())
    assert found.of_regions is not None
    assert found.of_regions.shape == (6, len(found.words), 2, 2)
    np.testing.assert_allclose(found.of_regions.sum(axis=(2, 3)), 1, atol=1e-5)
    monkeypatch.setattr(module, "_IMAGES", 4)
    again = reranker.rerank(sentence, regions)
    np.testing.assert_allclose(again.logits, found.logits, atol=1e-6)
    confidences = reranker.confidences(expected)
    assert ((confidences >= 0) & (confidences <= 1)).all()


def test_a_word_points_where_its_cosine_is_highest(run: TrainedModel, pictures: list[Path]) -> None:
    reranker, regions = reranker_of(run), run.encode_regions(pictures)
    model = run.model
    assert isinstance(model, Pretrained)
    assert model.late is not None
    read = run.tokenize(["circle"], words=True)
    assert read.words is not None
    tokens = read.words[0][0].tokens
    if len(tokens) == 1:
        with torch.inference_mode():
            states = model.text.token_features(torch.from_numpy(read.token_ids))
            word = model.late.words(states)[0, tokens.start].numpy()
        found = reranker.rerank("circle", regions).of_regions
        assert found is not None
        cosines = regions.astype(np.float32).reshape(6, 4, 8) @ word
        assert (found[:, 0].reshape(6, 4).argmax(axis=1) == cosines.argmax(axis=1)).all()


def test_evaluation_ranks_by_the_sum(run: TrainedModel, toys: Dataset) -> None:
    split = toys.split("test")
    report = evaluate_run(run, split, "test", rerank="all")
    assert "all re-ranked" in report.model_dump()["protocol"]
    pictures = [record.image for record in split.records]
    sentences = tuple(sentence for record in split.records for sentence in record.sentences)
    total = slow_scores(run, pictures, sentences)
    own = [number for number, record in enumerate(split.records) for _ in record.sentences]
    first = np.mean([total[:, column].argmax() == image for column, image in enumerate(own)])
    assert report.text_to_image["R@1"] == pytest.approx(100 * first)
    alone = evaluate_run(run, split, "test", rerank=0)
    assert alone.model_dump()["protocol"] != report.model_dump()["protocol"]
    by_class = evaluate_run(run, split, "test", protocol=find_protocol("cub"))
    assert "its mean score" in by_class.model_dump()["protocol"]


def test_validation_is_what_evaluation_measures(run: TrainedModel, toys: Dataset) -> None:
    measured = evaluate_run(run, toys.split("val"), "val").model_dump()
    selected = run.description["selected"]
    for direction in ("image_to_text", "text_to_image"):
        assert selected[direction]["R@1"] == pytest.approx(measured[direction]["R@1"])


def test_search_screens_by_the_sentence_and_scores_the_shortlist(
    run: TrainedModel, pictures: list[Path], tmp_path: Path
) -> None:
    store = store_for(run, run.path, tmp_path / "store")
    index_pictures(run, store, pictures, batch_size=4)
    assert store.region_shape == (2, 2, 8)
    opened = open_store(tmp_path / "store", run=run)
    hits = opened.search(SENTENCES[0], k=6, rerank=4, explain=True)
    screened = opened.search(SENTENCES[0], k=6, rerank=0)
    assert {hit.id for hit in hits[:4]} == {hit.id for hit in screened[:4]}
    expected = slow_scores(run, [Path(str(hit.path)) for hit in hits[:4]], SENTENCES[:1])[:, 0]
    assert (np.diff(expected) < 1e-2).all()
    assert [hit.confidence for hit in hits[:4]] == pytest.approx((expected / 1.5).clip(0, 1), abs=1e-2)
    attention = hits[0].attention
    assert attention is not None
    assert attention.words == ("a", "red", "bar", "on", "white")
    assert np.asarray(attention.of_regions).shape == (5, 2, 2)
    assert attention.of_words is None


def test_a_tower_keeps_at_most_as_many_regions_and_words_are_those_of_its_tokens(tmp_path: Path) -> None:
    """Above an imported pair: special tokens count in MaxSim, and are no words of the page."""
    pytest.importorskip("transformers")
    (tmp_path / "source").mkdir()
    towers.save_clip(tmp_path / "source")
    import_model(str(tmp_path / "source"), tmp_path / "run")
    run = limner.load(tmp_path / "run", device="cpu", precision="fp32")
    model = run.model
    assert isinstance(model, Pretrained)
    plain = run.model.settings
    model.grow(model.settings.replace(late=LateSettings(dim=6, regions=7)))
    assert model.settings.identity() != plain.identity()
    reranker = LateReranker(model, run.tokenizer, run.images, "fp32")
    pixels = np.random.default_rng(0).integers(0, 256, (2, *run.images.crop, 3), np.uint8)
    regions = reranker.region_features(pixels)
    assert regions.shape[1] * regions.shape[2] <= 7
    found = reranker.rerank("a dog, on grass", regions)
    assert found.words == ("a", "dog", "on", "grass")
    assert found.of_regions is not None
    assert np.isfinite(found.logits).all()


def test_a_network_without_it_is_refused(toy_run: Path) -> None:
    run = limner.load(toy_run, device="cpu")
    with pytest.raises(SettingsError, match="no late interaction"):
        LateReranker(run.model, run.tokenizer, run.images)
