"""The way of a training image in docs/code-map.md is the true one, and no longer than it has to be."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from limner.data.readers import open_dataset
from limner.data.records import Dataset
from limner.training.log import Event, Stepped
from limner.training.loop import train
from limner.training.stage import EmbeddingStage
from tests.toy import toy_recipe
from tests.ways import followed, lines_of, listed

FILES, LINES = 21, 4_877
"""The most files and lines that a reader opens for it. They only fall: the plan is 20 files."""

OF_ITS_SENTENCE = {
    "limner/data/token_rows.py",
    "limner/models/channel_norm.py",
    "limner/models/text_cnn.py",
    "limner/models/text_encoder.py",
}


class _EnoughError(Exception):
    """One step is followed."""


def test_the_code_map_lists_every_file_of_the_way(
    toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = listed("to a training step")
    recipe = toy_recipe()
    # one loss, and the stage that reads pixels; the other one takes cached features
    recipe = recipe.replace(stages=(recipe.stages[1].replace(losses=recipe.stages[0].losses),))
    begins, before = EmbeddingStage.inputs, set[str]()

    def inputs(stage: EmbeddingStage, epoch: int) -> Iterator[tuple[int, dict[str, Any]]]:
        before.update(called)
        called.clear()
        return begins(stage, epoch)

    def stop(event: Event) -> None:
        if isinstance(event, Stepped):
            # the log is closed behind it
            step.update(called)
            raise _EnoughError

    monkeypatch.setattr(EmbeddingStage, "inputs", inputs)
    step: set[str] = set()
    with followed() as called:
        open_dataset(f"folder:{toys.records[0].image.parent}")
        with pytest.raises(_EnoughError):
            train(recipe, toys.split("train"), toys.split("val"), tmp_path / "run", cpu=True, listener=stop)
    assert step - OF_ITS_SENTENCE - way == set(), (
        "the way goes through these, too; list them in docs/code_map.py"
    )
    assert way - step == {"limner/data/readers/registry.py", "limner/training/prepare.py"}
    # which come before the step
    assert way - step <= before
    assert len(way) <= FILES
    assert lines_of(way) <= LINES
