import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from limner.errors import SettingsError
from limner.losses import Embedded, MaxSim, MaxSimLoss
from limner.losses.loss import LocalSimilarity
from limner.models.registry import build_network
from limner.recipes.change import change
from limner.training.objective import Objective
from tests.reference.losses import maxsim_loss
from tests.toy import toy_late, toy_recipe


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    batch=st.integers(1, 7),
    groups=st.integers(1, 4),
    temperature=st.floats(0.01, 2),
    learnt=st.booleans(),
)
def test_equals_the_slow_twin(seed: int, batch: int, groups: int, temperature: float, learnt: bool) -> None:
    torch.manual_seed(seed)
    similarity = 2 * torch.rand(batch, batch, dtype=torch.float64) - 1
    counted = torch.rand(batch) < 0.8
    group = torch.randint(groups, (batch,))
    loss = MaxSimLoss(temperature, learnt=learnt)
    scale = 1 / temperature
    if loss.contrastive.log_scale is not None:
        scale = math.exp(loss.contrastive.log_scale.item())
    expected = maxsim_loss(similarity.tolist(), counted.tolist(), group.tolist(), scale)
    assert loss(similarity, counted, group).item() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    order = torch.randperm(batch)
    moved = loss(similarity[order][:, order], counted[order], 7 - group[order])
    assert moved.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_gradients_by_finite_differences() -> None:
    torch.manual_seed(0)
    similarity = torch.rand(5, 5, dtype=torch.float64, requires_grad=True)
    counted, groups = torch.tensor([True, True, False, True, True]), torch.tensor([0, 1, 1, 1, 2])
    loss = MaxSimLoss(0.2).double()
    assert torch.autograd.gradcheck(lambda rows: loss(rows, counted, groups), (similarity,))
    torch.autograd.backward(loss(similarity, counted, groups))
    assert similarity.grad is not None
    assert not similarity.grad[2].any()
    assert not similarity.grad[:, 2].any()
    scale = loss.contrastive.log_scale
    assert scale is not None
    assert scale.grad is not None

    def twin(moved: float) -> float:
        rows = similarity.tolist(), counted.tolist(), groups.tolist()
        return maxsim_loss(*rows, math.exp(scale.item() + moved))

    assert scale.grad.item() == pytest.approx((twin(1e-6) - twin(-1e-6)) / 2e-6, rel=1e-5)


def test_without_a_word_there_is_a_gradient_of_nothing() -> None:
    similarity = torch.zeros(3, 3, requires_grad=True)
    value = MaxSimLoss()(similarity, torch.zeros(3, dtype=torch.bool), torch.arange(3))
    torch.autograd.backward(value)
    assert value.item() == 0
    assert similarity.grad is not None
    assert not similarity.grad.any()


def test_it_reads_maxsim_alone_and_shows_its_scale() -> None:
    similarity, groups = torch.rand(4, 4), torch.tensor([0, 1, 1, 2])
    local = {"late": LocalSimilarity(similarity, torch.ones(4, dtype=torch.bool))}
    none = torch.empty(4, 0)
    batch = Embedded(none, none, groups, groups, none, none, local=local)
    loss = MaxSimLoss(0.05)
    found = loss.terms(batch)
    torch.testing.assert_close(found.losses["maxsim"], loss(similarity, local["late"].counted, groups))
    assert found.shown["maxsim_scale"].item() == pytest.approx(20)
    assert not MaxSimLoss(learnt=False).terms(batch).shown


def test_the_learnt_scale_is_a_part_and_clipped_after_a_step() -> None:
    own = (MaxSim(temperature=0.01),)
    objective = Objective(build_network(toy_late().model, 20), [own])
    objective.use(own)
    assert objective.parts()["maxsim_scale"] == [*objective.loss("maxsim").parameters()]
    (scale,) = objective.parts()["maxsim_scale"]
    with torch.no_grad():
        scale.add_(1)
    objective.after_step(lambda rows: rows)
    assert scale.exp().item() == pytest.approx(100)
    assert MaxSim(learnt=False).part is None


def test_what_does_not_go_together_is_refused() -> None:
    late = "stages.stage-1.losses.maxsim"
    with pytest.raises(SettingsError, match=r"losses\.maxsim.*clipped at 1/100.*got 0\.005"):
        change(toy_late(), [f'{late}={{"temperature": 0.005}}'])
    with pytest.raises(
        SettingsError, match=r"maxsim needs late, which model\.system=dual-path.*=pretrained does"
    ):
        change(toy_recipe(), [f"{late}={{}}"])
    with pytest.raises(SettingsError, match=r"losses\.maxsim needs late interaction; set model\.late=\{\}"):
        change(toy_late(), ["model.late=null"])
    with pytest.raises(SettingsError, match=r"chunk: losses\.maxsim needs late, .* leave out chunk"):
        change(toy_late(), ["stages.stage-1.chunk=4"])
    with pytest.raises(SettingsError, match=r"share what losses\.maxsim learns"):
        change(toy_late(), [f'{late}={{"temperature": 0.1}}'])
    # MaxSim alone reaches no projection
    held = '["backbone", "text", "words", "late", "maxsim_scale"]'
    with pytest.raises(SettingsError, match="nothing is left to learn"):
        change(toy_late(), [f"stages.stage-1.frozen={held}", "stages.stage-1.losses.sdm=null"])
