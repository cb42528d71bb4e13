from typing import Any

import numpy as np
import pytest

from limner.data.readers import FORMATS
from limner.errors import DataError, SettingsError
from limner.evaluation.arrays import Results
from limner.evaluation.names import parse_measures
from limner.evaluation.protocols import PROTOCOLS, find_protocol, protocol_of

RNG = np.random.default_rng(0)
IMAGES, DIM = 12, 5


def results(each: int = 3, images_a_group: int = 1, **changes: Any) -> Results:
    """So many sentences an image, in an order of their own."""
    groups = np.arange(IMAGES) // images_a_group
    order = RNG.permutation(IMAGES * each)
    given: dict[str, Any] = {
        "image_groups": groups,
        "sentence_groups": groups.repeat(each)[order],
        "images": RNG.standard_normal((IMAGES, DIM)).astype(np.float32),
        "sentences": RNG.standard_normal((IMAGES * each, DIM)).astype(np.float32),
        "sentence_names": [f"s{place}" for place in order],
    }
    return Results(**{**given, **changes})


def test_every_format_has_a_protocol_and_every_protocol_parses() -> None:
    # Sets that are all for training, and one's own.
    without = ("synth-pedes", "mals", "luperson-mllm", "webperson", "folder", "parquet", "webdataset")
    for name in FORMATS:
        assert protocol_of(name).name == {"mscoco": "mscoco-5k", "mscoco-labels": "mnil-mscoco"}.get(
            name, "plain" if name in without else name
        )
    for name, protocol in PROTOCOLS.items():
        assert protocol.name == name
        assert parse_measures(protocol.measures)


def test_an_unknown_protocol_is_refused_with_the_nearest() -> None:
    assert find_protocol("mscoco-1k").folds == 5
    with pytest.raises(SettingsError, match="did you mean 'cuhk-pedes'"):
        find_protocol("CUHK_PEDES")
    with pytest.raises(SettingsError, match="known: plain, flickr8k"):
        find_protocol("zzz")


def test_folds_are_the_protocols_unless_others_are_asked_for() -> None:
    made = results()
    protocol = PROTOCOLS["mscoco-1k"]
    assert protocol.report(made, folds=3).counts["folds"] == 3
    with pytest.raises(DataError, match="12 images cannot be cut into 5 equal folds"):
        protocol.report(made)
    with pytest.raises(DataError, match="12 images cannot be cut into 0 equal folds"):
        protocol.report(made, folds=0)
    report = protocol.report(made, folds=1, split="test", same="image", provenance={"seed": 3})
    assert (report.protocol, report.split) == ("mscoco-1k, same image", "test")
    assert report.provenance == {"seed": 3}
    drawn = protocol.report(made, folds=1, splits="drawn splits, seed=1")
    assert drawn.protocol == "mscoco-1k, same group, drawn splits, seed=1"
    assert report.image_to_text == PROTOCOLS["plain"].report(made).image_to_text


def test_class_means_equal_their_slow_twin() -> None:
    made = results(images_a_group=4)
    report = PROTOCOLS["cub"].report(made, same="identity")
    assert report.protocol == "cub, same identity, class means"
    assert report.counts["sentences"] == 3
    assert made.images is not None
    assert made.sentences is not None
    means = np.array([made.sentences[made.sentence_groups == group].mean(0) for group in range(3)])
    scores = made.images @ means.T
    top = np.mean([scores[image].argmax() == made.image_groups[image] for image in range(IMAGES)])
    found = [
        np.isin(np.argsort(-scores[:, group])[:50], np.flatnonzero(made.image_groups == group)).sum() / 50
        for group in range(3)
    ]
    assert report.image_to_text == {"R@1": pytest.approx(100 * top)}
    assert report.text_to_image == {"AP@50": pytest.approx(100 * np.mean(found))}
    both = PROTOCOLS["cub"].report(made, parse_measures("R@1 mAP"))
    assert list(both.image_to_text) == list(both.text_to_image) == ["R@1", "mAP"]
    by_scores = results(
        images_a_group=4,
        images=None,
        sentences=None,
        scores=made.images @ made.sentences.T,
        sentence_groups=made.sentence_groups,
    )
    assert PROTOCOLS["cub"].report(by_scores).text_to_image == pytest.approx(report.text_to_image)


def test_one_sentence_an_image_is_drawn_the_same_every_time() -> None:
    made = results()
    protocol = PROTOCOLS["mnil-flickr30k"]
    drawn = protocol.applied(made)
    assert sorted(drawn.sentence_groups) == list(range(IMAGES))
    assert drawn.sentence_names == protocol.applied(made).sentence_names
    assert len({int(name[1:]) % 3 for name in drawn.sentence_names}) == 3  # not always the first
    assert made.sentences is not None
    assert drawn.sentences is not None
    for name, row in zip(drawn.sentence_names, drawn.sentences, strict=True):
        np.testing.assert_array_equal(row, made.sentences[list(made.sentence_names).index(name)])
    assert protocol.report(made).counts["sentences"] == IMAGES
    with pytest.raises(DataError, match="these have groups of several"):
        protocol.report(results(images_a_group=2))


def test_labels_decide_where_the_protocol_says_so() -> None:
    of_images = RNG.integers(0, 2, (IMAGES, 4))
    made = results()
    labelled = results(
        **{name: getattr(made, name) for name in ("sentence_groups", "images", "sentences")},
        image_labels=of_images,
        sentence_labels=of_images[made.sentence_groups],
    )
    protocol = PROTOCOLS["mnil-mscoco"]
    report = protocol.report(labelled, parse_measures("R@1 MAP@all"))
    drawn = protocol.applied(labelled)
    assert drawn.images is not None
    assert drawn.sentences is not None
    assert drawn.sentence_labels is not None
    scores = drawn.images @ drawn.sentences.T
    shared = of_images @ drawn.sentence_labels.T > 0
    some = shared.any(1)
    top = shared[np.arange(IMAGES), scores.argmax(1)][some].mean()
    assert report.image_to_text["R@1"] == pytest.approx(100 * top)
    assert report.counts["images_without_match"] == (~some).sum()
    assert report.protocol == "mnil-mscoco, shared label, one sentence an image"
    plain = PROTOCOLS["plain"]
    assert plain.report(labelled).image_to_text == plain.report(made).image_to_text
    with pytest.raises(DataError, match="matches by labels, and these results have none"):
        protocol.report(made)


def test_class_means_keep_double_precision() -> None:
    scores = 1000 + np.array([[2.0, 1.0], [1.0, 2.0]]) * 1e-9
    results = Results(image_groups=np.arange(2), sentence_groups=np.arange(2), scores=scores)
    assert PROTOCOLS["cub"].report(results).image_to_text["R@1"] == 100
