import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from limner.losses import PairLoss
from limner.losses.loss import Embedded
from tests.reference.losses import pair_loss


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), batch=st.integers(1, 7), groups=st.integers(1, 4))
def test_equals_the_slow_twin(seed: int, batch: int, groups: int) -> None:
    torch.manual_seed(seed)
    images, texts = torch.randn(2, batch, 5, dtype=torch.float64)
    group = torch.randint(groups, (batch,))
    got = PairLoss()(images, texts, group).item()
    expected = pair_loss(images.tolist(), texts.tolist(), group.tolist())
    assert got == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_is_near_zero_where_only_what_matches_is_likely() -> None:
    sure = 60 * torch.eye(4, dtype=torch.float64)
    assert PairLoss()(sure, sure, torch.arange(4)).item() == pytest.approx(0, abs=1e-6)
    assert PairLoss()(sure, sure.flip(0), torch.arange(4)).item() > 10


def test_several_matches_share_the_probability() -> None:
    torch.manual_seed(0)
    texts = torch.randn(1, 6, dtype=torch.float64).repeat(4, 1)
    images = torch.randn(4, 6, dtype=torch.float64)
    groups = torch.zeros(4, dtype=torch.long)
    loss = PairLoss()
    one_way = loss(images, texts, groups) - loss._divergence(
        texts @ torch.nn.functional.normalize(images, dim=1).T, torch.full((4, 4), 0.25, dtype=torch.float64)
    )
    assert one_way.item() == pytest.approx(0, abs=1e-6)


def test_permuting_pairs_and_renaming_groups_changes_nothing() -> None:
    images, texts = torch.randn(2, 8, 3)
    groups = torch.randint(4, (8,))
    order, names = torch.randperm(8), torch.randperm(4)
    loss = PairLoss()
    torch.testing.assert_close(
        loss(images, texts, groups), loss(images[order], texts[order], names[groups[order]])
    )


def test_gradients_reach_both_paths_and_stay_finite_for_long_features() -> None:
    images = (100 * torch.randn(4, 5)).requires_grad_()
    texts = (100 * torch.randn(4, 5)).requires_grad_()
    torch.autograd.backward(PairLoss()(images, texts, torch.tensor([0, 1, 1, 2])))
    for part in (images, texts):
        assert part.grad is not None
        assert torch.isfinite(part.grad).all()
        assert part.grad.any()


def test_its_term_is_of_the_features_as_they_are_and_of_groups() -> None:
    torch.manual_seed(0)
    images, texts = 3 * torch.randn(2, 6, 4)
    groups, classes = torch.tensor([0, 1, 2, 0, 3, 4]), torch.tensor([0, 1, 1, 0, 1, 0])
    batch = Embedded(images, texts, groups, classes, images, texts)
    torch.testing.assert_close(PairLoss().terms(batch).losses["pair"], PairLoss()(images, texts, groups))
