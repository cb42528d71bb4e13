import math

import pytest
import torch
from torch import nn

from limner.models.text_tower import TextTower, TextTowerSettings
from limner.models.transformer_layers import layers_above, transformer_layers
from limner.training.optimiser import freeze_parts, make_optimiser, rate_at, set_rate
from limner.training.recipe import OptimiserSettings, ScheduleSettings, StageSettings


def _parts() -> dict[str, list[nn.Parameter]]:
    def layer(*shape: int) -> nn.Parameter:
        return nn.Parameter(torch.ones(shape))

    return {
        "backbone": [layer(4, 3, 1, 1), layer(4)],
        "words": [layer(5, 2)],
        "text": [layer(3, 2, 2), layer(3), layer(3)],
        "classifier": [layer(6, 2)],
    }


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_matrices_decay_and_vectors_do_not(name: str) -> None:
    parts = _parts()
    settings = OptimiserSettings.parse({"name": name, "weight_decay": 0.3})
    decay = {
        id(parameter): group["weight_decay"]
        for group in make_optimiser(parts, settings).param_groups
        for parameter in group["params"]
    }
    everything = [parameter for own in parts.values() for parameter in own]
    assert len(decay) == len(everything)
    for parameter in everything:
        assert decay[id(parameter)] == (0.3 if parameter.dim() > 1 else 0.0)


def test_step_of_plain_sgd_is_the_rate_times_multiplier_times_gradient() -> None:
    parts = _parts()
    settings = OptimiserSettings(momentum=0.0, multipliers={"words": 0.001, "text": 3.0})
    optimiser = make_optimiser(parts, settings)
    set_rate(optimiser, 0.5)
    for parameters in parts.values():
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, 2.0)
    optimiser.step()
    for part, multiplier in {"backbone": 1.0, "words": 0.001, "text": 3.0, "classifier": 1.0}.items():
        for parameter in parts[part]:
            torch.testing.assert_close(
                parameter.detach(), torch.full_like(parameter, 1 - 0.5 * multiplier * 2.0)
            )


def test_kinds_and_their_momentum() -> None:
    sgd = make_optimiser(_parts(), OptimiserSettings(momentum=0.8, nesterov=True))
    assert isinstance(sgd, torch.optim.SGD)
    assert all(group["momentum"] == 0.8 and group["nesterov"] for group in sgd.param_groups)
    adamw = make_optimiser(_parts(), OptimiserSettings(name="adamw", momentum=0.8))
    assert isinstance(adamw, torch.optim.AdamW)
    assert all(group["betas"] == (0.8, 0.999) for group in adamw.param_groups)


def test_frozen_parts_are_left_out_and_come_back() -> None:
    parts = _parts()
    freeze_parts(parts, StageSettings(name="s", frozen=("backbone", "words")))
    held = [
        parameter
        for group in make_optimiser(parts, OptimiserSettings()).param_groups
        for parameter in group["params"]
    ]
    assert {id(p) for p in held} == {id(p) for part in ("text", "classifier") for p in parts[part]}
    freeze_parts(parts, StageSettings(name="t"))
    assert all(parameter.requires_grad for own in parts.values() for parameter in own)


@pytest.mark.parametrize(
    ("schedule", "epoch", "expected"),
    [
        ({}, 7.3, 2.0),
        ({"kind": "steps", "drops": (4, 8)}, 3.99, 2.0),
        ({"kind": "steps", "drops": (4, 8)}, 4.0, 0.2),
        ({"kind": "steps", "drops": (4, 8)}, 9.0, 0.02),
        ({"kind": "cosine"}, 0.0, 2.0),
        ({"kind": "cosine"}, 2.5, 1 + math.sqrt(0.5)),  # cos(π/4) = √½
        ({"kind": "cosine"}, 5.0, 1.0),
        ({"kind": "cosine"}, 10.0, 0.0),
        ({"warmup": 4.0}, 0.0, 0.0),
        ({"warmup": 4.0}, 1.0, 0.5),
        ({"warmup": 4.0}, 4.0, 2.0),
        ({"kind": "cosine", "warmup": 10.0}, 5.0, 0.5),
    ],
)
def test_rate_at_computed_by_hand(schedule: dict[str, object], epoch: float, expected: float) -> None:
    assert rate_at(epoch, 10, 2.0, ScheduleSettings.parse(schedule)) == pytest.approx(expected, abs=1e-12)


def test_rates_fall_from_layer_to_layer() -> None:
    """BEiT's rule: what comes behind the layers has the whole rate, the i-th of n layers `decay^(n − i + 1)`."""
    pytest.importorskip("transformers")
    tower = TextTower(TextTowerSettings(words=8, width=16, heads=2, layers=3, feature="mean"), 20)
    head = nn.Linear(16, 4)
    parts = {
        "words": list(tower.table.parameters()),
        "text": [
            weight
            for weight in tower.parameters()
            if all(weight is not row for row in tower.table.parameters())
        ],
        "text_projection": list(head.parameters()),
    }
    settings = OptimiserSettings(name="adamw", layer_decay=0.5, multipliers={"text": 3.0}, weight_decay=0.1)
    optimiser = make_optimiser(parts, settings, layers_above([tower]))
    set_rate(optimiser, 2.0)
    rates = {weight: group["lr"] for group in optimiser.param_groups for weight in group["params"]}
    assert set(rates) == {*tower.parameters(), *head.parameters()}
    assert {rates[weight] for weight in head.parameters()} == {2.0}
    for number, layer in enumerate(transformer_layers(tower), start=1):
        assert {rates[weight] for weight in layer.parameters()} == {2.0 * 3.0 * 0.5 ** (3 - number + 1)}
    assert {rates[weight] for weight in parts["words"]} == {2.0 * 0.5**4}
    decay = {weight: group["weight_decay"] for group in optimiser.param_groups for weight in group["params"]}
    assert all((decay[weight] > 0) == (weight.dim() > 1) for weight in decay)
    plain = make_optimiser(parts, settings.replace(layer_decay=None), layers_above([tower]))
    assert [group["multiplier"] for group in plain.param_groups] == [1.0, 3.0, 3.0, 1.0, 1.0]
