import pytest
import torch

from limner.losses import Circle, CircleLoss
from limner.recipes.change import change
from tests.reference.losses import cosine
from tests.toy import toy_recipe


def test_the_gradients_of_the_similarities_are_the_papers() -> None:
    """Z γ (s_n + m) and Z γ (s_p − 1 − m) for one match and one other, Z = 1 − exp(−loss)."""
    m, gamma = 0.25, 4.0
    # unit rows, by angles: two anchors that are alike, so that one of them stands for the direction
    similarities = torch.tensor([[0.6, 0.3], [0.3, 0.6]], dtype=torch.float64, requires_grad=True)
    loss = CircleLoss(m, gamma)._of_anchors(similarities, torch.eye(2, dtype=torch.bool))
    torch.autograd.backward(loss)
    z = 1 - torch.exp(-loss.detach())
    assert similarities.grad is not None
    # the mean over two anchors halves them
    torch.testing.assert_close(similarities.grad[0, 1], z * gamma * (0.3 + m) / 2)
    torch.testing.assert_close(similarities.grad[0, 0], z * gamma * (0.6 - 1 - m) / 2)


def test_is_near_zero_where_only_what_matches_is_similar() -> None:
    apart = torch.eye(4, dtype=torch.float64)
    assert CircleLoss()(apart, apart, torch.arange(4)).item() == pytest.approx(0, abs=1e-6)
    assert CircleLoss()(apart, apart.flip(0), torch.arange(4)).item() > 100


def test_the_decision_boundary_is_a_circle() -> None:
    """s_n² + (s_p − 1)² = 2 m²: there the exponents of one match and one other add up to 0."""
    m = 0.25
    for angle in (0.1, 0.7, 1.3):
        s_n = 2**0.5 * m * torch.tensor(angle).sin().item()
        s_p = 1 - 2**0.5 * m * torch.tensor(angle).cos().item()
        similarities = torch.tensor([[s_p, s_n], [s_n, s_p]], dtype=torch.float64)
        loss = CircleLoss(m)._of_anchors(similarities, torch.eye(2, dtype=torch.bool))
        assert loss.item() == pytest.approx(torch.tensor(2.0).log().item(), rel=1e-4)


def test_pairs_of_one_identity_are_no_negatives() -> None:
    images, texts = torch.eye(4)[[0, 0, 0, 1]], torch.eye(4)[[0, 0, 0, 1]]
    assert CircleLoss()(images, texts, torch.tensor([5, 5, 5, 6])).item() == pytest.approx(0, abs=1e-5)
    assert CircleLoss()(images, texts, torch.arange(4)).item() > 100


def test_the_farthest_similarities_stay_finite() -> None:
    """Every match opposite, every other the same: the exponents of one anchor add up to 1,250."""
    images = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], requires_grad=True)
    texts = torch.tensor([[-1.0, 0.0], [1.0, 0.0]])
    assert cosine(images[0].tolist(), texts[0].tolist()) == -1
    loss = CircleLoss()(images, texts, torch.arange(2))
    # γ (1 + m − −1) (1 − m − −1) + γ (1 + m) (1 − m), in both directions
    assert loss.item() == pytest.approx(2 * 256 * (2.25 * 1.75 + 1.25 * 0.75))


def test_it_is_a_loss_of_any_stage() -> None:
    recipe = change(toy_recipe(), ["stages.stage-1.losses.circle={}"])
    assert recipe.stages[0].loss(Circle) == Circle(margin=0.25, gamma=256)
