"""The classes that a step of the instance loss draws, its loss and its sparse gradients."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from limner.losses import InstanceLoss
from limner.losses.instance import Instance
from limner.losses.loss import Embedded
from limner.losses.sampled_classes import draw_classes
from tests.reference.losses import instance_loss

SHARES = st.floats(0.01, 1.0)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 12), SHARES)
def test_the_batch_is_always_among_the_drawn(seed: int, classes: int, batch: int, share: float) -> None:
    torch.manual_seed(seed)
    own = torch.randint(classes, (batch,))
    drawn = draw_classes(own, classes, share).tolist()
    assert drawn == sorted(set(drawn))
    assert set(own.tolist()) <= set(drawn) <= set(range(classes))
    assert len(drawn) == max(len(set(own.tolist())), round(share * classes))


def test_the_others_are_drawn_alike() -> None:
    """2,000 draws of 4 classes: 2 of the batch, 2 of 8 others, each in a quarter of the draws."""
    torch.manual_seed(0)
    own = torch.tensor([7, 2, 7])
    counts = torch.zeros(10)
    for _ in range(2000):
        counts[draw_classes(own, 10, 0.4)] += 1
    assert counts[[2, 7]].tolist() == [2000, 2000]
    others = counts[[0, 1, 3, 4, 5, 6, 8, 9]]
    # five standard deviations of a binomial
    assert (others - 500).abs().max() < 5 * (2000 * 0.25 * 0.75) ** 0.5


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    batch=st.integers(1, 5),
    dim=st.integers(1, 4),
    classes=st.integers(1, 12),
    share=SHARES,
    bias=st.booleans(),
    scale=st.sampled_from([None, 4.0]),
    smoothing=st.sampled_from([0.0, 0.2]),
    block=st.sampled_from([None, 1, 3]),
)
def test_loss_and_gradients_are_those_of_a_softmax_over_the_drawn_rows(
    seed: int,
    batch: int,
    dim: int,
    classes: int,
    share: float,
    bias: bool,
    scale: float | None,
    smoothing: float,
    block: int | None,
) -> None:
    torch.manual_seed(seed)
    loss = InstanceLoss(dim, classes, bias=bias, scale=scale, smoothing=smoothing).double()
    if loss.bias is not None:
        torch.nn.init.normal_(loss.bias)
    loss.sample, loss.block = share, block
    features = torch.randn(batch, dim, dtype=torch.float64, requires_grad=True)
    own = torch.randint(classes, (batch,))
    state = torch.random.get_rng_state()
    drawn = draw_classes(own, classes, share)
    torch.random.set_rng_state(state)
    found = loss(features, own)
    places = [drawn.tolist().index(one) for one in own.tolist()]
    biases = None if loss.bias is None else loss.bias[drawn]
    expected = instance_loss(
        features.tolist(),
        loss.weight[drawn].tolist(),
        places,
        bias=None if biases is None else biases.tolist(),
        scale=scale,
        smoothing=smoothing,
    )
    # the logits are in float32 at least
    assert found.item() == pytest.approx(expected, rel=1e-5, abs=1e-6)
    rows = loss.weight.detach()[drawn].requires_grad_()
    shifts = None if biases is None else biases.detach().requires_grad_()
    given_features = features.detach().requires_grad_()
    logits = (
        F.linear(given_features, rows)
        if scale is None
        else scale * F.linear(F.normalize(given_features), F.normalize(rows))
    )
    if shifts is not None:
        logits = logits + shifts
    torch.autograd.backward(F.cross_entropy(logits, torch.tensor(places), label_smoothing=smoothing))
    torch.autograd.backward(found)
    pairs = [
        (features.grad, given_features.grad),
        *_sparse(loss.weight.grad, rows.grad, drawn, classes, share),
    ]
    if loss.bias is not None and shifts is not None:
        pairs += _sparse(loss.bias.grad, shifts.grad, drawn, classes, share)
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)


def _sparse(
    found: Tensor | None, rows: Tensor | None, drawn: Tensor, classes: int, share: float
) -> list[tuple[Tensor | None, Tensor | None]]:
    """A gradient beside the rows of its twin: sparse, with the drawn rows alone; dense where all are drawn."""
    assert found is not None
    assert found.is_sparse == (share < 1)
    if found.is_sparse:
        assert found.coalesce().indices()[0].tolist() == drawn.tolist()
        found = found.to_dense()
    assert len(found) == classes
    rest = torch.ones(classes, dtype=torch.bool)
    rest[drawn] = False
    assert not found[rest].any()
    return [(found[drawn], rows)]


def _terms(loss_settings: Instance, *, train: bool = True) -> tuple[dict[str, float], Tensor, InstanceLoss]:
    torch.manual_seed(2)
    images, texts = torch.randn(2, 5, 8)
    classes = torch.tensor([3, 29, 0, 3, 11])
    loss = loss_settings.build(8, 30).train(train)
    loss.use(loss_settings, 5)
    torch.manual_seed(1)
    terms = loss.terms(Embedded(images, texts, torch.arange(5), classes, images, texts))
    torch.autograd.backward(torch.stack([*terms.losses.values()]).sum())
    assert loss.weight.grad is not None
    found = {name: value.item() for name, value in {**terms.losses, **terms.shown}.items()}
    return found, loss.weight.grad, loss


@pytest.mark.parametrize("changed", [{}, {"scale": 8.0}, {"smoothing": 0.1, "bias": True}, {"joint": 0.5}])
def test_one_draw_serves_all_terms_in_blocks_too(changed: dict[str, Any]) -> None:
    of_all, gradient, _ = _terms(Instance(dropout=0.4, sample=0.3, **changed))
    # 4 classes of the batch and 5 others
    assert gradient.coalesce().indices().shape == (1, 9)
    in_blocks, other, _ = _terms(Instance(dropout=0.4, sample=0.3, block=2, **changed))
    assert of_all == pytest.approx(in_blocks, rel=1e-5)
    torch.testing.assert_close(gradient.to_dense(), other.to_dense(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("block", [None, 7])
def test_outside_of_training_and_with_all_classes_nothing_is_drawn(block: int | None) -> None:
    """The random numbers, too, are those of a loss that cannot draw."""
    whole = _terms(Instance(dropout=0.0, block=block))
    evaluated = _terms(Instance(dropout=0.0, sample=0.3, block=block), train=False)
    assert evaluated[0] == whole[0]
    assert torch.equal(evaluated[1], whole[1])
    torch.manual_seed(1)
    expected = torch.rand(1)
    for settings_, train in ((Instance(dropout=0.0, block=block), True), (Instance(sample=0.3), False)):
        _terms(settings_, train=train)
        assert torch.equal(torch.rand(1), expected)


def test_errors_are_among_the_drawn() -> None:
    """With the batch's classes alone nothing else can have the highest logit: one class is always right."""
    loss = InstanceLoss(4, 1000)
    loss.sample = 1e-3
    rows, own = torch.randn(3, 4), torch.zeros(3, dtype=torch.int64)
    shown = loss.terms(Embedded(rows, rows, own, own, rows, rows)).shown
    assert {name: value.item() for name, value in shown.items()} == {"visual_error": 0, "textual_error": 0}
