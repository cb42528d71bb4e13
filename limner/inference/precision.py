"""The arithmetic of a forward pass on this device."""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

Precision = Literal["auto", "fp32", "bf16"]
Arithmetic = Literal["fp32", "bf16"]
InferenceEngine = Literal["torch", "openvino"]
"""The runtime of an image backbone at test."""


def pick_precision(wanted: Precision, device: torch.device) -> Arithmetic:
    """Resolve "auto": bf16 where the device multiplies it natively, else fp32, which is then true fp32.

    On a CPU that means AMX tiles or AVX-512 BF16; emulated bf16 is slower than fp32.
    """
    found = _natively(device) if wanted == "auto" else wanted
    if found == "fp32":
        without_tf32(device)
    return found


def measuring_precision(
    wanted: Precision | None, device: torch.device, of_recipe: Precision = "auto"
) -> Arithmetic:
    """The arithmetic of whatever measures, and of whatever encodes by a run that is loaded.

    `wanted` is the user's; None = fp32 on a CPU, so that a run has the same figures on every processor, and what the
    recipe trains with on an accelerator.
    """
    # bf16 on a CPU: image cosines down to 0.9926, and two thirds of the queries with another rank, so that a run
    # differed from itself with p = 0.045 (docs/log/2026-11-28.md#figures-by-the-processor)
    default = "fp32" if device.type == "cpu" else of_recipe
    return pick_precision(default if wanted is None else wanted, device)


def without_tf32(device: torch.device) -> None:
    """Switch TF32 off on a CUDA device, for the rest of the process: fp32 is then what a report says.

    torch rounds the inputs of fp32 convolutions to TF32's 10 bits unless told otherwise.
    """
    # for good and not for a while: the switch is one for all threads, and those of a server would put it back meanwhile
    if device.type == "cuda":
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_tf32 = False


def _natively(device: torch.device) -> Arithmetic:
    if device.type == "cuda":
        # torch counts emulation as support unless told otherwise
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    # other accelerators get fp32, since nothing was measured on them
    if device.type != "cpu":
        return "fp32"
    # each architecture lists its own capabilities, hence `get` below
    can = torch.cpu.get_capabilities()
    return "bf16" if can.get("amx_bf16") or can.get("avx512_bf16") else "fp32"


def autocast(precision: Arithmetic, device: torch.device) -> AbstractContextManager[object]:
    """The context a forward pass runs in."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


def default_device() -> torch.device:
    """The accelerator if there is one, else the CPU."""
    if torch.accelerator.is_available():
        # not alone: a torch that is built for an accelerator names it even on a machine without one
        found = torch.accelerator.current_accelerator()
        if found is not None:
            return found
    return torch.device("cpu")
