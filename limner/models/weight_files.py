"""Weight files of others: plain tensors by name, read without running code."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from limner.errors import CheckpointError


def read_state(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors, .pth, .pt or .bin file by name, on the CPU.

    No code of the file is run. A training checkpoint's own "state_dict" is taken, and the prefix "module."
    of data-parallel training removed. Raises `CheckpointError` when the file is missing, damaged or holds
    anything else.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise CheckpointError(
            f"weights '{path}': no such file; give a .safetensors or .pth file, or 'imagenet'"
        )
    try:
        if path.suffix.lower() == ".safetensors":
            content: Any = load_file(path)
        else:
            # a pickle runs code when it is read; weights_only allows tensors and plain containers
            content = torch.load(path, map_location="cpu", weights_only=True)
    # A damaged archive or pickle fails in any of a dozen ways, as deep as the damage lies.
    except Exception as error:
        raise CheckpointError(
            f"weights '{path}': expected a whole file of plain tensors, but reading it failed "
            f"({type(error).__name__}); fetch the file again or save it anew as .safetensors"
        ) from error
    return plain_tensors(content, str(path))


def plain_tensors(content: Any, source: str) -> dict[str, Tensor]:
    """The tensors of what a weight file held. Raises `CheckpointError` for anything else than tensors by name."""
    # training scripts save their epoch and optimiser beside the weights
    if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    if not isinstance(content, Mapping):
        raise CheckpointError(
            f"weights '{source}': expected tensors by name, got {type(content).__name__}; "
            "save the model's state_dict()"
        )
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise CheckpointError(
                f"weights '{source}': expected tensors by name, but {name!r} is a {type(value).__name__}; "
                "save the model's state_dict()"
            )
    return {name.removeprefix("module."): value for name, value in content.items()}


def expect_finite(state: Mapping[str, Tensor], source: str) -> None:
    """Raise `CheckpointError` for weights with NaN or infinity, which would be in every embedding; name the first."""
    for name, value in state.items():
        if value.is_floating_point() and not bool(value.isfinite().all()):
            what = "NaN" if bool(value.isnan().any()) else "infinity"
            raise CheckpointError(
                f"model '{source}': its weights hold {what}, first in '{name}'; fetch the model again, or save it from "
                "a training that has not diverged"
            )
