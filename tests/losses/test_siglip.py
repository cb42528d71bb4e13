import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from limner.errors import SettingsError
from limner.losses import Embedded, SigLIP, SigLIPLoss
from limner.models.registry import build_network
from limner.recipes.change import change
from limner.training.objective import Objective
from limner.training.optimiser import make_optimisers
from limner.training.recipe import StageSettings
from tests.reference.gradients import autograd_gradients, numeric_gradients
from tests.reference.losses import siglip_loss
from tests.toy import toy_recipe


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    batch=st.integers(1, 7),
    groups=st.integers(1, 4),
    scale=st.floats(0.1, 100),
    bias=st.floats(-20, 5),
)
def test_equals_the_slow_twin(seed: int, batch: int, groups: int, scale: float, bias: float) -> None:
    torch.manual_seed(seed)
    images, texts = torch.randn(2, batch, 5, dtype=torch.float64)
    group = torch.randint(groups, (batch,))
    loss = SigLIPLoss(scale, bias)
    expected = siglip_loss(
        images.tolist(), texts.tolist(), group.tolist(), math.exp(loss.log_scale.item()), loss.bias.item()
    )
    assert loss(images, texts, group).item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_gradients_are_those_of_the_twin() -> None:
    torch.manual_seed(0)
    images, texts = torch.randn(2, 5, 4, dtype=torch.float64)
    groups = torch.tensor([0, 1, 1, 2, 1])
    loss = SigLIPLoss(3.0, -1.0).double()

    def twin(
        one: list[list[float]], other: list[list[float]], moved: float = 0.0, shifted: float = 0.0
    ) -> float:
        scale = math.exp(loss.log_scale.item() + moved)
        return siglip_loss(one, other, groups.tolist(), scale, loss.bias.item() + shifted)

    got = autograd_gradients(lambda one, other: loss(one, other, groups), images, texts)
    torch.testing.assert_close(got, numeric_gradients(twin, images, texts), rtol=1e-5, atol=1e-7)
    torch.autograd.backward(loss(images, texts, groups))
    lists, h = (images.tolist(), texts.tolist()), 1e-6
    for parameter, by in ((loss.log_scale, (h, 0.0)), (loss.bias, (0.0, h))):
        assert parameter.grad is not None
        numeric = (twin(*lists, *by) - twin(*lists, -by[0], -by[1])) / (2 * h)
        assert parameter.grad.item() == pytest.approx(numeric, rel=1e-5)


def test_starts_as_the_paper_does() -> None:
    """At t = 10 and b = −10 unlike pairs cost next to nothing, and each match about log(1 + e^10) = 10."""
    loss = SigLIPLoss()
    assert loss.log_scale.item() == pytest.approx(math.log(10))
    assert loss.bias.item() == -10
    images, texts = torch.eye(8)[:4], torch.eye(8)[4:]
    assert loss(images, texts, torch.arange(4)).item() == pytest.approx(10, abs=0.001)


def test_is_near_zero_where_only_what_matches_is_similar() -> None:
    apart = torch.eye(4, dtype=torch.float64)
    loss = SigLIPLoss(40.0, -20.0)
    assert loss(apart, apart, torch.arange(4)).item() == pytest.approx(0, abs=1e-6)
    assert loss(apart, apart.flip(0), torch.arange(4)).item() > 10


def test_pairs_of_one_identity_are_no_negatives() -> None:
    images, texts = torch.eye(4)[[0, 0, 0, 1]], torch.eye(4)[[0, 0, 0, 1]]
    loss = SigLIPLoss(40.0, -20.0)
    assert loss(images, texts, torch.tensor([5, 5, 5, 6])).item() == pytest.approx(0, abs=1e-6)
    # six wrong refusals of 20 by four pairs
    assert loss(images, texts, torch.arange(4)).item() == pytest.approx(6 * 20 / 4, rel=1e-4)


def test_scale_and_bias_are_a_part_without_weight_decay() -> None:
    own = (SigLIP(),)
    objective = Objective(build_network(toy_recipe().model, 20), [own])
    objective.use(own)
    stage = StageSettings(name="one", losses=own)
    stage = stage.replace(
        optimiser=stage.optimiser.replace(multipliers={"siglip_scale": 5.0}, weight_decay=0.1)
    )
    (optimiser,) = make_optimisers(objective.parts(), stage)
    (group,) = (group for group in optimiser.param_groups if group["multiplier"] == 5.0)
    assert len(group["params"]) == 2
    assert group["weight_decay"] == 0.0
    assert objective.handed_on().keys() == {"siglip_scale"}


@pytest.mark.parametrize("second", ['{"scale": 20}', '{"bias": 0}'])
def test_stages_share_scale_and_bias(second: str) -> None:
    both = ["stages.stage-1.losses.siglip={}", f"stages.stage-2.losses.siglip={second}"]
    with pytest.raises(SettingsError, match=r"share what losses\.siglip learns"):
        change(toy_recipe(), both)


def test_it_is_a_loss_of_any_stage_and_shows_what_it_learns() -> None:
    recipe = change(toy_recipe(), ["stages.stage-1.losses.siglip={}"])
    assert recipe.stages[0].loss(SigLIP) == SigLIP(scale=10, bias=-10)
    images, texts = torch.randn(2, 4, 3)
    found = SigLIPLoss().terms(Embedded(images, texts, torch.arange(4), torch.arange(4), images, texts))
    assert found.shown["siglip_scale"].item() == pytest.approx(10)
    assert found.shown["siglip_bias"].item() == -10
