"""What holds for each loss of the cosines of a batch's pairs."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from limner.losses import CircleLoss, ContrastiveLoss, Embedded, SDMLoss, SigLIPLoss, TALLoss
from limner.losses.loss import Loss, Mined
from tests.reference.gradients import autograd_gradients, numeric_gradients
from tests.reference.losses import circle_loss, contrastive_loss, sdm_loss, siglip_loss, tal_loss

Rows = list[list[float]]


@dataclass(frozen=True)
class Case:
    """A loss, and its slow twin with the same settings."""

    name: str
    made: Callable[[], Loss]
    twin: Callable[[Rows, Rows, list[int]], float]
    noise: float | None = None
    """Distance of a sentence from its picture; None = they have nothing to do with each other."""
    every_row: bool = True
    """True if each pair has a gradient: a hinge that is met, and a softmax that is sure, have none."""


CASES = [
    Case("circle", CircleLoss, lambda one, two, of: circle_loss(one, two, of, 0.25, 256), noise=0.5),
    Case(
        "contrastive", lambda: ContrastiveLoss(0.01), lambda one, two, of: contrastive_loss(one, two, of, 100)
    ),
    # in half precision 1e-8 is 0: the logarithm of what does not match would be −∞, the loss infinite
    Case("sdm", SDMLoss, lambda one, two, of: sdm_loss(one, two, of, 0.02), every_row=False),
    Case("siglip", SigLIPLoss, lambda one, two, of: siglip_loss(one, two, of, 10, -10)),
    # the exponentials are up to 1e29, and a logit of 60 has steps of a quarter in bfloat16
    Case("tal", TALLoss, lambda one, two, of: tal_loss(one, two, of, 0.1, 0.015), every_row=False),
]
each = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


WEIGHED = {"circle": (CircleLoss, circle_loss), "tal": (TALLoss, tal_loss)}
"""Losses that weigh the matches and the others of an anchor, and their slow twins."""
weighed = pytest.mark.parametrize("name", WEIGHED)


@weighed
@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    batch=st.integers(1, 7),
    groups=st.integers(1, 4),
    margin=st.floats(0, 1),
    sharpness=st.floats(0, 1),
)
def test_equals_the_slow_twin(
    name: str, seed: int, batch: int, groups: int, margin: float, sharpness: float
) -> None:
    torch.manual_seed(seed)
    images, texts = torch.randn(2, batch, 5, dtype=torch.float64)
    group = torch.randint(groups, (batch,))
    # the twins' plain exponentials overflow above a γ of 128, where two are multiplied, and below a τ of 0.015
    given = (margin / 2, 1 + 127 * sharpness) if name == "circle" else (margin, 0.015 + 2 * sharpness)
    loss, twin = WEIGHED[name]
    expected = twin(images.tolist(), texts.tolist(), group.tolist(), *given)
    near = 1e-8 if name == "circle" else 1e-12
    assert loss(*given)(images, texts, group).item() == pytest.approx(expected, rel=1e-9, abs=near)


@weighed
@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_those_of_the_twin_with_fixed_weights(name: str, seed: int) -> None:
    """The weights of several matches are numbers: a gradient through them would be another one."""
    torch.manual_seed(seed)
    images, texts = torch.randn(2, 5, 4, dtype=torch.float64)
    groups = torch.tensor([0, 1, 1, 2, 1])
    fixed = images.tolist(), texts.tolist()
    given = (0.25, 8.0) if name == "circle" else (0.5, 0.2)
    loss, twin = WEIGHED[name]
    expected = numeric_gradients(
        lambda one, other: twin(one, other, groups.tolist(), *given, weights_of=fixed), images, texts
    )
    got = autograd_gradients(lambda one, other: loss(*given)(one, other, groups), images, texts)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-7)


@weighed
def test_without_a_negative_it_is_zero_with_finite_gradients(name: str) -> None:
    images, texts = (torch.randn(3, 4, requires_grad=True) for _ in range(2))
    loss = WEIGHED[name][0]()(images, texts, torch.zeros(3, dtype=torch.long))
    assert loss.item() == 0
    torch.autograd.backward(loss)
    for rows in (images, texts):
        assert rows.grad is not None
        assert not rows.grad.any()


@each
@settings(max_examples=20)
@given(seed=st.integers(0, 10_000))
def test_order_names_lengths_and_directions_change_nothing(case: Case, seed: int) -> None:
    torch.manual_seed(seed)
    images, texts = torch.randn(2, 8, 3, dtype=torch.float64)
    groups = torch.randint(4, (8,))
    order, names = torch.randperm(8), torch.randperm(4)
    loss = case.made()
    expected = loss(images, texts, groups)
    torch.testing.assert_close(loss(images[order], texts[order], names[groups[order]]), expected)
    torch.testing.assert_close(loss(7 * texts, 0.1 * images, groups), expected)


@each
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_is_that_of_the_features_alone(case: Case, kind: torch.dtype) -> None:
    torch.manual_seed(0)
    images, texts = torch.randn(2, 6, 16)
    if case.noise is not None:
        texts = images + case.noise * texts
    images, texts = images.to(kind), texts.to(kind)
    groups = torch.tensor([0, 1, 2, 3, 3, 4])
    expected = case.twin(images.tolist(), texts.tolist(), groups.tolist())
    images, texts = images.requires_grad_(), texts.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        value: Tensor = case.made()(images, texts, groups)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(expected, rel=1e-4)
    torch.autograd.backward(value)
    for rows in (images, texts):
        assert rows.grad is not None
        assert torch.isfinite(rows.grad).all()
        assert rows.grad.any(dim=1).all() if case.every_row else rows.grad.any()


@each
def test_it_reads_the_pairs_alone(case: Case) -> None:
    images, texts = torch.randn(2, 6, 3)
    groups, classes = torch.tensor([0, 1, 1, 2]), torch.arange(4)
    beside = Mined(torch.tensor([8, 9]), torch.tensor([8, 9]))
    batch = Embedded(images[:4], texts[:4], groups, classes, images, texts, beside)
    loss = case.made()
    torch.testing.assert_close(loss.terms(batch).losses[case.name], loss(images[:4], texts[:4], groups))
