"""Towers in int8: an image tower computes in it, a text tower stores its weights in it."""

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from limner.export.small_weights import write_small_weights

# one: the histograms of ranges want calls of equal size, and a remainder would be another
_AT_ONCE = 1
"""Calibration rows a call."""

# MobileNetV2: the mean cosine with fp32 rises from 0.968 to 0.983, the lowest of 1,000 from 0.87 to 0.96, for 0.5 MB
_NARROW = 64
"""Convolutions that read or write up to so many channels stay in fp32."""


@dataclass(frozen=True, eq=False)
class CalibrationRows:
    """Pictures as `prepare_image` gives them, by which int8 chooses its scales."""

    pixels: UInt8[np.ndarray, "images height width 3"]


def to_int8(file: Path, name: str, pixels: np.ndarray | None) -> None:
    """Replace a tower in fp32 by one in int8; `pixels` are rows of an image tower's input `name`, None = of text."""
    smaller = file.with_suffix(".int8")
    if pixels is None:
        write_small_weights(file, smaller, tables="int8", others="int8")
    else:
        quantise_images(file, smaller, name, pixels)
    for old in file.parent.glob(f"{file.name}*"):
        old.unlink()
    smaller.rename(file)


def quantise_images(source: Path, target: Path, name: str, pixels: np.ndarray) -> None:
    """Write an image tower with convolutions and products in int8, scales measured on these pictures.

    Weights have a scale a channel and seven bits, activations are whole numbers around 0. Narrow convolutions stay in
    fp32 (the first, and depthwise ones, whose channels differ most in range, are the narrowest), as does the last of
    each view: of 20.0 R@1 image→text of a dual-path with MobileNetV2 (Flickr8k, validation) 12.9 were left with all of
    them in int8. OpenVINO reads the same file.
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
            nodes_to_exclude=_sensitive(prepared),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=["Conv", "MatMul", "Gemm"],
            per_channel=True,
            # around 0: with another zero point OpenVINO's sums are not those of the file (docs/log/2026-11-27.md)
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            # seven bits a weight: with eight, two products overflow the 16 bits that they are summed in by processors
            # without VNNI
            reduce_range=True,
            calibrate_method=CalibrationMethod.Percentile,
            # the few largest activations are cut, so that the others have finer steps
            extra_options={"CalibPercentile": 99.99, "ActivationSymmetric": True},
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


def _sensitive(path: Path) -> list[str]:
    """Names of the convolutions that stay in fp32."""
    import onnx

    graph = onnx.load(str(path)).graph
    convolutions = {node.name: node for node in graph.node if node.op_type == "Conv"}
    shapes = {tensor.name: tensor.dims for tensor in graph.initializer}
    # by their places and not by their weights: each view of a picture passes all layers
    before = _convolutions_before(graph.node)
    within = set().union(*(before[name] for name in convolutions))
    return [
        name
        for name, node in convolutions.items()
        if name not in within or min(shapes[node.input[1]][:2]) <= _NARROW
    ]


def _convolutions_before(nodes: Any) -> dict[str, set[str]]:
    """By the name of a node, all convolutions that its inputs are made of."""
    of_value: dict[str, set[str]] = {}
    found: dict[str, set[str]] = {}
    # a graph's nodes stand in the order in which they are computed
    for node in nodes:
        found[node.name] = set().union(*(of_value.get(name, set()) for name in node.input))
        behind = found[node.name] | ({node.name} if node.op_type == "Conv" else set())
        of_value.update(dict.fromkeys(node.output, behind))
    return found
