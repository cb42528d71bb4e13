"""Weights and activations in int8, by what ONNX Runtime's quantisation measures on calibration rows."""

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

_AT_ONCE = 8
"""Calibration rows a call."""


def quantise_images(source: Path, target: Path, name: str, pixels: np.ndarray) -> None:
    """Write an image tower with convolutions and products in int8, scales measured on these pictures.

    Weights have a scale a channel. OpenVINO reads the same file.
    """
    from onnxruntime.quantization import (
        CalibrationDataReader,
        CalibrationMethod,
        QuantFormat,
        QuantType,
        quantize_static,
    )

    class Pictures(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.blocks: Iterator[dict[str, np.ndarray]] = iter(
                {name: pixels[start : start + _AT_ONCE]} for start in range(0, len(pixels), _AT_ONCE)
            )

        def get_next(self) -> Any:
            return next(self.blocks, None)

    with _prepared(source) as prepared:
        quantize_static(
            str(prepared),
            str(target),
            Pictures(),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=["Conv", "MatMul", "Gemm"],
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            calibrate_method=CalibrationMethod.MinMax,
        )


def quantise_texts(source: Path, target: Path) -> None:
    """Write a text tower with the weights of products, recurrences and word tables in int8.

    Scales of activations are those of each sentence, so nothing is measured before.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _prepared(source) as prepared:
        quantize_dynamic(
            str(prepared),
            str(target),
            op_types_to_quantize=["MatMul", "Gemm", "Gather", "LSTM"],
            per_channel=True,
            weight_type=QuantType.QInt8,
        )


@contextlib.contextmanager
def _prepared(source: Path) -> Iterator[Path]:
    """The file with the shapes that quantisation asks for; its remarks are about its own passes."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    level = logging.root.level
    logging.root.setLevel(logging.ERROR)
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            prepared = Path(folder) / "prepared.onnx"
            # symbolic shapes fail on networks with sizes that are values; plain ones are enough
            quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
            yield prepared
    finally:
        logging.root.setLevel(level)
