from typing import Any

import pytest
import torch
from torch.nn.functional import normalize

from limner.errors import SettingsError
from limner.models.image import BackboneSettings
from limner.models.mnil import MNiL, MNiLSettings
from limner.models.text_lstm import TextLSTMSettings


def tiny(**changes: object) -> Any:  # its heads and its text path are more than modules
    torch.manual_seed(0)
    settings = MNiLSettings(
        backbone=BackboneSettings(name="resnet-18", width=0.125),
        text=TextLSTMSettings(words=8, word_dim=12, hidden=18, layers=2, feature="mean"),
        dim=16,
    )
    return MNiL(settings.replace(**changes), 30)


def test_features_are_normalised_before_the_feature_maps() -> None:
    model = tiny()
    pooled = torch.randn(3, 64)
    head = model.image_projection.linear
    expected = normalize(pooled, dim=1) @ head.weight.T + head.bias
    torch.testing.assert_close(model.embed_images(pooled), expected)
    torch.testing.assert_close(model.embed_images(7 * pooled), expected)
    numbers = torch.tensor([[3, 4, 5, 0, 0, 0, 0, 0], [7, 0, 0, 0, 0, 0, 0, 0]])
    states, _ = model.text.encode_words(numbers)
    y = torch.stack([states[0, :3].mean(0), states[1, 0]])
    head = model.text_projection.linear
    expected = normalize(y, dim=1) @ head.weight.T + head.bias
    torch.testing.assert_close(model.encode_texts(numbers), expected)


def test_dropout_is_of_training_alone_and_no_part_of_the_identity() -> None:
    plain, dropping = tiny(), tiny(dropout=0.5)
    assert plain.settings.identity() == dropping.settings.identity()
    pooled, numbers = torch.randn(3, 64), torch.randint(1, 30, (3, 8))
    for of_plain, of_dropping, given in (
        (plain.embed_images, dropping.embed_images, pooled),
        (plain.encode_texts, dropping.encode_texts, numbers),
    ):
        assert not torch.allclose(of_dropping(given), of_plain(given))
        dropping.eval()
        torch.testing.assert_close(of_dropping(given), of_plain(given))
        dropping.train()


def test_both_networks_end_in_one_space_and_learn() -> None:
    model = tiny()
    images = model.embed_images(model.pool_images(torch.randint(256, (4, 3, 32, 32), dtype=torch.uint8)))
    texts = model.encode_texts(torch.randint(1, 30, (4, 8)))
    assert images.shape == texts.shape == (4, 16)
    torch.autograd.backward((images * texts).sum())
    for part, parameters in model.parts().items():
        assert all(parameter.grad is not None for parameter in parameters), part


def test_feature_maps_are_orthonormal_after_each_step() -> None:
    model = tiny(projection="orthonormal")
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        before = [
            head.linear.weight.detach().clone() for head in (model.image_projection, model.text_projection)
        ]
        for weight in before:
            torch.testing.assert_close(weight @ weight.T, torch.eye(16), atol=1e-5, rtol=0)
        (
            model.embed_images(torch.randn(4, 64)) * model.encode_texts(torch.randint(1, 30, (4, 8)))
        ).sum().backward()
        optimiser.step()
        model.after_step()
        for weight, head in zip(before, (model.image_projection, model.text_projection), strict=True):
            # no row turned around, as a decomposition without fixed signs would have it
            assert ((weight * head.linear.weight).sum(1) > 0.5).all()


def test_free_feature_maps_are_left_alone() -> None:
    model = tiny()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.after_step()
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_more_orthonormal_rows_than_numbers_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"no 20 orthonormal rows of 18 numbers; lower model\.dim"):
        tiny(projection="orthonormal", dim=20)
