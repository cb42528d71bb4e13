import numpy as np
import pytest
import torch

from limner.errors import DataError
from limner.evaluation.both_directions import evaluate, evaluate_scores
from limner.evaluation.curves import PrecisionRecall, PrecisionScope
from limner.evaluation.measures import MeanAveragePrecision, RecallAt
from limner.evaluation.names import AnyMeasure

# Three images on the axes; image 0 has two sentences, image 1 one, image 2 none; sentence 3 describes no
# image here.
IMAGES = np.eye(3, dtype=np.float32)
SENTENCES = np.array([[0.1, 0.9, 0], [1, 0, 0], [0, 0.5, 0.6], [0, 0, 1]], dtype=np.float32)
IMAGE_GROUPS, SENTENCE_GROUPS = [10, 11, 12], [10, 10, 11, 13]


def test_both_directions_by_hand() -> None:
    report = evaluate(
        IMAGES,
        torch.from_numpy(SENTENCES),
        IMAGE_GROUPS,
        torch.tensor(SENTENCE_GROUPS),
        protocol="p",
        split="test",
    )
    assert report.counts == {
        "images": 3,
        "sentences": 4,
        "groups": 4,
        "images_without_match": 1,
        "sentences_without_match": 1,
    }
    # image 0: sentences 1 and 0 stand first (ranks 1, 2); image 1: sentence 2 stands behind sentence 0
    assert report.image_to_text == {
        "R@1": 50.0,
        "R@5": 100.0,
        "R@10": 100.0,
        "MedR": 1.5,
        "MeanR": 1.5,
        "mAP": 75.0,
    }
    # sentence 0 → image 0 at rank 2, sentence 1 → 1, sentence 2 → image 1 at rank 2
    assert report.text_to_image["R@1"] == pytest.approx(100 / 3)
    assert report.text_to_image["MedR"] == 2
    assert report.text_to_image["mAP"] == pytest.approx(100 * (0.5 + 1 + 0.5) / 3)


def test_constant_embeddings_are_at_chance_or_worse() -> None:
    row = torch.nn.functional.normalize(torch.randn(33, generator=torch.Generator().manual_seed(0)), dim=0)
    groups = torch.arange(50)
    report = evaluate(
        row.repeat(50, 1), row.repeat(250, 1), groups, groups.repeat_interleave(5), protocol="p", split="test"
    )
    assert report.image_to_text["R@1"] == report.text_to_image["R@1"] == 0
    assert report.text_to_image["MedR"] == 50


def test_chosen_measures_and_provenance() -> None:
    report = evaluate(
        IMAGES,
        IMAGES,
        [0, 1, 2],
        [0, 1, 2],
        protocol="p",
        split="val",
        extra={"seed": 3},
        measures=[RecallAt(2)],
        block=1,
    )
    assert report.image_to_text == report.text_to_image == {"R@2": 100.0}
    assert report.provenance == {"seed": 3}


def test_sets_without_any_match_are_refused() -> None:
    with pytest.raises(DataError, match="no query has a true match"):
        evaluate(IMAGES, SENTENCES, [0, 1, 2], [3, 4, 5, 6], protocol="p", split="test")


def test_folds_are_the_mean_over_runs_of_images() -> None:
    rng = np.random.default_rng(0)
    images, sentences = rng.standard_normal((6, 4)), rng.standard_normal((12, 4))
    image_groups, sentence_groups = np.arange(6), rng.permutation(np.repeat(np.arange(6), 2))
    asked: list[AnyMeasure] = [RecallAt(1), MeanAveragePrecision(), PrecisionRecall(), PrecisionScope()]
    whole = evaluate(
        images, sentences, image_groups, sentence_groups, protocol="p", split="s", measures=asked, folds=3
    )
    parts = []
    for fold in range(3):
        mine = np.isin(sentence_groups, [2 * fold, 2 * fold + 1])
        rows = slice(2 * fold, 2 * fold + 2)
        parts.append(
            evaluate(
                *(images[rows], sentences[mine], image_groups[rows], sentence_groups[mine]),
                protocol="p",
                split="s",
                measures=asked,
            )
        )
    for name in ("R@1", "mAP"):
        assert whole.text_to_image[name] == pytest.approx(
            np.mean([part.text_to_image[name] for part in parts])
        )
    for direction in ("image_to_text", "text_to_image"):
        for name, curve in whole.curves[direction].items():
            folds = [part.curves[direction][name]["precision"] for part in parts]
            np.testing.assert_allclose(curve["precision"], np.mean(folds, axis=0))
    assert whole.counts == {
        "images": 6,
        "sentences": 12,
        "groups": 6,
        "images_without_match": 0,
        "sentences_without_match": 0,
        "folds": 3,
    }


@pytest.mark.parametrize("folds", [0, 4])
def test_folds_must_be_equal(folds: int) -> None:
    with pytest.raises(DataError, match=f"3 images cannot be cut into {folds} equal folds"):
        evaluate(IMAGES, SENTENCES, IMAGE_GROUPS, SENTENCE_GROUPS, protocol="p", split="s", folds=folds)


def test_a_group_in_two_folds_is_refused() -> None:
    with pytest.raises(DataError, match="group 1 has images in two folds"):
        evaluate(IMAGES, IMAGES, [1, 2, 1], [1, 2, 1], protocol="p", split="s", folds=3)


@pytest.mark.parametrize("folds", [1, 3])
def test_scores_give_what_their_embeddings_give(folds: int) -> None:
    rng = np.random.default_rng(1)
    images, sentences = rng.integers(-3, 4, (6, 3)).astype(float), rng.integers(-3, 4, (9, 3)).astype(float)
    groups = (np.arange(6), rng.permutation(np.concatenate([np.arange(6), [0, 2, 4]])))
    same = {"protocol": "p", "split": "s", "folds": folds}
    by_rows = evaluate(images, sentences, *groups, **same)  # type: ignore[arg-type]
    by_scores = evaluate_scores(images @ sentences.T, *groups, **same)  # type: ignore[arg-type]
    assert by_scores.model_dump() == by_rows.model_dump()


def test_sentences_of_no_image_are_counted_under_folds() -> None:
    rng = np.random.default_rng(0)
    images, sentences = rng.standard_normal((4, 3)), rng.standard_normal((6, 3))
    report = evaluate(images, sentences, range(4), [0, 1, 2, 3, 8, 9], protocol="p", split="s", folds=2)
    assert report.counts["sentences"] == 6
    assert report.counts["sentences_without_match"] == 2
    assert report.counts["groups"] == 6


def test_rows_and_groups_that_do_not_fit_are_refused() -> None:
    rows = np.eye(4)
    for images, groups, folds in ((rows, range(3), 1), (rows[:3], range(4), 2), (rows, range(6), 2)):
        with pytest.raises(DataError, match="image groups; give one code an item"):
            evaluate(images, rows, groups, range(4), protocol="p", split="s", folds=folds)
    with pytest.raises(DataError, match="4 sentences and 3 sentence groups"):
        evaluate_scores(rows, range(4), range(3), protocol="p", split="s")
    with pytest.raises(DataError, match="none of the 2 images of a fold has a sentence"):
        evaluate(rows, rows[:2], range(4), range(2), protocol="p", split="s", folds=2)
