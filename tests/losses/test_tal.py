import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from limner.losses import TAL, RankingLoss, TALLoss
from limner.recipes.change import change
from tests.toy import toy_recipe


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


def test_a_temperature_whose_exponentials_overflow_is_the_hardest_negative() -> None:
    images, texts = torch.randn(2, 6, 3)
    groups = torch.arange(6)
    got = TALLoss(0.1, 1e-4)(images, texts, groups)
    torch.testing.assert_close(got, RankingLoss(0.1)(images, texts, groups), rtol=1e-3, atol=1e-3)


def test_it_is_a_loss_of_any_stage() -> None:
    recipe = change(toy_recipe(), ["stages.stage-1.losses.tal={}"])
    assert recipe.stages[0].loss(TAL) == TAL(margin=0.1, temperature=0.015)
