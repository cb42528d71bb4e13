import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from limner.errors import SettingsError
from limner.models.image import IMAGENET, TENSORFLOW, VGG, GoogLeNet, ImageEncoder, MobileNetV2, ResNet
from limner.models.image.encoder import Layer, scale_channels


def some_pixels(size: int = 40, batch: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (batch, 3, size, size), dtype=torch.uint8, generator=generator)


def small() -> ResNet:
    torch.manual_seed(0)
    return ResNet(18, width=0.125)


def norm_statistics(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.named_buffers() if "pixel" not in name}


def test_normalisations_are_the_published_ones() -> None:
    published = (0.485, 0.456, 0.406, 0.229, 0.224, 0.225)
    assert [value / 255 for value in IMAGENET.mean + IMAGENET.std] == pytest.approx(published)
    assert TENSORFLOW.mean == TENSORFLOW.std == (128.0, 128.0, 128.0)


def test_pixels_are_normalised_inside() -> None:
    class Identity(ResNet):
        def layers(self) -> list[Layer]:
            return []

    pixels = some_pixels()
    encoder = Identity(18, width=0.125)
    encoder.map_channels = 3
    mean, std = torch.tensor(IMAGENET.mean), torch.tensor(IMAGENET.std)
    for channel in range(3):
        expected = (pixels[:, channel].float() - mean[channel]) / std[channel]
        torch.testing.assert_close(encoder.forward_map(pixels)[:, channel], expected)


def test_bytes_and_floats_in_any_memory_order_agree() -> None:
    encoder, pixels = small().eval(), some_pixels()
    feature = encoder(pixels)
    torch.testing.assert_close(encoder(pixels.float()), feature)
    torch.testing.assert_close(encoder(pixels.contiguous(memory_format=torch.channels_last)), feature)


def test_feature_is_the_mean_of_the_map() -> None:
    encoder, pixels = small().eval(), some_pixels(80)
    feature_map = encoder.forward_map(pixels)
    assert feature_map.shape == (3, encoder.map_channels, 3, 3)
    torch.testing.assert_close(encoder(pixels), feature_map.flatten(2).sum(2) / 9)


def test_feature_is_float32_under_autocast() -> None:
    encoder, pixels = small().eval(), some_pixels()
    with torch.autocast("cpu", torch.bfloat16):
        assert encoder.forward_map(pixels).dtype == torch.bfloat16
        feature = encoder(pixels)
    assert feature.dtype == torch.float32
    assert torch.cosine_similarity(feature, encoder(pixels)).min() > 0.99


def test_pixel_constants_are_not_saved() -> None:
    assert not [name for name in small().state_dict() if "pixel" in name]


def test_the_seed_decides_the_values() -> None:
    first, second = small(), small()
    torch.manual_seed(1)
    other = ResNet(18, width=0.125)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.conv1.weight, other.conv1.weight)


def test_initial_values_are_he_s() -> None:
    torch.manual_seed(0)
    # Eq. 14: variance 2 / (k² · filters that an input reaches)
    assert ResNet(18).conv1.weight.std().item() == pytest.approx(math.sqrt(2 / (49 * 64)), rel=0.05)
    by_depth = MobileNetV2().get_parameter("features.17.conv.1.0.weight")
    assert by_depth.std().item() == pytest.approx(math.sqrt(2 / 9), rel=0.05)


def test_gradients_flow_unless_frozen() -> None:
    encoder, pixels = small(), some_pixels()
    encoder(pixels).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in encoder.parameters())
    encoder.set_frozen(True)
    assert not encoder(pixels).requires_grad


def test_frozen_statistics_survive_training_of_the_parent() -> None:
    encoder, pixels = small(), some_pixels()
    parent = nn.Sequential(encoder, nn.Linear(encoder.channels, 2))
    encoder.set_frozen(True)
    before = norm_statistics(encoder)
    parent.train()
    assert parent.training
    assert not any(module.training for module in encoder.modules())
    parent(pixels).sum().backward()
    after = norm_statistics(encoder)
    assert len(before) == 3 * 20
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(p.grad is None for p in encoder.parameters())


def test_unfrozen_encoder_follows_its_parent_again() -> None:
    encoder, pixels = small(), some_pixels()
    parent = nn.Sequential(encoder)
    encoder.set_frozen(True)
    parent.train()
    assert encoder.frozen
    encoder.set_frozen(False)
    assert not encoder.frozen
    assert encoder.training
    assert all(p.requires_grad for p in encoder.parameters())
    before = norm_statistics(encoder)
    parent(pixels)
    assert not torch.equal(before["bn1.running_mean"], encoder.bn1.running_mean)
    parent.eval()
    assert not encoder.set_frozen(True).set_frozen(False).training


def test_fixed_statistics_survive_while_the_weights_learn() -> None:
    encoder, pixels = small(), some_pixels()
    parent = nn.Sequential(encoder)
    encoder.set_frozen(False, fixed_statistics=True)
    parent.train()
    assert encoder.training
    before, in_training = norm_statistics(encoder), encoder(pixels)
    in_training.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in encoder.parameters())
    assert all(torch.equal(before[name], value) for name, value in norm_statistics(encoder).items())
    assert torch.equal(parent.eval()(pixels), in_training)
    encoder.set_frozen(False)
    assert not torch.allclose(parent.train()(pixels), in_training)


@pytest.mark.parametrize(
    ("build", "layer"),
    [
        (lambda: ResNet(18, width=0.125), "layer3.1"),
        (lambda: VGG(16, width=0.02), "features.17"),
        (lambda: GoogLeNet(width=0.125), "inception4e"),
        (lambda: MobileNetV2(width=0.125, padding="same"), "features.15"),
    ],
)
def test_divided_at_a_layer_it_is_the_same_function(build: Callable[[], ImageEncoder], layer: str) -> None:
    torch.manual_seed(0)
    encoder, pixels = build().eval(), some_pixels(64)
    before = encoder.forward_until(pixels, layer)
    torch.testing.assert_close(encoder.forward_from(before, layer), encoder(pixels))
    first = encoder.layers()[0][0]
    torch.testing.assert_close(
        encoder.forward_from(encoder.forward_until(pixels, first), first), encoder(pixels)
    )
    with pytest.raises(SettingsError, match=r"no layer 'head' to begin at; there are: .*" + layer):
        encoder.forward_until(pixels, "head")


def test_learning_from_a_layer_on_leaves_those_before_it_alone() -> None:
    encoder, pixels = small(), some_pixels()
    encoder.set_frozen(False, until="layer3.1")
    assert encoder.learns_from == "layer3.1"
    nn.Sequential(encoder).train()
    before = norm_statistics(encoder)
    encoder(pixels).square().sum().backward()
    learning = ("layer3.1.", "layer4.")
    for name, parameter in encoder.named_parameters():
        assert (parameter.grad is not None) == name.startswith(learning), name
    for name, value in norm_statistics(encoder).items():
        assert torch.equal(before[name], value) != name.startswith(learning), name
    encoder.set_frozen(False)
    assert encoder.learns_from is None
    assert all(p.requires_grad for p in encoder.parameters())
    assert all(module.training for module in encoder.modules())


def test_fc_layers_of_vgg_lie_behind_every_layer() -> None:
    torch.manual_seed(0)
    encoder = VGG(16, width=0.02).set_frozen(False, until="features.28")
    learning = {name for name, parameter in encoder.named_parameters() if parameter.requires_grad}
    assert {name.rsplit(".", 1)[0] for name in learning} == {"features.28", "classifier.0", "classifier.3"}


def test_frozen_vgg_has_no_dropout() -> None:
    torch.manual_seed(0)
    encoder, pixels = VGG(16, width=0.02).set_frozen(True).train(), some_pixels(32)
    assert torch.equal(encoder(pixels), encoder(pixels))


@given(st.integers(1, 300).map(lambda n: 8 * n), st.floats(0.05, 4.0))
def test_scaled_channels_are_multiples_of_eight_near_the_product(channels: int, width: float) -> None:
    scaled = scale_channels(channels, width)
    assert scaled % 8 == 0
    assert scaled >= max(8, 0.9 * channels * width)
    assert scaled <= max(8, channels * width + 8)
    assert scale_channels(channels, 1.0) == channels


def test_mobile_network_keeps_its_last_width_when_thin() -> None:
    with torch.device("meta"):
        assert MobileNetV2(width=0.35).channels == 1280
        assert MobileNetV2(width=1.4).channels == 1792
