"""The four families against torchvision's published figures and against slow twins."""

from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Tensor

from limner.models.image import VGG, GoogLeNet, ImageEncoder, MobileNetV2, ResNet
from tests.models.image import reference

# Parameters of torchvision's model with its 1000-way classifier; inputs of that classifier; convolutions with
# batch norm (a weight, and four tensors and a counter of the norm) or, for VGG, layers with weight and bias.
PUBLISHED: list[tuple[Callable[[], ImageEncoder], int, int, int]] = [
    (lambda: ResNet(18), 11_689_512, 512, 20 * 6),
    (lambda: ResNet(34), 21_797_672, 512, 36 * 6),
    (lambda: ResNet(50), 25_557_032, 2048, 53 * 6),
    (lambda: ResNet(101), 44_549_160, 2048, 104 * 6),
    (lambda: ResNet(152), 60_192_808, 2048, 155 * 6),
    (lambda: VGG(16), 138_357_544, 4096, 15 * 2),
    (lambda: VGG(19), 143_667_240, 4096, 18 * 2),
    (GoogLeNet, 6_624_904, 1024, 57 * 6),
    (MobileNetV2, 3_504_872, 1280, 52 * 6),
]


@pytest.mark.parametrize(("build", "parameters", "inputs", "tensors"), PUBLISHED)
def test_published_sizes(
    build: Callable[[], ImageEncoder], parameters: int, inputs: int, tensors: int
) -> None:
    with torch.device("meta"):
        encoder = build()
    assert sum(p.numel() for p in encoder.parameters()) == parameters - (inputs * 1000 + 1000)
    assert len(encoder.state_dict()) == tensors
    assert encoder.channels == inputs
    assert not [name for name in encoder.state_dict() if name.startswith(encoder.classifier_keys)]


@pytest.mark.parametrize(
    ("build", "shapes"),
    [
        (
            lambda: ResNet(50),
            {
                "conv1.weight": (64, 3, 7, 7),
                "bn1.running_var": (64,),
                "layer1.0.conv1.weight": (64, 64, 1, 1),
                "layer1.0.downsample.0.weight": (256, 64, 1, 1),
                "layer1.0.downsample.1.num_batches_tracked": (),
                "layer2.3.conv2.weight": (128, 128, 3, 3),
                "layer4.2.bn3.bias": (2048,),
            },
        ),
        (
            lambda: ResNet(34),
            {
                "layer2.0.downsample.0.weight": (128, 64, 1, 1),
                "layer3.5.conv2.weight": (256, 256, 3, 3),
                "layer4.2.bn2.weight": (512,),
            },
        ),
        (
            lambda: VGG(16),
            {
                "features.0.weight": (64, 3, 3, 3),
                "features.28.bias": (512,),
                "classifier.0.weight": (4096, 25088),
                "classifier.3.bias": (4096,),
            },
        ),
        (lambda: VGG(19), {"features.16.weight": (256, 256, 3, 3), "features.34.weight": (512, 512, 3, 3)}),
        (
            GoogLeNet,
            {
                "conv1.conv.weight": (64, 3, 7, 7),
                "conv3.bn.running_mean": (192,),
                "inception3a.branch1.conv.weight": (64, 192, 1, 1),
                "inception3a.branch2.1.conv.weight": (128, 96, 3, 3),
                "inception4e.branch3.1.conv.weight": (128, 32, 3, 3),
                "inception5b.branch4.1.bn.weight": (128,),
            },
        ),
        (
            MobileNetV2,
            {
                "features.0.0.weight": (32, 3, 3, 3),
                "features.1.conv.0.0.weight": (32, 1, 3, 3),
                "features.1.conv.1.weight": (16, 32, 1, 1),
                "features.1.conv.2.running_mean": (16,),
                "features.2.conv.1.0.weight": (96, 1, 3, 3),
                "features.17.conv.2.weight": (320, 960, 1, 1),
                "features.17.conv.3.bias": (320,),
                "features.18.1.weight": (1280,),
            },
        ),
    ],
)
def test_torchvision_s_names(build: Callable[[], ImageEncoder], shapes: dict[str, tuple[int, ...]]) -> None:
    with torch.device("meta"):
        state = build().state_dict()
    assert {name: tuple(state[name].shape) for name in shapes} == shapes


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (lambda: ResNet(50), (2, 2048, 7, 7)),
        (lambda: VGG(16), (2, 512, 7, 7)),
        (lambda: VGG(19), (2, 512, 7, 7)),
        (GoogLeNet, (2, 1024, 7, 7)),
        (MobileNetV2, (2, 1280, 7, 7)),
        (lambda: MobileNetV2(padding="same"), (2, 1280, 7, 7)),
    ],
)
def test_shapes_at_224_pixels(build: Callable[[], ImageEncoder], shape: tuple[int, ...]) -> None:
    with torch.device("meta"):
        encoder = build()
        pixels = torch.zeros(2, 3, 224, 224)
        assert encoder.forward_map(pixels).shape == shape
        assert encoder(pixels).shape == (2, encoder.channels)
        assert encoder.map_channels == shape[1]


def test_last_stride_doubles_the_map_of_a_person() -> None:
    with torch.device("meta"):
        plain, fine = ResNet(50), ResNet(50, last_stride=1)
        pixels = torch.zeros(1, 3, 384, 192)
        assert plain.forward_map(pixels).shape[2:] == (12, 6)
        assert fine.forward_map(pixels).shape[2:] == (24, 12)
    assert list(plain.state_dict()) == list(fine.state_dict())


def ready(encoder: ImageEncoder) -> ImageEncoder:
    reference.randomise_norms(encoder)
    return encoder.double().eval()


def pixels_and_images(encoder: ImageEncoder, height: int, width: int) -> tuple[Tensor, Tensor]:
    pixels = torch.rand((2, 3, height, width), generator=torch.Generator().manual_seed(3)).double() * 255
    return pixels, (pixels - encoder.pixel_mean) / encoder.pixel_std


@pytest.mark.parametrize("last_stride", [1, 2])
@pytest.mark.parametrize(("depth", "counts"), [(18, (2, 2, 2, 2)), (50, (3, 4, 6, 3))])
def test_resnet_agrees_with_its_twin(
    depth: Literal[18, 50], counts: tuple[int, ...], last_stride: Literal[1, 2]
) -> None:
    encoder = ready(ResNet(depth, width=0.125, last_stride=last_stride))
    pixels, images = pixels_and_images(encoder, 64, 45)
    expected = reference.resnet_map(encoder.state_dict(), images, counts, last_stride)
    torch.testing.assert_close(encoder.forward_map(pixels), expected)


@pytest.mark.parametrize(("depth", "counts"), [(16, (2, 2, 3, 3, 3)), (19, (2, 2, 4, 4, 4))])
def test_vgg_agrees_with_its_twin(depth: Literal[16, 19], counts: tuple[int, ...]) -> None:
    encoder = ready(VGG(depth, width=0.02))
    pixels, images = pixels_and_images(encoder, 224, 224)
    feature_map = reference.vgg_map(encoder.state_dict(), images, counts)
    torch.testing.assert_close(encoder.forward_map(pixels), feature_map)
    # The published fc6 reads the map of a 224-pixel picture as it is, channel by channel, row by row.
    torch.testing.assert_close(encoder.pool(feature_map), reference.fc7(encoder.state_dict(), feature_map))


def test_vgg_takes_other_sizes() -> None:
    encoder = VGG(16, width=0.02).eval()
    assert encoder(torch.zeros(1, 3, 96, 64)).shape == (1, encoder.channels)


def test_googlenet_agrees_with_its_twin() -> None:
    encoder = ready(GoogLeNet(width=0.25))
    pixels, images = pixels_and_images(encoder, 70, 64)
    expected = reference.googlenet_map(encoder.state_dict(), images)
    torch.testing.assert_close(encoder.forward_map(pixels), expected)


def test_googlenet_s_input_is_imagenet_s_followed_by_transform_input() -> None:
    encoder = GoogLeNet(width=0.25)
    pixels, images = pixels_and_images(encoder, 8, 8)
    mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1).double()
    std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1).double()
    standardised = (pixels / 255 - mean) / std
    transformed = standardised * (std / 0.5) + (mean - 0.5) / 0.5
    torch.testing.assert_close(images, transformed)


@pytest.mark.parametrize("padding", ["symmetric", "same"])
@pytest.mark.parametrize("size", [(64, 64), (67, 90), (33, 47)])
def test_mobilenet_agrees_with_its_twin(padding: Literal["symmetric", "same"], size: tuple[int, int]) -> None:
    encoder = ready(MobileNetV2(width=0.25, padding=padding))
    pixels, images = pixels_and_images(encoder, *size)
    expected = reference.mobilenet_map(encoder.state_dict(), images, same=padding == "same")
    torch.testing.assert_close(encoder.forward_map(pixels), expected)
