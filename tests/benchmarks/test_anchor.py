"""`benchmarks.anchor`: which epoch's heads are kept, and what a seed decides."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import anchor
from limner.data.records import Dataset, Record
from limner.evaluation.report import Report
from limner.training.recipe import Selection
from limner.training.validation import score


def _features(split: str, count: int, seed: int) -> anchor._Features:
    """Pictures of two sentences each, whose features are those of their picture through a matrix, with noise."""
    rng = np.random.default_rng(seed)
    records = tuple(
        Record(image=Path(f"{number}.jpg"), group=str(number), sentences=("a", "b"), split=split)
        for number in range(count)
    )
    images = rng.normal(size=(count, 12)).astype(np.float32)
    texts = images.repeat(2, axis=0) @ np.random.default_rng(9).normal(size=(12, 8)).astype(np.float32)
    return anchor._Features(Dataset("drawn", "image", records), images, texts + rng.normal(size=texts.shape))


def test_the_heads_of_the_best_epoch_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anchor, "EPOCHS", 6)
    train, val = _features("train", 60, 0), _features("val", 40, 1)
    # validation on which the second epoch is the best
    scores = iter([5.0, 9.0, 7.0, 6.0, 3.0, 1.0] * 2)
    seen = []

    def given(report: Report, select: Selection) -> float:
        seen.append(score(report, "rsum"))
        return next(scores)

    monkeypatch.setattr(anchor, "score", given)
    heads, epoch, rsum = anchor._learn(train, val, 0)
    assert (epoch, rsum) == (2, 9.0)
    assert score(anchor._measure(heads, val), "rsum") == seen[1] != seen[5]
    again, _, _ = anchor._learn(train, val, 0)
    assert all(bool((a == b).all()) for a, b in zip(heads.parameters(), again.parameters(), strict=True))


def test_a_head_learns_which_sentences_are_of_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anchor, "EPOCHS", 20)
    train, val = _features("train", 300, 0), _features("val", 40, 1)
    rows = anchor._row(
        0, *anchor._learn(train, val, 0)[1:], anchor._measure(anchor._learn(train, val, 0)[0], val)
    )
    for way in ("image_to_text", "text_to_image"):
        lower, upper = rows["intervals"][way]["R@10"]
        # chance is 23 and 25
        assert 50 < lower <= rows[way]["R@10"] <= upper
