"""Slow twins of the backbones: plain functions over a state dict with torchvision's names, float64.

They are typed from the papers' tables, one operation a line, and share nothing with the package's modules.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

State = Mapping[str, Tensor]


def randomise_norms(module: nn.Module) -> None:
    """Give batch norm statistics that differ from the identity, so that a skipped one shows."""
    generator = torch.Generator().manual_seed(5)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            for tensor, low in ((layer.weight, 0.5), (layer.bias, -0.3)):
                tensor.data.copy_(torch.rand(tensor.shape, generator=generator) + low)
            assert layer.running_mean is not None
            assert layer.running_var is not None
            layer.running_mean.copy_(torch.rand(layer.running_mean.shape, generator=generator) - 0.5)
            layer.running_var.copy_(torch.rand(layer.running_var.shape, generator=generator) + 0.5)


def conv(s: State, name: str, x: Tensor, stride: int = 1, groups: int = 1) -> Tensor:
    weight = s[f"{name}.weight"]
    return F.conv2d(x, weight, s.get(f"{name}.bias"), stride, weight.shape[-1] // 2, groups=groups)


def norm(s: State, name: str, x: Tensor, eps: float = 1e-5) -> Tensor:
    mean, var, weight, bias = (
        s[f"{name}.{part}"].view(-1, 1, 1) for part in ("running_mean", "running_var", "weight", "bias")
    )
    return (x - mean) / (var + eps).sqrt() * weight + bias


def resnet_map(s: State, images: Tensor, counts: tuple[int, ...], last_stride: int = 2) -> Tensor:
    x = norm(s, "bn1", conv(s, "conv1", images, 2)).relu()
    x = F.max_pool2d(x, 3, 2, 1)
    for stage, count in enumerate(counts, start=1):
        for block in range(count):
            stride = 1 if block > 0 or stage == 1 else (last_stride if stage == 4 else 2)
            at = f"layer{stage}.{block}"
            if f"{at}.conv3.weight" in s:
                y = norm(s, f"{at}.bn1", conv(s, f"{at}.conv1", x)).relu()
                y = norm(s, f"{at}.bn2", conv(s, f"{at}.conv2", y, stride)).relu()
                y = norm(s, f"{at}.bn3", conv(s, f"{at}.conv3", y))
            else:
                y = norm(s, f"{at}.bn1", conv(s, f"{at}.conv1", x, stride)).relu()
                y = norm(s, f"{at}.bn2", conv(s, f"{at}.conv2", y))
            if f"{at}.downsample.0.weight" in s:
                x = norm(s, f"{at}.downsample.1", conv(s, f"{at}.downsample.0", x, stride))
            x = (x + y).relu()
    return x


def vgg_map(s: State, images: Tensor, counts: tuple[int, ...]) -> Tensor:
    x, index = images, 0
    for count in counts:
        for _ in range(count):
            x = conv(s, f"features.{index}", x).relu()
            index += 2
        x = F.max_pool2d(x, 2)
        index += 1
    return x


def fc7(s: State, feature_map: Tensor) -> Tensor:
    x = feature_map.flatten(1)
    x = (x @ s["classifier.0.weight"].T + s["classifier.0.bias"]).relu()
    return (x @ s["classifier.3.weight"].T + s["classifier.3.bias"]).relu()


def googlenet_map(s: State, images: Tensor) -> Tensor:
    def unit(name: str, x: Tensor, stride: int = 1) -> Tensor:
        return norm(s, f"{name}.bn", conv(s, f"{name}.conv", x, stride), eps=1e-3).relu()

    x = F.max_pool2d(unit("conv1", images, 2), 3, 2, ceil_mode=True)
    x = F.max_pool2d(unit("conv3", unit("conv2", x)), 3, 2, ceil_mode=True)
    for block in ("3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b"):
        at = f"inception{block}"
        first = unit(f"{at}.branch1", x)
        second = unit(f"{at}.branch2.1", unit(f"{at}.branch2.0", x))
        third = unit(f"{at}.branch3.1", unit(f"{at}.branch3.0", x))
        fourth = unit(f"{at}.branch4.1", F.max_pool2d(x, 3, 1, 1))
        x = torch.cat((first, second, third, fourth), 1)
        if block == "3b":
            x = F.max_pool2d(x, 3, 2, ceil_mode=True)
        if block == "4e":
            x = F.max_pool2d(x, 2, 2, ceil_mode=True)
    return x


def same_conv(x: Tensor, weight: Tensor, stride: int, groups: int) -> Tensor:
    """SAME as TensorFlow's documentation of tf.nn.convolution defines it, one axis after the other."""
    for axis in (2, 3):
        side, kernel = x.shape[axis], weight.shape[axis]
        out = -(-side // stride)
        total = max((out - 1) * stride + kernel - side, 0)
        before = total // 2
        shape = list(x.shape)
        shape[axis] = side + total
        padded = x.new_zeros(shape)
        padded.narrow(axis, before, side).copy_(x)
        x = padded
    return F.conv2d(x, weight, None, stride, 0, groups=groups)


def mobilenet_map(s: State, images: Tensor, *, same: bool) -> Tensor:
    def filtered(name: str, x: Tensor, stride: int, groups: int = 1) -> Tensor:
        if same:
            return same_conv(x, s[f"{name}.weight"], stride, groups)
        return conv(s, name, x, stride, groups)

    def relu6(x: Tensor) -> Tensor:
        return x.clamp(0, 6)

    x = relu6(norm(s, "features.0.1", filtered("features.0.0", images, 2)))
    index = 1
    for expansion, count, stride in (
        (1, 1, 1),
        (6, 2, 2),
        (6, 3, 2),
        (6, 4, 2),
        (6, 3, 1),
        (6, 3, 2),
        (6, 1, 1),
    ):
        for block in range(count):
            at, layer, y = f"features.{index}.conv", 0, x
            if expansion > 1:
                y = relu6(norm(s, f"{at}.0.1", conv(s, f"{at}.0.0", y)))
                layer = 1
            y = filtered(f"{at}.{layer}.0", y, stride if block == 0 else 1, groups=y.shape[1])
            y = relu6(norm(s, f"{at}.{layer}.1", y))
            y = norm(s, f"{at}.{layer + 2}", conv(s, f"{at}.{layer + 1}", y))
            x = x + y if x.shape == y.shape else y
            index += 1
    return relu6(norm(s, "features.18.1", conv(s, "features.18.0", x)))
