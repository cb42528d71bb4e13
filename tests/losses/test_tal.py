import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from limner.losses import TAL, RankingLoss, TALLoss
from limner.recipes.change import change
from tests.reference.gradients import autograd_gradients, numeric_gradients
from tests.reference.losses import tal_loss
from tests.toy import toy_recipe


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    batch=st.integers(1, 7),
    groups=st.integers(1, 4),
    margin=st.floats(0, 1),
    temperature=st.floats(0.015, 2),
)
def test_equals_the_slow_twin(seed: int, batch: int, groups: int, margin: float, temperature: float) -> None:
    torch.manual_seed(seed)
    images, texts = torch.randn(2, batch, 5, dtype=torch.float64)
    group = torch.randint(groups, (batch,))
    got = TALLoss(margin, temperature)(images, texts, group).item()
    expected = tal_loss(images.tolist(), texts.tolist(), group.tolist(), margin, temperature)
    assert got == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_those_of_the_twin_with_fixed_weights(seed: int) -> None:
    """The weights of several matches are numbers: a gradient through them would be another one."""
    torch.manual_seed(seed)
    images, texts = torch.randn(2, 5, 4, dtype=torch.float64)
    groups = torch.tensor([0, 1, 1, 2, 1])
    fixed = images.tolist(), texts.tolist()
    expected = numeric_gradients(
        lambda one, other: tal_loss(one, other, groups.tolist(), 0.5, 0.2, weights_of=fixed), images, texts
    )
    loss = TALLoss(0.5, 0.2)
    got = autograd_gradients(lambda one, other: loss(one, other, groups), images, texts)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-7)


def test_is_zero_where_every_match_is_ahead_by_the_margin() -> None:
    apart = torch.eye(4, requires_grad=True)
    loss = TALLoss()(apart, torch.eye(4), torch.arange(4))
    assert loss.item() == 0
    torch.autograd.backward(loss)
    assert apart.grad is not None
    assert not apart.grad.any()
    # the cosine of a match is 1 and that of the others 0: a hinge is margin - 1 + tau log 3
    assert TALLoss(margin=1.5, temperature=0.1)(torch.eye(4), torch.eye(4), torch.arange(4)).item() == (
        pytest.approx(2 * (0.5 + 0.1 * torch.tensor(3.0).log().item()))
    )


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), batch=st.integers(2, 8), temperature=st.floats(0.001, 1))
def test_it_bounds_the_hardest_negatives_from_above(seed: int, batch: int, temperature: float) -> None:
    """By at most tau log(negatives) in each direction, which is 0 for a tau of 0."""
    torch.manual_seed(seed)
    images, texts = torch.randn(2, batch, 4, dtype=torch.float64)
    groups = torch.arange(batch)
    hardest = RankingLoss(margin=0.1)(images, texts, groups).item()
    bound = TALLoss(0.1, temperature)(images, texts, groups).item()
    slack = 2 * temperature * torch.tensor(float(batch - 1)).log().item()
    assert hardest - 1e-9 <= bound <= hardest + slack + 1e-9


def test_pairs_of_one_identity_are_no_negatives() -> None:
    """Three pairs of one person with the same features: as negatives of each other they would cost the margin."""
    images, texts = torch.eye(4)[[0, 0, 0, 1]], torch.eye(4)[[0, 0, 0, 1]]
    assert TALLoss()(images, texts, torch.tensor([5, 5, 5, 6])).item() == 0
    assert TALLoss()(images, texts, torch.arange(4)).item() > 0.1


def test_without_a_negative_it_is_zero_with_finite_gradients() -> None:
    images, texts = (torch.randn(3, 4, requires_grad=True) for _ in range(2))
    loss = TALLoss()(images, texts, torch.zeros(3, dtype=torch.long))
    assert loss.item() == 0
    torch.autograd.backward(loss)
    for rows in (images, texts):
        assert rows.grad is not None
        assert not rows.grad.any()


def test_a_temperature_whose_exponentials_overflow_is_the_hardest_negative() -> None:
    images, texts = torch.randn(2, 6, 3)
    groups = torch.arange(6)
    got = TALLoss(0.1, 1e-4)(images, texts, groups)
    torch.testing.assert_close(got, RankingLoss(0.1)(images, texts, groups), rtol=1e-3, atol=1e-3)


def test_it_is_a_loss_of_any_stage() -> None:
    recipe = change(toy_recipe(), ["stages.stage-1.losses.tal={}"])
    assert recipe.stages[0].loss(TAL) == TAL(margin=0.1, temperature=0.015)
