"""The cross-entropy over blocks of classes against that over all logits, and the instance loss with it."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from limner.losses import InstanceLoss
from limner.losses.blocked_softmax import blocked_cross_entropy
from limner.losses.instance import Instance
from limner.losses.loss import Embedded


def _plain(
    x: Tensor, weight: Tensor, bias: Tensor | None, classes: Tensor, scale: float | None, smoothing: float
) -> tuple[Tensor, Tensor]:
    rows = weight if scale is None else scale * F.normalize(weight, dim=1, eps=1e-12)
    logits = x @ rows.T if bias is None else x @ rows.T + bias
    losses = F.cross_entropy(logits, classes, label_smoothing=smoothing, reduction="none")
    return losses, logits


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 6),
    dim=st.integers(1, 5),
    classes=st.integers(1, 12),
    block=st.integers(1, 14),
    with_bias=st.booleans(),
    scale=st.sampled_from([None, 0.5, 20.0]),
    smoothing=st.sampled_from([0.0, 0.3]),
    size=st.sampled_from([1e-3, 1.0, 300.0]),
)
def test_losses_and_gradients_are_those_of_all_logits(
    seed: int,
    rows: int,
    dim: int,
    classes: int,
    block: int,
    with_bias: bool,
    scale: float | None,
    smoothing: float,
    size: float,
) -> None:
    torch.manual_seed(seed)
    x = (size * torch.randn(rows, dim, dtype=torch.float64)).requires_grad_()
    weight = torch.randn(classes, dim, dtype=torch.float64).requires_grad_()
    bias = torch.randn(classes, dtype=torch.float64).requires_grad_() if with_bias else None
    own = torch.randint(classes, (rows,))
    weights = torch.rand(rows, dtype=torch.float64)
    learnt = [one for one in (x, weight, bias) if one is not None]
    expected, logits = _plain(x, weight, bias, own, scale, smoothing)
    found, right = blocked_cross_entropy(x, weight, bias, own, scale=scale, smoothing=smoothing, block=block)
    torch.testing.assert_close(found, expected)
    # where no other class is as near as rounding
    best = logits.topk(min(2, classes), dim=1).values
    clear = best[:, 0] - best[:, -1] > 1e-9 * best.abs().amax(1)
    assert torch.equal((right == (logits.argmax(1) == own))[clear], torch.ones(int(clear.sum())).bool())
    theirs = torch.autograd.grad((weights * expected).sum(), learnt)
    ours = torch.autograd.grad((weights * found).sum(), learnt)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9 * size)


def test_of_equal_logits_the_first_class_is_the_highest() -> None:
    x, weight = torch.ones(4, 1), torch.tensor([[1.0], [2.0], [2.0], [2.0]])
    for block in (1, 2, 3, 4, 9):
        _, right = blocked_cross_entropy(x, weight, None, torch.arange(4), block=block)
        assert right.tolist() == [False, True, False, False]


def test_huge_logits_do_not_overflow() -> None:
    x, weight = torch.full((2, 1), 1e20), torch.tensor([[-1e18], [1.0], [1e18]])
    losses, _ = blocked_cross_entropy(x, weight, None, torch.tensor([2, 2]), block=1)
    assert losses.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("changed", [{}, {"scale": 8.0}, {"smoothing": 0.1, "bias": True}, {"joint": 0.5}])
@pytest.mark.parametrize("block", [1, 7, 100])
def test_the_instance_loss_is_the_same_in_blocks(changed: dict[str, Any], block: int) -> None:
    """Terms, errors and gradients, but for dropout, which is drawn alike."""
    batch = _batch()
    found: list[tuple[dict[str, float], Tensor]] = []
    for chosen in (None, block):
        loss_settings = Instance(dropout=0.4, block=chosen, **changed)
        torch.manual_seed(0)
        loss = loss_settings.build(8, 30)
        loss.use(loss_settings, 5)
        torch.manual_seed(1)
        terms = loss.terms(batch)
        assert loss.weight.grad is None
        torch.autograd.backward(torch.stack([*terms.losses.values()]).sum())
        assert loss.weight.grad is not None
        values = {**terms.losses, **terms.shown}
        found.append(({name: value.item() for name, value in values.items()}, loss.weight.grad))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-5, atol=1e-6)


def test_alone_the_loss_is_the_same_in_blocks() -> None:
    loss = InstanceLoss(8, 30)
    features, classes = torch.randn(5, 8), torch.randint(30, (5,))
    expected = loss(features, classes)
    loss.block = 7
    torch.testing.assert_close(loss(features, classes), expected)


def test_under_autocast_blocks_stay_in_float32() -> None:
    loss = InstanceLoss(8, 30)
    features, classes = torch.randn(5, 8), torch.randint(30, (5,))
    expected = loss(features, classes)
    loss.block = 7
    with torch.autocast("cpu", torch.bfloat16):
        found = loss(features, classes)
    torch.testing.assert_close(found, expected)


def _batch() -> Embedded:
    torch.manual_seed(2)
    images, texts = torch.randn(2, 5, 8)
    classes = torch.tensor([3, 29, 0, 3, 11])
    return Embedded(images, texts, torch.arange(5), classes, images, texts)
