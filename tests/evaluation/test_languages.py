"""The measures of each language against the results without the sentences of all others, and against loops."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import limner
from limner.data.records import Dataset
from limner.errors import DataError
from limner.evaluation.arrays import Results, read_results
from limner.evaluation.names import parse_measures
from limner.evaluation.protocols import PROTOCOLS
from limner.evaluation.reranking import PairReranking

IMAGES, DIM, EACH = 12, 5, 4
TAGS = ("de", "en", None, "zh-Hant")


def results(**changes: Any) -> Results:
    """Sentences in an order of their own; those of "zh-Hant" belong to the first half of the images."""
    rng = np.random.default_rng(3)
    order = rng.permutation(IMAGES * EACH)
    groups = np.arange(IMAGES).repeat(EACH)[order]
    tags = [TAGS[place % EACH] for place in order]
    given: dict[str, Any] = {
        "image_groups": np.arange(IMAGES),
        "sentence_groups": groups,
        "images": rng.standard_normal((IMAGES, DIM)).astype(np.float32),
        "sentences": rng.standard_normal((IMAGES * EACH, DIM)).astype(np.float32),
        "image_labels": rng.integers(0, 2, (IMAGES, 3)),
        "sentence_labels": rng.integers(0, 2, (IMAGES * EACH, 3)),
        "sentence_languages": [
            None if tag == "zh-Hant" and group >= IMAGES / 2 else tag
            for tag, group in zip(tags, groups, strict=True)
        ],
    }
    return Results(**{**given, **changes})


def only(made: Results, tag: str) -> Results:
    """The slow twin: all other sentences are gone before anything is ranked, and no language is known."""
    chosen = [place for place, own in enumerate(made.sentence_languages) if own == tag]
    return replace(made.with_sentences(np.array(chosen)), sentence_languages=())


@pytest.mark.parametrize("name", [name for name in PROTOCOLS if name != "mscoco-1k"])
def test_a_language_is_measured_as_if_the_others_were_not_there(name: str) -> None:
    made = results()
    if PROTOCOLS[name].texts == "class means":
        made = replace(made, image_groups=made.image_groups // 3, sentence_groups=made.sentence_groups // 3)
    report = PROTOCOLS[name].report(made)
    assert list(report.languages) == ["de", "en", "zh-Hant"]
    for tag, own in report.languages.items():
        alone = PROTOCOLS[name].report(only(made, tag))
        assert alone.languages == {}
        assert own.counts == alone.counts
        assert own.image_to_text == alone.image_to_text
        assert own.text_to_image == alone.text_to_image
        assert not own.problem
    alone = PROTOCOLS[name].report(replace(made, sentence_languages=()))
    assert report.replace(languages={}).model_dump() == alone.model_dump()


def test_recall_in_loops() -> None:
    made = results()
    own = PROTOCOLS["plain"].report(made).languages["zh-Hant"]
    assert made.images is not None
    assert made.sentences is not None
    scores = made.images @ made.sentences.T
    hits: dict[str, list[bool]] = {"image_to_text": [], "text_to_image": []}
    sentences = [place for place, tag in enumerate(made.sentence_languages) if tag == "zh-Hant"]
    for sentence in sentences:
        # All images are in the gallery, also those without a sentence of the language.
        best = max(range(IMAGES), key=lambda image: scores[image, sentence])
        hits["text_to_image"].append(best == made.sentence_groups[sentence])
    for image in range(IMAGES // 2):  # the others have no sentence of it, and are not scored
        best = max(sentences, key=lambda sentence: scores[image, sentence])
        hits["image_to_text"].append(made.sentence_groups[best] == image)
    assert own.counts["images_without_match"] == IMAGES // 2
    assert own.text_to_image["R@1"] == pytest.approx(100 * np.mean(hits["text_to_image"]))
    assert own.image_to_text["R@1"] == pytest.approx(100 * np.mean(hits["image_to_text"]))


def test_re_ranking_asks_for_the_sentences_of_the_language() -> None:
    made = results()
    logits = np.random.default_rng(4).standard_normal((IMAGES, IMAGES * EACH)).astype(np.float32)
    made = replace(made, reranking=PairReranking(lambda images, texts: logits[images, texts], 3))
    report = PROTOCOLS["plain"].report(made)
    for tag, own in report.languages.items():
        alone = PROTOCOLS["plain"].report(only(made, tag))
        assert (own.image_to_text, own.text_to_image) == (alone.image_to_text, alone.text_to_image)


def test_one_language_of_all_sentences_has_the_figures_of_the_whole() -> None:
    made = results(sentence_languages=["de"] * (IMAGES * EACH))
    report = PROTOCOLS["plain"].report(made)
    own = report.languages["de"]
    assert (own.image_to_text, own.text_to_image) == (report.image_to_text, report.text_to_image)
    assert own.counts == report.counts


def test_a_language_that_a_fold_lacks_does_not_take_the_others_along() -> None:
    made = results()
    report = PROTOCOLS["plain"].report(made, folds=2)
    assert report.languages["zh-Hant"].problem.startswith("none of the 6 images of a fold has a sentence")
    assert report.languages["zh-Hant"].counts == {"sentences": IMAGES // 2}
    assert report.languages["zh-Hant"].model_dump()["problem"]
    assert report.languages["de"].counts["folds"] == 2
    assert (
        report.languages["de"].image_to_text
        == PROTOCOLS["plain"].report(only(made, "de"), folds=2).image_to_text
    )


def test_curves_are_not_drawn_by_language() -> None:
    assert PROTOCOLS["plain"].report(results(), parse_measures("PR-curve")).languages == {}
    asked = PROTOCOLS["plain"].report(results(), parse_measures("R@1 PR-curve"))
    assert list(asked.languages["de"].text_to_image) == ["R@1"]


def test_languages_are_saved_with_embeddings(tmp_path: Path) -> None:
    made = results()
    made.save(tmp_path / "file.npz")
    again = read_results(tmp_path / "file.npz")
    assert [tag or None for tag in again.sentence_languages] == list(made.sentence_languages)
    assert PROTOCOLS["plain"].report(again).model_dump() == PROTOCOLS["plain"].report(made).model_dump()
    replace(made, sentence_languages=()).save(tmp_path / "file.npz")
    assert PROTOCOLS["plain"].report(read_results(tmp_path / "file.npz")).languages == {}
    np.savez(
        tmp_path / "other.npz",
        image_groups=made.image_groups,
        sentence_groups=made.sentence_groups,
        scores=np.ones((IMAGES, IMAGES * EACH)),
        sentence_languages=np.array(["de"]),
    )
    with pytest.raises(DataError, match=r"'sentence_languages' has shape \(1,\)"):
        read_results(tmp_path / "other.npz")


def test_of_a_run_and_of_arrays_with_a_dataset(toys: Dataset, toy_run: Path) -> None:
    records = tuple(
        replace(
            record, languages=tuple("de" if place % 2 else "en" for place, _ in enumerate(record.sentences))
        )
        for record in toys.records
    )
    spoken = replace(toys, records=records)
    run = limner.load(toy_run, device="cpu")
    report = limner.evaluate(run, spoken)
    assert set(report.languages) == {"de", "en"}
    for tag, own in report.languages.items():
        filtered = replace(
            toys,
            records=tuple(
                replace(
                    record,
                    sentences=tuple(
                        text
                        for text, said in zip(record.sentences, record.languages, strict=True)
                        if said == tag
                    ),
                    languages=(),
                )
                for record in records
            ),
        )
        alone = limner.evaluate(run, filtered)
        assert own.text_to_image == pytest.approx(alone.text_to_image)
        assert own.image_to_text == pytest.approx(alone.image_to_text)
        assert own.counts == alone.counts
    test = spoken.split("test")
    images = run.encode_images([record.image for record in test.records])
    sentences = run.encode_texts([text for record in test.records for text in record.sentences])
    by_arrays = limner.evaluate((images, sentences), spoken)
    assert by_arrays.languages["de"].text_to_image == pytest.approx(report.languages["de"].text_to_image)
