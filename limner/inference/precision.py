"""The arithmetic of a forward pass on this device."""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

Precision = Literal["auto", "fp32", "bf16"]
Arithmetic = Literal["fp32", "bf16"]
InferenceEngine = Literal["torch", "openvino"]
"""The runtime of an image backbone at test."""


def pick_precision(wanted: Precision, device: torch.device) -> Arithmetic:
    """Resolve "auto": bf16 where the device multiplies it natively, else fp32.

    On a CPU that means AMX tiles or AVX-512 BF16; emulated bf16 is slower than fp32.
    """
    if wanted != "auto":
        return wanted
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
