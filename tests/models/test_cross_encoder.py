import pytest
import torch

from limner.errors import SettingsError
from limner.models.co_attention import CoAttentionSettings, CrossEncoder, regions
from limner.models.dual_path import DualPath, DualPathSettings
from limner.models.identity_aware import IdentityAware, IdentityAwareSettings
from limner.models.image import BackboneSettings
from limner.models.text_cnn import TextCNNSettings
from limner.models.text_lstm import TextLSTMSettings

SETTINGS = CoAttentionSettings(steps=2, spatial_dim=6, semantic_dim=7, dim=8)
NUMBERS = torch.tensor([[1, 2, 3, 0, 0, 0, 0, 0], [4, 0, 0, 0, 0, 0, 0, 0]])


def network(name: str = "resnet-18") -> IdentityAware:
    torch.manual_seed(0)
    settings = IdentityAwareSettings(
        backbone=BackboneSettings(name=name, width=0.125),
        text=TextLSTMSettings(words=8, word_dim=5, hidden=6),
        dim=4,
    )
    return IdentityAware(settings, 9)


def pixels() -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randint(256, (2, 3, 64, 96), dtype=torch.uint8)


@pytest.mark.parametrize("name", ["resnet-18", "vgg-16"])
def test_starts_from_the_embedding_and_learns_apart(name: str) -> None:
    model = network(name).eval()
    cross_encoder = model.add_cross_encoder(SETTINGS)
    assert model.add_cross_encoder(SETTINGS) is cross_encoder
    theirs = model.backbone.state_dict()
    for key, tensor in cross_encoder.backbone.state_dict().items():
        assert torch.equal(tensor, theirs[key])
        assert tensor.data_ptr() != theirs[key].data_ptr()
    assert ("classifier.0.weight" in theirs) == (name == "vgg-16")
    assert "classifier.0.weight" not in cross_encoder.backbone.state_dict()
    assert torch.equal(cross_encoder.text.table.weight, model.text.table.weight)
    before = model.embed_images(model.pool_images(pixels()))
    cross_encoder(pixels(), NUMBERS).logits.sum().backward()
    assert all(parameter.grad is None for parts in model.parts().values() for parameter in parts)
    with torch.no_grad():
        for parameter in cross_encoder.parameters():
            parameter.add_(1)
    assert torch.equal(model.embed_images(model.pool_images(pixels())), before)


def test_every_parameter_is_in_one_part() -> None:
    cross_encoder = network("vgg-16").add_cross_encoder(SETTINGS)
    listed = [id(parameter) for part in cross_encoder.parts().values() for parameter in part]
    assert sorted(listed) == sorted(map(id, cross_encoder.parameters()))
    assert set(cross_encoder.parts()) == {"backbone", "words", "text", "co_attention"}


def test_maps_may_be_cached_wholly_or_in_part() -> None:
    cross_encoder = network().add_cross_encoder(SETTINGS).eval()
    plain = cross_encoder(pixels(), NUMBERS).logits
    cached = cross_encoder.map_pictures(pixels()).permute(0, 2, 3, 1)
    torch.testing.assert_close(cross_encoder(cached, NUMBERS).logits, plain)
    cross_encoder.backbone.set_frozen(False, until="layer4.0")
    before = cross_encoder.backbone.forward_until(pixels(), "layer4.0").permute(0, 2, 3, 1)
    torch.testing.assert_close(cross_encoder(before, NUMBERS).logits, plain)


def test_regions_go_row_by_row() -> None:
    places = torch.arange(6.0).view(1, 1, 2, 3)
    assert regions(places).flatten().tolist() == [0, 1, 2, 3, 4, 5]


def test_a_text_path_without_word_states_is_refused() -> None:
    settings = DualPathSettings(
        backbone=BackboneSettings(name="resnet-18", width=0.125),
        text=TextCNNSettings(words=16, word_dim=8, width=1 / 32),
        dim=4,
    )
    model = DualPath(settings, 9)
    with pytest.raises(SettingsError, match="identity-aware"):
        CrossEncoder(SETTINGS, model.backbone, model.text)
