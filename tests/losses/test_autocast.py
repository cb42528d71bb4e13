"""Losses that take dot products of features, under autocast."""

import pytest
import torch

from limner.losses import PairLoss, RankingLoss


@pytest.mark.parametrize("loss", [RankingLoss(margin=0.2), PairLoss()])
def test_the_loss_is_that_of_float32(loss: RankingLoss | PairLoss) -> None:
    torch.manual_seed(0)
    images, texts = torch.randn(2, 16, 8)
    images = images.requires_grad_()
    groups = torch.arange(16)
    expected = loss(images, texts, groups)
    with torch.autocast("cpu", torch.bfloat16):
        got = loss(images, texts, groups)
        of_half = loss(images.bfloat16(), texts.bfloat16(), groups)
    assert got.dtype == of_half.dtype == torch.float32
    assert got.item() == pytest.approx(expected.item(), rel=1e-6)
    assert of_half.item() == pytest.approx(expected.item(), rel=0.05)
    (gradient,) = torch.autograd.grad(got, images)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, images)[0])
