"""Image backbones at test by OpenVINO, against torch: `limner index --engine openvino`.

    python -m benchmarks.engines

MobileNetV2 and ResNet-50 with folded batch norm, pictures of 224 × 224, the arithmetic that `precision=auto` takes on
this machine and fp32, random weights (they change no time). The reference is torch with the same arithmetic.
"""

from functools import partial

import numpy as np
import torch

from benchmarks.measuring import publish, sized, speeds, taking_turns
from limner.inference.image_engine import BackbonePass
from limner.inference.precision import Precision, pick_precision
from limner.models.image import BackboneSettings, build_backbone

PICTURES, TURNS = sized(32, 4), 5
PLAIN = "torch"


def main() -> None:
    torch.manual_seed(0)
    pixels = np.random.default_rng(0).integers(0, 256, (PICTURES, 224, 224, 3)).astype(np.uint8)
    groups, seconds, cosines = {}, {}, {}
    kinds: list[Precision] = ["fp32"]
    if pick_precision("auto", torch.device("cpu")) != "fp32":
        kinds.append("bf16")
    for name in ("mobilenet-v2", "resnet-50"):
        backbone = build_backbone(BackboneSettings(name=name), load_weights=False).eval()
        for precision in kinds:
            passes = {PLAIN: BackbonePass(backbone, precision)}
            passes["limner, OpenVINO"] = BackbonePass(backbone, precision, "openvino")
            ours, theirs = (one.pool(pixels).float().numpy() for one in passes.values())
            label = f"{name}, {precision}"
            lengths = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
            cosines[label] = float(((ours * theirs).sum(axis=1) / lengths).min())
            own = taking_turns({key: partial(one.pool, pixels) for key, one in passes.items()}, TURNS)
            seconds[label] = own
            groups[label] = speeds(own, PICTURES, reference=PLAIN)
    publish(
        "engines",
        unit="pictures",
        groups=groups,
        about={"reference": PLAIN, "lowest_cosine": cosines, "seconds": seconds, "repeats": TURNS},
    )


if __name__ == "__main__":
    main()
