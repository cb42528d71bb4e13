"""Stage 1 of the identity-aware system in the training loop: buffers that live in the state."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import limner
from limner.data.records import Dataset
from limner.losses import CMCELoss
from limner.training.log import Event
from limner.training.loop import train
from tests.toy import toy_identity_aware
from tests.training.interrupted import (
    STATE,
    KilledError,
    killed_and_resumed,
    left_by,
    same_run,
    stopped_and_resumed,
    trained_together,
)


@pytest.fixture(scope="module")
def run(toys: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("identity-aware") / "run"
    return train(toy_identity_aware(), toys.split("train"), toys.split("val"), out, cpu=True)


@pytest.mark.parametrize("kill_at", [2, 4, 5, 9, 11])
def test_stopped_anywhere_and_resumed_is_the_uninterrupted_run(
    toys: Dataset, run: Path, tmp_path: Path, kill_at: int
) -> None:
    stopped_and_resumed(toys, toy_identity_aware(), tmp_path / "run", kill_at=kill_at)
    same_run(tmp_path / "run", run)


def test_kill_9_keeps_the_buffers(toys: Dataset, run: Path, tmp_path: Path) -> None:
    killed_and_resumed(toys, toy_identity_aware(), tmp_path / "run", "stage-2 1 2")
    same_run(tmp_path / "run", run)
    state = load_file(run / STATE)
    # a toy has one picture and two sentences
    assert not state["objective.losses.cmce.several_images"].any()
    assert state["objective.losses.cmce.several_texts"].all()
    rows = state["objective.losses.cmce.texts"]
    assert rows.shape == (len({record.group for record in toys.split("train").records}), 16)
    assert (rows.norm(dim=1) > 0).all()
    assert (rows.norm(dim=1) < 1).any()  # means of several features, not normalised again


def test_the_run_encodes_and_says_its_system(toys: Dataset, run: Path) -> None:
    loaded = limner.load(run, device="cpu")
    assert loaded.description["system"] == "identity-aware"
    assert loaded.encode_texts(["a red bar", "a yellow circle"]).shape == (2, 16)
    pictures = loaded.encode_images([record.image for record in toys.records[:3]])
    np.testing.assert_allclose(np.linalg.norm(pictures, axis=1), 1, atol=1e-5)


def test_each_picture_may_be_its_own_identity(toys: Dataset, tmp_path: Path) -> None:
    recipe = toy_identity_aware()
    recipe = recipe.replace(classes="images", stages=recipe.stages[:1])
    train(recipe, toys.split("train"), toys.split("val"), tmp_path / "run", cpu=True)
    rows = load_file(tmp_path / "run" / STATE)["objective.losses.cmce.images"]
    assert len(rows) == len(toys.split("train"))


def test_the_buffers_begin_with_the_features_of_the_network(
    toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled: list[torch.Tensor] = []

    def stop(event: Event) -> None:
        if filled:
            raise KilledError

    plain = CMCELoss.fill

    def fill(self: CMCELoss, *features: torch.Tensor) -> None:
        plain(self, *features)
        filled.extend(features)

    monkeypatch.setattr(CMCELoss, "fill", fill)
    recipe = toy_identity_aware()
    with pytest.raises(KilledError):
        train(recipe, toys.split("train"), toys.split("val"), tmp_path / "run", listener=stop, cpu=True)
    images, image_groups, texts, text_groups = filled
    records = toys.split("train").records
    assert len(images) == len(image_groups) == len(records)
    assert len(texts) == len(text_groups) == sum(len(record.sentences) for record in records)
    assert set(image_groups.tolist()) == set(text_groups.tolist())


_UPDATES = """
from limner.losses.cmce import CMCELoss

plain, seen = CMCELoss.update, []


def update(self, images, texts, groups):
    plain(self, images, texts, groups)
    seen.append(len(groups))
    saved((self.images, self.texts, seen))


CMCELoss.update = update
"""


def test_two_processes_hold_the_same_rows(toys: Dataset, tmp_path: Path) -> None:
    recipe = toy_identity_aware()
    recipe = recipe.replace(stages=recipe.stages[:1])
    trained_together(2, toys, recipe, tmp_path / "run", watched=_UPDATES)
    one, other = left_by(tmp_path / "run")
    assert torch.equal(one[0], other[0])
    assert torch.equal(one[1], other[1])
    assert set(one[2]) == {8}  # the whole batch, not a process's half
    assert json.loads((tmp_path / "run" / "run.json").read_text())["recipe"] == "toy-identity-aware"
