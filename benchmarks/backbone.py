"""Pictures a second through frozen backbones: plain fp32 against bf16 and batch norm folded into the convolutions."""

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor

from benchmarks.measuring import publish, repeats, speeds, taking_turns
from limner.models.backbones import BackboneSettings, ImageEncoder, build_backbone, folded

BATCH = 16
SIZE = 224
REFERENCE = "plain, fp32"


def main() -> None:
    torch.manual_seed(0)
    pixels = torch.randint(0, 256, (BATCH, 3, SIZE, SIZE), dtype=torch.uint8)
    turns = repeats(3)
    groups = {}
    for name in ("mobilenet-v2", "resnet-50"):
        encoder = build_backbone(BackboneSettings.parse({"name": name})).eval()
        without = folded(encoder)
        contestants = {
            REFERENCE: _forward(encoder, pixels, bf16=False),
            "folded, fp32": _forward(without, pixels, bf16=False),
            "plain, bf16": _forward(encoder, pixels, bf16=True),
            "folded, bf16": _forward(without, pixels, bf16=True),
        }
        measured = speeds(taking_turns(contestants, turns), BATCH, reference=REFERENCE)
        groups[f"{name}, {SIZE}×{SIZE}, batch {BATCH}"] = measured
    publish("backbone", unit="pictures", groups=groups, about={"reference": REFERENCE, "repeats": turns})


def _forward(encoder: ImageEncoder, pixels: Tensor, *, bf16: bool) -> Callable[[], None]:
    def run() -> None:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16) if bf16 else nullcontext():
            encoder(pixels)

    return run


if __name__ == "__main__":
    main()
