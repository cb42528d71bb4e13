"""Training of textual inversion: only the mapping learns, the seed decides, validation chooses."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch

from limner.data.composed import ComposedSet
from limner.data.readers.composed import open_composed
from limner.data.records import Dataset
from limner.errors import DataError, SettingsError
from limner.inference.load import load_model
from limner.inference.trained import TrainedModel
from limner.models.inversion import InversionSettings
from limner.training.inversion import InversionEpoch, InversionTraining, train_inversion
from tests.composed import toy_triplets

SETTINGS = InversionSettings(prompt="a *", hidden=32, layers=1)
TRAINING = InversionTraining(epochs=3, batch=12, rate=3e-3)


@pytest.fixture(scope="module")
def run(late_run: Path) -> TrainedModel:
    return load_model(late_run, device="cpu", precision="fp32")


@pytest.fixture(scope="module")
def triplets(toys: Dataset, tmp_path_factory: pytest.TempPathFactory) -> tuple[ComposedSet, ComposedSet]:
    folder = toy_triplets(toys.records[0].image.parent, tmp_path_factory.mktemp("triplets") / "set")
    return open_composed(f"cirr:{folder}", "train"), open_composed(f"cirr:{folder}", "val")


def weights(state: Mapping[str, torch.Tensor]) -> list[np.ndarray]:
    return [one.numpy().copy() for one in state.values()]


def test_only_the_mapping_learns_and_the_seed_decides(
    run: TrainedModel, toys: Dataset, triplets: tuple[ComposedSet, ComposedSet]
) -> None:
    before = weights(run.model.state_dict())
    modes = [module.training for module in run.model.modules()]
    made, epochs = train_inversion(run, toys, triplets, SETTINGS, TRAINING)
    for was, now in zip(before, weights(run.model.state_dict()), strict=True):
        np.testing.assert_array_equal(was, now)
    assert [module.training for module in run.model.modules()] == modes
    assert all(one.requires_grad and one.grad is None for one in run.model.parameters())
    torch.manual_seed(99)
    again, same = train_inversion(run, toys, triplets, SETTINGS, TRAINING)
    assert same == epochs
    for one, other in zip(*(weights(m.network.state_dict()) for m in (made, again)), strict=True):
        np.testing.assert_array_equal(one, other)
    _, others = train_inversion(run, toys, triplets, SETTINGS, TRAINING.replace(seed=1))
    assert others != epochs


def test_the_best_epoch_is_kept(
    run: TrainedModel, toys: Dataset, triplets: tuple[ComposedSet, ComposedSet]
) -> None:
    told: list[InversionEpoch] = []
    made, epochs = train_inversion(
        run, toys, triplets, SETTINGS, TRAINING.replace(epochs=5), told=told.append
    )
    assert told == epochs
    best = max(epochs, key=lambda one: one.score)
    trained = made.description["trained"]
    assert (trained["epoch"], trained["score"]) == (best.epoch, best.score)
    assert made.image_weight == made.description["image_weight"] == best.image_weight
    assert made.description["fingerprint"] == run.fingerprint
    assert set(trained["triplets"]) == {"train", "val"}


def test_losses_fall(run: TrainedModel, toys: Dataset, triplets: tuple[ComposedSet, ComposedSet]) -> None:
    training = TRAINING.replace(epochs=20, image_weight=0.0)
    _, epochs = train_inversion(run, toys, triplets, SETTINGS, training)
    assert epochs[-1].pictures < epochs[0].pictures
    first, last = epochs[0].triplets, epochs[-1].triplets
    assert first is not None
    assert last is not None
    assert last < first


def test_pictures_alone(run: TrainedModel, toys: Dataset) -> None:
    made, epochs = train_inversion(run, toys, None, SETTINGS, TRAINING)
    # nothing could choose it
    assert made.image_weight == TRAINING.image_weight
    assert all(epoch.triplets is None for epoch in epochs)
    assert made.description["trained"]["triplets"] is None


def test_what_cannot_be_trained(
    run: TrainedModel, toys: Dataset, toy_run: Path, triplets: tuple[ComposedSet, ComposedSet]
) -> None:
    with pytest.raises(SettingsError, match="needs a text tower"):
        train_inversion(load_model(toy_run, device="cpu"), toys, None, SETTINGS, TRAINING)
    with pytest.raises(DataError, match="no picture in split 'train'"):
        train_inversion(run, toys.split("val"), None, SETTINGS, TRAINING)
    with pytest.raises(SettingsError, match="setting 'seed'"):
        InversionTraining.parse({"seed": 2**63})
