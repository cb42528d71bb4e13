"""Pictures a second through backbones.

Frozen: plain fp32 against bf16 and batch norm folded into the convolutions. Learning (MobileNetV2, forward and
backward, batch norm as it came): fp32 against bf16 with PyTorch's and with our gradients of strided depthwise filters.
A processor without bf16 products is measured in fp32 only, since it would compute them number by number.
"""

import copy
from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from benchmarks.measuring import publish, repeats, speeds, taking_turns
from limner.inference.precision import pick_precision
from limner.models.image import BackboneSettings, ImageEncoder, build_backbone, folded
from limner.models.image.mobilenet import StridedConvolution

BATCH = 16
SIZE = 224
REFERENCE = "plain, fp32"


def main() -> None:
    torch.manual_seed(0)
    pixels = torch.randint(0, 256, (BATCH, 3, SIZE, SIZE), dtype=torch.uint8)
    turns = repeats(3)
    bf16 = pick_precision("auto", torch.device("cpu")) == "bf16"
    groups = {}
    for name in ("mobilenet-v2", "resnet-50"):
        encoder = build_backbone(BackboneSettings.parse({"name": name})).eval()
        without = folded(encoder)
        contestants = {
            REFERENCE: _forward(encoder, pixels, bf16=False),
            "folded, fp32": _forward(without, pixels, bf16=False),
        }
        if bf16:
            contestants["plain, bf16"] = _forward(encoder, pixels, bf16=True)
            contestants["folded, bf16"] = _forward(without, pixels, bf16=True)
        measured = speeds(taking_turns(contestants, turns), BATCH, reference=REFERENCE)
        groups[f"{name}, {SIZE}×{SIZE}, batch {BATCH}"] = measured
    learning = build_backbone(BackboneSettings(name="mobilenet-v2", weights=None))
    learning.set_frozen(False, fixed_statistics=True)
    plain = _with_plain_convolutions(learning)
    contestants = {
        REFERENCE: _step(plain, pixels, bf16=False),
        "limner, fp32": _step(learning, pixels, bf16=False),
    }
    if bf16:
        contestants["plain, bf16"] = _step(plain, pixels, bf16=True)
        contestants["limner, bf16"] = _step(learning, pixels, bf16=True)
    measured = speeds(taking_turns(contestants, turns), BATCH, reference=REFERENCE)
    groups[f"mobilenet-v2 learning, {SIZE}×{SIZE}, batch {BATCH}"] = measured
    publish("backbone", unit="pictures", groups=groups, about={"reference": REFERENCE, "repeats": turns})


def _forward(encoder: ImageEncoder, pixels: Tensor, *, bf16: bool) -> Callable[[], None]:
    def run() -> None:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16) if bf16 else nullcontext():
            encoder(pixels)

    return run


def _step(encoder: ImageEncoder, pixels: Tensor, *, bf16: bool) -> Callable[[], None]:
    def run() -> None:
        encoder.zero_grad()
        with torch.autocast("cpu", torch.bfloat16) if bf16 else nullcontext():
            pooled = encoder(pixels)
        pooled.square().sum().backward()

    return run


def _with_plain_convolutions(encoder: ImageEncoder) -> ImageEncoder:
    """A copy whose strided convolutions are PyTorch's own; of symmetric padding."""
    copied = copy.deepcopy(encoder)
    for module in list(copied.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, StridedConvolution):
                assert not child.same
                sizes = (child.in_channels, child.out_channels, 3, 2, 1)
                plain = nn.Conv2d(*sizes, groups=child.groups, bias=False)
                plain.load_state_dict(child.state_dict())
                setattr(module, name, plain)
    return copied


if __name__ == "__main__":
    main()
