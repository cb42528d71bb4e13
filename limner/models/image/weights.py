"""Weight files: read safely, check every name and shape, and only then load."""

import sys
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from limner.errors import CheckpointError
from limner.models.image.encoder import ImageEncoder
from limner.models.weight_files import plain_tensors

PUBLISHED_AT = "https://download.pytorch.org/models/"
PUBLISHED = {
    "resnet-18": "resnet18-f37072fd.pth",
    "resnet-34": "resnet34-b627a593.pth",
    "resnet-50": "resnet50-0676ba61.pth",
    "resnet-101": "resnet101-63fe2227.pth",
    "resnet-152": "resnet152-394f9c45.pth",
    "vgg-16": "vgg16-397923af.pth",
    "vgg-19": "vgg19-dcbb9e9d.pth",
    "googlenet": "googlenet-1378be20.pth",
    "mobilenet-v2": "mobilenet_v2-b0353104.pth",
}
"""torchvision's files of the simple training recipe (IMAGENET1K_V1), nearest to those the papers used."""


def published_state(name: str) -> dict[str, Tensor]:
    """torchvision's ImageNet weights of one network, from torch.hub's cache or else the network.

    Raises `CheckpointError` when neither has it.
    """
    file = PUBLISHED[name]
    try:
        content = torch.hub.load_state_dict_from_url(
            PUBLISHED_AT + file,
            map_location="cpu",
            # the digits in a file's name begin its SHA-256, so a download that was cut off is found
            check_hash=True,
            weights_only=True,
            # no progress bar in logs and pipes
            progress=sys.stderr.isatty(),
        )
    # No network, a wrong hash, a full disk, a damaged file in the cache: the next step is the same.
    except Exception as error:
        folder = Path(torch.hub.get_dir()) / "checkpoints"
        raise CheckpointError(
            f"weights 'imagenet' of {name}: {PUBLISHED_AT}{file} could not be fetched or read "
            f"({_first_line(error)}); put a whole copy into {folder}, or give a file with torchvision's names: "
            f"--set model.backbone.weights=FILE"
        ) from error
    return plain_tensors(content, file)


def load_state(encoder: ImageEncoder, state: Mapping[str, Tensor], *, source: str) -> None:
    """Load `state` into `encoder`, all or nothing.

    Entries of the classifier are ignored, and batch norm's `num_batches_tracked` may be absent. Raises
    `CheckpointError` naming the first entry that is missing, unexpected, of another shape, or not finite
    numbers; `source` is how that message calls the weights.
    """
    expected_state = encoder.state_dict()
    given = {name: value for name, value in state.items() if not name.startswith(encoder.classifier_keys)}
    # all of it is checked first: load_state_dict copies as it goes, and a misfit half way would leave a mixture
    for name, expected in expected_state.items():
        if name not in given:
            # files from before PyTorch 0.4.1 lack it, and it acts only where momentum is None
            if name.endswith(".num_batches_tracked"):
                given[name] = expected
                continue
            raise _misfit(encoder, source, f"'{name}' is missing")
        value = given[name]
        if value.shape != expected.shape:
            raise _misfit(
                encoder, source, f"'{name}' has shape {tuple(value.shape)}, expected {tuple(expected.shape)}"
            )
        # one NaN in a filter is a NaN in every feature, which is far harder to trace back to the file
        if expected.is_floating_point() and not (value.is_floating_point() and value.isfinite().all()):
            raise _misfit(encoder, source, f"'{name}' should hold finite floating-point numbers")
    for name in given:
        if name not in expected_state:
            raise _misfit(encoder, source, f"'{name}' is unexpected")
    encoder.load_state_dict(given)


def _misfit(encoder: ImageEncoder, source: str, what: str) -> CheckpointError:
    return CheckpointError(
        f"weights '{source}' do not fit {type(encoder).__name__} as set: {what}; "
        "give a file with torchvision's names for this network and width"
    )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
