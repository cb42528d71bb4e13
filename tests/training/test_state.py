import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from limner.errors import CheckpointError
from limner.training.optimiser import make_optimiser
from limner.training.recipe import OptimiserSettings
from limner.training.state import (
    Progress,
    StageBest,
    StateTimes,
    first_difference,
    in_full,
    read_progress,
    restore,
    write_state,
)
from tests.toy import toy_recipe


def _network(width: int = 5) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 1))


def _optimiser(network: nn.Module, name: str) -> torch.optim.Optimizer:
    settings = OptimiserSettings.parse({"name": name, "rate": 0.05, "weight_decay": 0.01})
    return make_optimiser({"text": list(network.parameters())}, settings)


def _steps(network: nn.Module, optimiser: torch.optim.Optimizer, first: int, last: int) -> None:
    for step in range(first, last):
        inputs = torch.randn(6, 4, generator=torch.Generator().manual_seed(step))
        optimiser.zero_grad()
        network(inputs).square().sum().backward()
        optimiser.step()


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_restored_training_goes_on_as_if_never_stopped(tmp_path: Path, name: str) -> None:
    network = _network()
    optimiser = _optimiser(network, name)
    _steps(network, optimiser, 0, 3)
    write_state(tmp_path, network, [optimiser], Progress(), {})
    _steps(network, optimiser, 3, 6)

    other = _network()
    _steps(other, _optimiser(other, name), 9, 11)  # to have something to overwrite
    again = _optimiser(other, name)
    restore(tmp_path, other, [again])
    _steps(other, again, 3, 6)
    for ours, theirs in zip(network.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)


def test_without_moments_the_continuation_is_another(tmp_path: Path) -> None:
    network = _network()
    optimiser = _optimiser(network, "sgd")
    _steps(network, optimiser, 0, 3)
    other = copy.deepcopy(network)
    _steps(network, optimiser, 3, 6)
    _steps(other, _optimiser(other, "sgd"), 3, 6)
    assert not torch.equal(network[0].weight, other[0].weight)  # type: ignore[index]


def test_progress_and_identity_come_back(tmp_path: Path) -> None:
    progress = Progress(1, 4, [StageBest(2, 33.5), StageBest()], 1234, 5.5, False)
    identity = {"recipe": {"name": "ü"}, "data": {"train": "abc"}}
    write_state(tmp_path, _network(), (), progress, identity)
    assert read_progress(tmp_path) == (progress, identity)


def test_settings_newer_than_the_state_have_their_defaults(tmp_path: Path) -> None:
    now = json.loads(toy_recipe().model_dump_json())
    older = json.loads(toy_recipe().model_dump_json())
    for stage in older["stages"]:
        for setting in ("backbone_from", "average", "chunk", "checkpointing", "lora"):
            del stage[setting]
        del stage["optimiser"]["layer_decay"]
    write_state(tmp_path, _network(), (), Progress(), {"recipe": older, "data": {}})
    assert read_progress(tmp_path)[1]["recipe"] == now
    older["model"]["of_another_time"] = 1
    assert in_full(older) == older


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        restore(tmp_path, _network(), ())
    write_state(tmp_path, _network(), (), Progress(), {})
    with pytest.raises(CheckpointError, match=r"has shape \(5, 4\), expected \(6, 4\)"):
        restore(tmp_path, _network(6), ())


def test_first_difference_is_named_by_its_path() -> None:
    recipe = toy_recipe()
    first, second = recipe.stages
    longer = recipe.replace(stages=(first, second.replace(epochs=9)))
    there, here = ({"recipe": json.loads(found.model_dump_json())} for found in (recipe, longer))
    assert first_difference(there, here) == ("recipe.stages.stage-2.epochs", 2, 9)
    assert first_difference(there, there) is None
    alone = {"recipe": json.loads(recipe.replace(stages=(first,)).model_dump_json())}
    found = first_difference(there, alone)
    assert found is not None
    assert found[0] == "recipe.stages.stage-2"


def test_spelling_of_the_data_and_the_weights_makes_no_difference() -> None:
    def identity(source: str, weights: str, train: str) -> dict[str, Any]:
        return {
            "recipe": {"model": {"backbone": {"weights": weights}}},
            "data": {"source": source, "train": train},
        }

    there = identity("folder:a", "a.pth", "1")
    assert first_difference(there, identity("folder:/b/a", "/b/a.pth", "1")) is None
    assert first_difference(there, identity("folder:a", "a.pth", "2")) == ("data.train", "1", "2")


def test_which_epochs_end_with_a_state() -> None:
    """All where a state costs little; of the others so few that writing takes a twentieth of the time."""
    times = StateTimes()
    assert times.is_due(0.0)
    times.wrote(1.0, 1.4)
    assert times.is_due(1.4)
    times.wrote(10.0, 12.0)
    assert not times.is_due(51.9)
    assert times.is_due(52.0)
    times.wrote(52.0, 52.1)
    assert times.is_due(52.1)
