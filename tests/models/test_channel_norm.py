"""Batch normalisation of the last axis, and the projections of pretrained towers that use it."""

import pytest
import torch
from torch import nn

from limner.models.channel_norm import ChannelNorm
from limner.models.image import BackboneSettings
from limner.models.pretrained import Pretrained, PretrainedSettings
from limner.models.registry import build_network
from limner.models.text_tower import TextTowerSettings


@pytest.mark.parametrize("rows", [(30,), (5, 6), (5, 3, 2)])
def test_norm_equals_its_definition(rows: tuple[int, ...]) -> None:
    """γ (x − μ) / √(σ² + ε) + β over all rows; the running statistics move towards μ and σ²."""
    torch.manual_seed(0)
    norm = ChannelNorm(7).double()
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    x = torch.randn(*rows, 7, dtype=torch.float64) * 3 + 1
    flat = x.flatten(0, -2)
    mean, variance = flat.mean(0), flat.var(0, correction=0)
    expected = (x - mean) / (variance + norm.eps).sqrt() * norm.weight + norm.bias
    torch.testing.assert_close(norm(x), expected)
    torch.testing.assert_close(norm.running_mean, 0.1 * mean)
    torch.testing.assert_close(norm.running_var, 0.9 + 0.1 * flat.var(0))


def test_a_value_that_is_not_finite_is_seen() -> None:
    """It reaches no other channel of its norm: a run that breaks is stopped, not covered up."""
    x = torch.randn(3, 4, 10)
    x[1, 2, 4] = float("nan")
    out = ChannelNorm(10)(x)
    assert out[:, :, 4].isnan().all()
    assert not out[:, :, :4].isnan().any()
    assert not out[:, :, 5:].isnan().any()


def test_one_row_has_no_variance() -> None:
    with pytest.raises(ValueError, match="more than 1 value"):
        ChannelNorm(4)(torch.randn(1, 1, 4))


def towers(**changes: object) -> PretrainedSettings:
    return PretrainedSettings(
        backbone=BackboneSettings(name="resnet-18", width=0.125),
        text=TextTowerSettings(words=16, feature="mean", width=16, layers=1, heads=2),
        dim=16,
        projection="new",
    ).replace(**changes)


def test_normalised_projections() -> None:
    """BN, dropout and a linear layer above each tower; a trained network has no dropout, and tokens pass it, too."""
    torch.manual_seed(0)
    model = build_network(towers(projection="normalised", dropout=0.5), 60).eval()
    assert isinstance(model, Pretrained)
    ids = torch.randint(5, 60, (12, 16))
    feature = model.text(ids)
    assert isinstance(model.text_projection, nn.Sequential)
    norm, linear = model.text_projection
    assert isinstance(norm, ChannelNorm)
    norm.running_mean, norm.running_var = feature.detach().mean(0), feature.detach().var(0)
    expected = linear((feature - feature.mean(0)) / (feature.var(0) + norm.eps).sqrt())
    torch.testing.assert_close(model.encode_texts(ids), expected)
    assert model.embed_tokens(ids).shape == (12, 16, 16)
    model.train()
    assert not torch.equal(model.encode_texts(ids), model.encode_texts(ids))


def test_earlier_fingerprints_stay() -> None:
    """Dropout changes no embedding, and stores of other pairs know nothing of it."""
    new, normalised = towers(), towers(projection="normalised")
    assert "dropout" not in new.identity()
    assert new.identity() != normalised.identity()
    assert normalised.identity() == normalised.replace(dropout=0.1).identity()
