import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from limner.losses.sdm import SDM, SDMLoss
from limner.recipes.change import change
from tests.reference.losses import sdm_loss
from tests.toy import toy_recipe


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    batch=st.integers(1, 7),
    groups=st.integers(1, 4),
    temperature=st.floats(0.02, 2),
)
def test_equals_the_slow_twin(seed: int, batch: int, groups: int, temperature: float) -> None:
    torch.manual_seed(seed)
    images, texts = torch.randn(2, batch, 5, dtype=torch.float64)
    group = torch.randint(groups, (batch,))
    got = SDMLoss(temperature)(images, texts, group).item()
    expected = sdm_loss(images.tolist(), texts.tolist(), group.tolist(), temperature)
    assert got == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_is_near_zero_where_only_what_matches_is_similar() -> None:
    apart = torch.eye(4, dtype=torch.float64)
    assert SDMLoss()(apart, apart, torch.arange(4)).item() == pytest.approx(0, abs=1e-6)
    assert SDMLoss()(apart, apart.flip(0), torch.arange(4)).item() > 10


def test_gradients_reach_both_sides() -> None:
    images, texts = (torch.randn(4, 5, requires_grad=True) for _ in range(2))
    torch.autograd.backward(SDMLoss()(images, texts, torch.tensor([0, 1, 1, 2])))
    for rows in (images, texts):
        assert rows.grad is not None
        assert torch.isfinite(rows.grad).all()
        assert rows.grad.any(dim=1).all()


def test_it_is_a_loss_of_any_stage() -> None:
    recipe = change(toy_recipe(), ["stages.stage-1.losses.sdm={}"])
    assert recipe.stages[0].loss(SDM) == SDM(temperature=0.02)
