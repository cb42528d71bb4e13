import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from limner.errors import SettingsError
from limner.losses import Contrastive, ContrastiveLoss, Embedded
from limner.losses.contrastive import Positives
from limner.models.registry import build_network
from limner.recipes.change import change
from limner.training.objective import Objective
from limner.training.optimiser import make_optimisers
from limner.training.recipe import StageSettings
from tests.reference.gradients import autograd_gradients, numeric_gradients
from tests.reference.losses import contrastive_loss
from tests.toy import toy_recipe


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    batch=st.integers(1, 7),
    groups=st.integers(1, 4),
    temperature=st.floats(0.01, 2),
    learnt=st.booleans(),
    positives=st.sampled_from(["group", "pair"]),
)
def test_equals_the_slow_twin(
    seed: int, batch: int, groups: int, temperature: float, learnt: bool, positives: Positives
) -> None:
    torch.manual_seed(seed)
    images, texts = torch.randn(2, batch, 5, dtype=torch.float64)
    group = torch.randint(groups, (batch,))
    loss = ContrastiveLoss(temperature, learnt=learnt, positives=positives)
    scale = 1 / temperature if loss.log_scale is None else math.exp(loss.log_scale.item())
    expected = contrastive_loss(
        images.tolist(), texts.tolist(), group.tolist(), scale, pairs_alone=positives == "pair"
    )
    assert loss(images, texts, group).item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("positives", ["group", "pair"])
def test_gradients_are_those_of_the_twin(positives: Positives) -> None:
    torch.manual_seed(0)
    images, texts = torch.randn(2, 5, 4, dtype=torch.float64)
    groups = torch.tensor([0, 1, 1, 2, 1])
    loss = ContrastiveLoss(0.2, positives=positives).double()
    assert loss.log_scale is not None

    def twin(one: list[list[float]], other: list[list[float]], moved: float = 0.0) -> float:
        assert loss.log_scale is not None
        scale = math.exp(loss.log_scale.item() + moved)
        return contrastive_loss(one, other, groups.tolist(), scale, pairs_alone=positives == "pair")

    got = autograd_gradients(lambda one, other: loss(one, other, groups), images, texts)
    torch.testing.assert_close(got, numeric_gradients(twin, images, texts), rtol=1e-5, atol=1e-7)
    torch.autograd.backward(loss(images, texts, groups))
    assert loss.log_scale.grad is not None
    lists = images.tolist(), texts.tolist()
    assert loss.log_scale.grad.item() == pytest.approx(
        (twin(*lists, 1e-6) - twin(*lists, -1e-6)) / 2e-6, rel=1e-5
    )


def test_it_is_clips_own_loss_where_each_group_is_in_the_batch_once() -> None:
    images, texts = torch.randn(2, 6, 4)
    logits = F.normalize(images, dim=1) @ F.normalize(texts, dim=1).T / 0.07
    own = torch.arange(6)
    expected = (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2
    names = torch.randperm(6)
    for loss in (ContrastiveLoss(), ContrastiveLoss(learnt=False), ContrastiveLoss(positives="pair")):
        torch.testing.assert_close(loss(images, texts, names), expected)


def test_pairs_of_one_identity_are_no_negatives() -> None:
    """Three pairs of one person with the same features are at the floor: nothing pulls or pushes."""
    images, texts = torch.eye(4)[[0, 0, 0, 1]].requires_grad_(), torch.eye(4)[[0, 0, 0, 1]]
    groups = torch.tensor([5, 5, 5, 6])
    loss = ContrastiveLoss(0.02)(images, texts, groups)
    # the floor is the entropy of the targets: log 3 for three anchors of four
    assert loss.item() == pytest.approx(0.75 * math.log(3), rel=1e-5)
    torch.autograd.backward(loss)
    assert images.grad is not None
    assert images.grad.abs().max() < 1e-6


def test_which_sentence_of_a_group_is_whose_counts_for_clip_to_the_letter_alone() -> None:
    images, texts = torch.randn(2, 5, 4)
    groups, within = torch.tensor([5, 5, 5, 6, 7]), torch.tensor([1, 2, 0, 3, 4])
    by_group, by_pair = ContrastiveLoss(), ContrastiveLoss(positives="pair")
    torch.testing.assert_close(by_group(images, texts, groups), by_group(images, texts[within], groups))
    assert not torch.isclose(by_pair(images, texts, groups), by_pair(images, texts[within], groups))
    assert Contrastive().build(4, 0).positives == "group"


def test_is_near_zero_where_only_what_matches_is_similar() -> None:
    apart = torch.eye(4, dtype=torch.float64)
    loss = ContrastiveLoss(0.01, learnt=False)
    assert loss(apart, apart, torch.arange(4)).item() == pytest.approx(0, abs=1e-6)
    assert loss(apart, apart.flip(0), torch.arange(4)).item() > 10


def test_the_learnt_scale_is_clipped_after_a_step_and_comes_back() -> None:
    """A clamp in `forward` has no gradient above its limit: the scale would stay there for ever."""
    loss = ContrastiveLoss(0.0101)
    assert loss.log_scale is not None
    optimiser = torch.optim.SGD(loss.parameters(), lr=1.0)
    apart = torch.eye(3)
    # every match ahead by 0.003: a higher scale is better
    near = 0.1 * apart + 1
    for _ in range(3):
        optimiser.zero_grad()
        torch.autograd.backward(100 * loss(near, near, torch.arange(3)))
        optimiser.step()
        loss.after_step(lambda rows: rows)
        assert loss.scale(apart).item() <= 100.001
    assert loss.scale(apart).item() == pytest.approx(100)
    # every match behind: a lower one is
    optimiser.zero_grad()
    torch.autograd.backward(loss(apart, apart.flip(0), torch.arange(3)))
    optimiser.step()
    assert loss.scale(apart).item() < 99


def test_a_learnt_temperature_below_the_clip_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"losses\.contrastive.*clipped at 1/100.*got 0\.005"):
        change(toy_recipe(), ['stages.stage-1.losses.contrastive={"temperature": 0.005}'])
    assert Contrastive(temperature=0.005, learnt=False).part is None


def test_the_learnt_scale_is_a_part_without_weight_decay() -> None:
    own = (Contrastive(),)
    objective = Objective(build_network(toy_recipe().model, 20), [own])
    objective.use(own)
    assert objective.parts()["contrastive_scale"] == [*objective.loss("contrastive").parameters()]
    stage = StageSettings(name="one", losses=own)
    stage = stage.replace(
        optimiser=stage.optimiser.replace(multipliers={"contrastive_scale": 5.0}, weight_decay=0.1)
    )
    (optimiser,) = make_optimisers(objective.parts(), stage)
    (scale,) = objective.parts()["contrastive_scale"]
    (group,) = (group for group in optimiser.param_groups if any(one is scale for one in group["params"]))
    assert (group["weight_decay"], group["multiplier"]) == (0.0, 5.0)


def test_a_fixed_temperature_is_no_part() -> None:
    """A multiplier of it would do nothing, so it is refused; and a stage that learns nothing else, too."""
    fixed = 'stages.stage-1.losses.contrastive={"learnt": false}'
    assert change(toy_recipe(), [fixed]).stages[0].loss(Contrastive) == Contrastive(learnt=False)
    own = (Contrastive(learnt=False),)
    objective = Objective(build_network(toy_recipe().model, 20), [own])
    objective.use(own)
    assert not objective.handed_on()
    assert objective.parts().keys() == objective.model.parts().keys()
    part = 'stages.stage-1.optimiser.multipliers={"contrastive_scale": 2}'
    with pytest.raises(SettingsError, match="no part 'contrastive_scale'"):
        change(toy_recipe(), [fixed, part])
    assert change(toy_recipe(), ["stages.stage-1.losses.contrastive={}", part])


@pytest.mark.parametrize("second", ['{"temperature": 0.1}', '{"learnt": false}'])
def test_stages_share_one_temperature(second: str) -> None:
    both = ["stages.stage-1.losses.contrastive={}", f"stages.stage-2.losses.contrastive={second}"]
    with pytest.raises(SettingsError, match=r"share what losses\.contrastive learns"):
        change(toy_recipe(), both)


def test_it_shows_its_scale() -> None:
    images, texts = torch.randn(2, 4, 3)
    batch = Embedded(images, texts, torch.arange(4), torch.arange(4), images, texts)
    assert ContrastiveLoss(0.05).terms(batch).shown["contrastive_scale"].item() == pytest.approx(20)
    assert not ContrastiveLoss(learnt=False).terms(batch).shown
