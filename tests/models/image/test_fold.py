import pytest
import torch
from torch import nn

from limner.errors import SettingsError
from limner.models.image import VGG, GoogLeNet, ImageEncoder, MobileNetV2, ResNet, folded


def _learnt(encoder: ImageEncoder) -> ImageEncoder:
    """Batch norms whose statistics and weights differ from the identity."""
    chance = torch.Generator().manual_seed(1)
    for module in encoder.modules():
        if isinstance(module, nn.BatchNorm2d):
            with torch.no_grad():
                module.weight.uniform_(0.5, 1.5, generator=chance)
                module.bias.uniform_(-0.2, 0.2, generator=chance)
            module.running_mean.uniform_(-0.3, 0.3, generator=chance)  # type: ignore[union-attr]
            module.running_var.uniform_(0.5, 2.0, generator=chance)  # type: ignore[union-attr]
    return encoder


def _network(name: str) -> ImageEncoder:
    torch.manual_seed(0)
    if name == "resnet-18":
        return ResNet(18, width=0.125)
    if name == "resnet-50":
        return ResNet(50, width=0.125)
    if name == "googlenet":
        return GoogLeNet(width=0.125)
    return MobileNetV2(width=0.25, padding="same" if name.endswith("same") else "symmetric")


@pytest.mark.parametrize(
    "name", ["resnet-18", "resnet-50", "googlenet", "mobilenet-v2 symmetric", "mobilenet-v2 same"]
)
def test_folded_network_is_the_same_function(name: str) -> None:
    encoder = _learnt(_network(name)).eval()
    pixels = torch.randint(
        0, 256, (2, 3, 65, 47), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    without = folded(encoder)
    assert not [module for module in without.modules() if isinstance(module, nn.BatchNorm2d)]
    with torch.no_grad():
        plain = encoder(pixels)
        torch.testing.assert_close(without(pixels), plain, rtol=1e-3, atol=1e-4 * float(plain.abs().max()))


@pytest.mark.parametrize("name", ["resnet-18", "googlenet", "mobilenet-v2 same"])
def test_folded_up_to_any_layer_and_plain_from_there_is_the_same_function(name: str) -> None:
    encoder = _learnt(_network(name)).eval()
    pixels = torch.randint(
        0, 256, (1, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    without, divided = folded(encoder), 0
    with torch.no_grad():
        plain = encoder(pixels)
        for layer, run in encoder.layers():
            if isinstance(run, nn.BatchNorm2d):
                with pytest.raises(SettingsError, match=f"no layer '{layer}' to begin at"):
                    encoder.find_layer(layer)
                continue
            found = encoder.forward_from(without.forward_until(pixels, layer), layer)
            torch.testing.assert_close(found, plain, rtol=1e-3, atol=1e-4 * float(plain.abs().max()))
            divided += 1
    assert divided >= 10


def test_the_original_stays_as_it_is() -> None:
    encoder = _learnt(_network("resnet-18")).train()
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    copied = folded(encoder)
    assert encoder.training
    assert all(parameter.requires_grad for parameter in encoder.parameters())
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())
    assert not copied.training
    assert not any(parameter.requires_grad for parameter in copied.parameters())


def test_network_without_batch_norm_is_copied() -> None:
    torch.manual_seed(0)
    encoder = VGG(16, width=0.02).eval()
    pixels = torch.randint(0, 256, (1, 3, 32, 32), dtype=torch.uint8)
    with torch.no_grad():
        torch.testing.assert_close(folded(encoder)(pixels), encoder(pixels))
