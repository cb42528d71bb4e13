import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from limner.losses import InstanceLoss
from limner.losses.loss import Examples
from tests.reference.losses import instance_loss


def _case(
    seed: int, batch: int, dim: int, identities: int
) -> tuple[InstanceLoss, torch.Tensor, torch.Tensor]:
    torch.manual_seed(seed)
    loss = InstanceLoss(dim, identities).double()
    return loss, torch.randn(batch, dim, dtype=torch.float64), torch.randint(identities, (batch,))


@settings(max_examples=25)
@given(
    st.integers(0, 10_000),
    st.integers(1, 6),
    st.integers(1, 5),
    st.integers(1, 7),
    st.sampled_from([None, 1, 2, 9]),
)
def test_equals_the_slow_twin(seed: int, batch: int, dim: int, identities: int, block: int | None) -> None:
    loss, features, groups = _case(seed, batch, dim, identities)
    loss.block = block
    expected = instance_loss(features.tolist(), loss.weight.tolist(), groups.tolist())
    # the loss itself is reduced in float32
    assert loss(features, groups).item() == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_permuting_the_batch_changes_nothing() -> None:
    loss, features, groups = _case(1, 8, 4, 5)
    order = torch.randperm(8)
    torch.testing.assert_close(loss(features, groups), loss(features[order], groups[order]))


def test_renaming_identities_changes_nothing() -> None:
    loss, features, groups = _case(2, 8, 4, 5)
    before = loss(features, groups)
    names = torch.randperm(5)
    with torch.no_grad():
        loss.weight[names] = loss.weight.clone()
    torch.testing.assert_close(loss(features, names[groups]), before)


def test_both_modalities_share_one_classifier() -> None:
    loss, images, groups = _case(3, 4, 3, 5)
    texts = torch.randn_like(images)
    torch.autograd.backward(loss(images, groups) + loss(texts, groups))
    assert loss.weight.grad is not None
    assert len(list(loss.parameters())) == 1
    both = loss.weight.grad.clone()
    loss.zero_grad()
    torch.autograd.backward(loss(images, groups))
    only_images = loss.weight.grad.clone()
    loss.zero_grad()
    torch.autograd.backward(loss(texts, groups))
    torch.testing.assert_close(both, only_images + loss.weight.grad)


def test_untrained_loss_is_that_of_guessing() -> None:
    torch.manual_seed(0)
    identities = 2000
    loss = InstanceLoss(64, identities)
    features = 1e-3 * torch.randn(50, 64)
    assert loss(features, torch.randint(identities, (50,))).item() == pytest.approx(
        math.log(identities), rel=0.01
    )


def test_scaled_cosine_ignores_lengths() -> None:
    loss = InstanceLoss(4, 5, scale=16.0)
    features, groups = torch.randn(6, 4), torch.randint(5, (6,))
    torch.testing.assert_close(loss(features, groups), loss(7 * features, groups))


def test_dropout_acts_in_training_only() -> None:
    loss = InstanceLoss(64, 5, dropout=0.75)
    features, groups = torch.randn(6, 64), torch.randint(5, (6,))
    assert not torch.equal(loss(features, groups), loss(features, groups))
    loss.eval()
    assert torch.equal(loss(features, groups), loss(features, groups))


@pytest.mark.parametrize("scale", [None, 16.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [False, True])
def test_departures_equal_their_twin(scale: float | None, smoothing: float, bias: bool) -> None:
    torch.manual_seed(0)
    loss = InstanceLoss(3, 4, bias=bias, scale=scale, smoothing=smoothing).double()
    if loss.bias is not None:
        torch.nn.init.normal_(loss.bias)
    features, groups = torch.randn(5, 3, dtype=torch.float64), torch.randint(4, (5,))
    expected = instance_loss(
        features.tolist(),
        loss.weight.tolist(),
        groups.tolist(),
        bias=None if loss.bias is None else loss.bias.tolist(),
        scale=scale,
        smoothing=smoothing,
    )
    assert loss(features, groups).item() == pytest.approx(expected, rel=1e-12)


def test_rows_start_at_the_mean_of_their_class_however_large_it_is() -> None:
    """Classes of 1, 2 and 9 images: sums in place of means would point elsewhere."""
    torch.manual_seed(0)
    classes = torch.tensor([0, 1, 1, *[2] * 9])
    images = torch.nn.functional.normalize(torch.randn(len(classes), 16) + 1, dim=1)
    loss = InstanceLoss(16, 3, initial="images")
    loss.start(lambda: Examples(images, classes, images, classes), first=True)
    means = torch.stack([images[classes == one].mean(dim=0) for one in range(3)])
    expected = torch.nn.functional.normalize(means - means.mean(dim=0), dim=1)
    torch.testing.assert_close(loss.weight.detach(), expected)
