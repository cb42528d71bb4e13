import numpy as np
import pytest
import torch

from limner.errors import DataError
from limner.evaluation.measures import RecallAt
from limner.evaluation.protocol import evaluate

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
