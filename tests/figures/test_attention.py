from pathlib import Path

import numpy as np
import pytest

import limner
from limner.data.records import Dataset
from limner.errors import DataError, SettingsError
from limner.figures.attention import Attended, attended, attention_figure
from limner.figures.style import write_figure


def test_a_panel_a_word_and_one_of_the_steps(reranking_run: Path, toys: Dataset, tmp_path: Path) -> None:
    run = limner.load(reranking_run, stage="stage-2", device="cpu")
    found = attended(run, toys.records[0].image, "A red bar on white ground, red red bar")
    assert found.words == ("a", "red", "bar", "on", "white", "ground", "red", "red", "bar")
    assert found.of_regions is not None
    assert 0 <= found.confidence <= 1
    for bare in (False, True):
        figure = attention_figure(found, bare=bare)
        titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
        assert len(titles) == 10
        assert titles[0].endswith("%")
        assert titles[1].startswith("a ")
        assert [label.get_text() for label in figure.axes[-1].get_xticklabels()] == list(found.words)
        for written in write_figure(figure, tmp_path / f"attention-{bare}"):
            assert written.stat().st_size > 1000


def test_either_attention_may_be_missing() -> None:
    pixels = np.zeros((8, 4, 3), np.uint8)
    regions = np.full((2, 2, 1), 0.5, np.float32)
    assert len(attention_figure(Attended(pixels, ("a", "b"), regions, None, 0.5)).axes) == 3
    steps = np.full((5, 2), 0.5, np.float32)
    assert attention_figure(Attended(pixels, ("a", "b"), None, steps, 0.5)).axes[-1].get_ylabel() == "step"


def test_what_cannot_be_drawn_is_said(reranking_run: Path, toys: Dataset) -> None:
    with pytest.raises(SettingsError, match="no reranker"):
        attended(limner.load(reranking_run, stage="stage-1"), toys.records[0].image, "a red bar")
    with pytest.raises(DataError, match="knows no word"):
        attended(limner.load(reranking_run, stage="stage-2"), toys.records[0].image, "zebra")
