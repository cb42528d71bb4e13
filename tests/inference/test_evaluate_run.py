from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from limner.data.records import Dataset
from limner.evaluation.arrays import Results
from limner.evaluation.protocols import PROTOCOLS
from limner.inference.evaluate_run import evaluate_run
from limner.inference.load import load_model


def test_the_protocol_is_the_formats_and_labels_decide_where_it_says_so(toys: Dataset, toy_run: Path) -> None:
    run = load_model(toy_run, device="cpu")
    labelled = tuple(
        replace(record, group=str(place), labels=tuple(record.group.split()[:2]))
        for place, record in enumerate(toys.split("train").records)
    )
    dataset = Dataset("mscoco-labels:x", "image", labelled, edition="by hand")
    report = evaluate_run(run, dataset, "train")
    assert report.protocol == "mnil-mscoco, shared label, one sentence an image"
    assert list(report.image_to_text) == ["MAP@50", "MAP@all"]
    assert report.provenance["edition"] == "by hand"
    assert report.provenance["dataset"] == "mscoco-labels"
    kept: list[Results] = []
    again = evaluate_run(run, dataset, "train", protocol=PROTOCOLS["plain"], keep=kept.append)
    assert again.protocol == "plain, same image"
    assert kept[0].labels is None  # only a protocol that asks for labels looks for them
    shared = np.array([[bool(set(one.labels) & set(other.labels)) for other in labelled] for one in labelled])
    measured = evaluate_run(run, dataset, "train", keep=kept.append)
    assert kept[1].labels is not None
    found = kept[1].relevance()[0]
    for place in range(len(labelled)):
        own = np.flatnonzero(shared[place].repeat(2))
        np.testing.assert_array_equal(found.matches(place), own)
    assert measured.image_to_text["MAP@all"] == pytest.approx(report.image_to_text["MAP@all"])
