"""A network of pictures compiled by OpenVINO: the same numbers, several times as fast on many CPUs.

In fp32 features agree with torch's to 1e-4 of the largest, in bf16 (where torch rounds as well, at other places)
embeddings have a cosine of at least 0.99 with those of fp32: tests/inference/test_openvino_module.py holds both.
"""

import threading
import warnings
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from limner.errors import SettingsError, install_hint
from limner.inference.precision import Arithmetic


class OpenVINOModule:
    """Runs a module of one picture batch (uint8, channels first) that was traced once, for any number of pictures."""

    def __init__(self, module: nn.Module, size: tuple[int, int], precision: Arithmetic) -> None:
        """`size`: height and width of every picture. Raises `SettingsError` where OpenVINO is not installed."""
        openvino = require_openvino()
        example = torch.zeros(2, 3, *size, dtype=torch.uint8)
        with warnings.catch_warnings(), torch.inference_mode(False), torch.no_grad():
            # the tracer remarks on each Python condition; those of a backbone are of its layers, not of pictures
            warnings.simplefilter("ignore")
            traced = openvino.convert_model(
                module.eval(), example_input=example, input=[openvino.PartialShape([-1, 3, *size])]
            )
        hint = {"fp32": "f32", "bf16": "bf16"}[precision]
        threads = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "INFERENCE_PRECISION_HINT": hint}
        self._compiled: Any = openvino.Core().compile_model(traced, "CPU", threads)
        self._one_at_a_time = threading.Lock()

    def __call__(self, pictures: UInt8[np.ndarray, "images 3 height width"]) -> Float[Tensor, "images ..."]:
        """What the module makes of pictures."""
        with self._one_at_a_time:
            found = self._compiled(np.ascontiguousarray(pictures))[0]
            return torch.from_numpy(np.array(found, dtype=np.float32))


def require_openvino() -> Any:
    """The library. Raises `SettingsError` where it is not installed."""
    try:
        import openvino
    except ImportError:
        raise SettingsError(
            f"engine 'openvino': it is not installed; {install_hint('openvino')}, or take engine 'torch'"
        ) from None
    return openvino
