"""A loss of another package, registered after everything else was imported."""

import json
from collections.abc import Iterator, Mapping
from typing import Literal

import pytest
import torch

from limner.errors import SettingsError
from limner.losses import Embedded, Instance, Loss, LossSettings, Terms, register_loss
from limner.losses.registry import LOSSES, loss_settings
from limner.models.registry import build_network
from limner.recipes.change import change, differences
from limner.training.objective import Objective, TrainingBatch
from limner.training.recipe import Recipe
from tests.toy import toy_recipe


class Apart(LossSettings):
    """The squared distance of a pair."""

    kind: Literal["apart"] = "apart"
    """The loss."""
    weight: float = 1.0
    """Weight of the loss."""
    power: float = 2.0
    """Power of the distance."""

    @property
    def weights(self) -> Mapping[str, float]:
        return {"apart": self.weight}

    def build(self, dim: int, classes: int) -> "ApartLoss":
        return ApartLoss()


class ApartLoss(Loss):
    power = 2.0

    def terms(self, batch: Embedded) -> Terms:
        return Terms({"apart": ((batch.images - batch.texts).norm(dim=1) ** self.power).mean()})


@pytest.fixture
def registered() -> Iterator[None]:
    before = LOSSES.copy()
    register_loss("apart", f"{__name__}:Apart")
    yield
    LOSSES.clear()
    LOSSES.update(before)


@pytest.mark.usefixtures("registered")
def test_it_works_in_json_and_on_the_command_line() -> None:
    recipe = change(toy_recipe(), ["stages.stage-1.losses.apart={}", "stages.stage-1.losses.apart.power=1"])
    assert recipe.stages[0].loss(Apart) == Apart(power=1)
    assert Recipe.parse(json.loads(recipe.model_dump_json())) == recipe
    assert Recipe.model_validate_json(recipe.model_dump_json()) == recipe
    assert differences(toy_recipe(), recipe) == ('stages.stage-1.losses.apart={"weight": 1.0, "power": 1.0}',)
    with pytest.raises(SettingsError, match=r"'stages\.stage-1\.losses\.apart\.pwer'; did you mean 'power'"):
        change(recipe, ["stages.stage-1.losses.apart.pwer=1"])
    with pytest.raises(SettingsError, match=r"losses\.apart\.power': .*got 'far'"):
        change(recipe, ["stages.stage-1.losses.apart.power=far"])


@pytest.mark.usefixtures("registered")
def test_the_objective_sums_over_it() -> None:
    own = (Instance(dropout=0.0), Apart(weight=2.0, power=1.0))
    objective = Objective(build_network(toy_recipe().model, 20), [own], 3)
    objective.use(own)
    groups = torch.tensor([0, 1, 2])
    batch = TrainingBatch(torch.randn(3, 64), torch.randint(1, 20, (3, 10)), groups, groups)
    images, texts, _ = objective.model.embed_pairs(batch.images, batch.token_ids)
    found = objective(batch)
    apart = (images - texts).norm(dim=1).mean()
    torch.testing.assert_close(found["apart"], apart.detach())
    torch.testing.assert_close(found["loss"], found["visual"] + found["textual"] + 2 * apart)


@pytest.mark.usefixtures("registered")
def test_a_broken_loss_breaks_no_other() -> None:
    register_loss("nowhere", "limner.losses.nowhere:Nowhere")
    assert change(toy_recipe(), ["seed=1"]).seed == 1
    with pytest.raises(SettingsError, match=r"losses\.1': loss 'nowhere' cannot be imported"):
        change(toy_recipe(), ["stages.stage-1.losses.nowhere={}"])


@pytest.mark.usefixtures("registered")
def test_two_losses_of_one_kind_and_places_without_one_are_refused() -> None:
    register_loss("apart", f"{__name__}:Apart")  # the same again is none of another
    with pytest.raises(SettingsError, match="two losses of kind 'apart'"):
        register_loss("apart", "elsewhere:Apart")
    register_loss("nowhere", "limner.losses.nowhere:Nowhere")
    with pytest.raises(
        SettingsError, match=r"'nowhere' cannot be imported from limner\.losses\.nowhere:Nowhere"
    ):
        loss_settings("nowhere")
    register_loss("odd", f"{__name__}:Apart")
    with pytest.raises(SettingsError, match="no LossSettings whose kind is 'odd'"):
        loss_settings("odd")
    with pytest.raises(SettingsError, match="unknown loss 'instnce'; did you mean 'instance'"):
        loss_settings("instnce")
