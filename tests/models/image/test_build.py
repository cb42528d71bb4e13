from pathlib import Path

import pytest
import torch

from limner.errors import CheckpointError
from limner.models.image import (
    VGG,
    BackboneName,
    BackboneSettings,
    GoogLeNet,
    ImageEncoder,
    MobileNetV2,
    ResNet,
    build_backbone,
)


@pytest.mark.parametrize(
    ("name", "kind", "tensors"),
    [
        ("resnet-18", ResNet, 20 * 6),
        ("resnet-34", ResNet, 36 * 6),
        ("resnet-50", ResNet, 53 * 6),
        ("resnet-101", ResNet, 104 * 6),
        ("resnet-152", ResNet, 155 * 6),
        ("vgg-16", VGG, 15 * 2),
        ("vgg-19", VGG, 18 * 2),
        ("googlenet", GoogLeNet, 57 * 6),
        ("mobilenet-v2", MobileNetV2, 52 * 6),
    ],
)
def test_each_name_builds_its_network(name: BackboneName, kind: type[ImageEncoder], tensors: int) -> None:
    with torch.device("meta"):
        encoder = build_backbone(BackboneSettings(name=name, width=0.5))
    assert type(encoder) is kind
    assert len(encoder.state_dict()) == tensors
    assert encoder.training
    assert not encoder.frozen


@pytest.mark.parametrize(
    ("name", "normalise", "mean"),
    [
        ("resnet-18", "imagenet", 123.675),
        ("mobilenet-v2", "tensorflow", 128.0),
        ("vgg-16", "tensorflow", 128.0),
        ("googlenet", "imagenet", 127.5),
        ("googlenet", "tensorflow", 128.0),
    ],
)
def test_normalisation_reaches_the_network(name: str, normalise: str, mean: float) -> None:
    settings = BackboneSettings.parse({"name": name, "normalise": normalise, "width": 0.02})
    assert build_backbone(settings).pixel_mean[0].item() == pytest.approx(mean)


def test_options_reach_the_network() -> None:
    with torch.device("meta"):
        pixels = torch.zeros(1, 3, 64, 64)
        encoder = build_backbone(BackboneSettings(name="resnet-18", width=0.25, last_stride=1))
        assert encoder.forward_map(pixels).shape == (1, 128, 4, 4)
    torch.manual_seed(0)
    same = build_backbone(BackboneSettings(name="mobilenet-v2", width=0.25, padding="same")).eval()
    torch.manual_seed(0)
    symmetric = build_backbone(BackboneSettings(name="mobilenet-v2", width=0.25)).eval()
    pixels = torch.rand(1, 3, 64, 64) * 255
    assert not torch.allclose(same(pixels), symmetric(pixels))


def test_weights_are_left_alone_on_request(tmp_path: Path) -> None:
    settings = BackboneSettings(name="resnet-18", width=0.125, weights=str(tmp_path / "gone.pth"))
    assert build_backbone(settings, load_weights=False).channels == 64
    with pytest.raises(CheckpointError, match="no such file"):
        build_backbone(settings)
