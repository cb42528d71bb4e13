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

# normally distributed weights lose 0.8 %
_MOST_LOST = 0.01
"""Share of a weight's length that int8 may lose."""

_LEAST = 1024
"""Numbers of the smallest weight that is worth an int8 of its own."""


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
    """Write a text tower whose weights stand in int8, with a scale a row or column, and are multiplied out when used.

    A weight that would lose more than a share of its length stands in half precision: rows of one large number among
    small ones, which the start as a bag of words makes, lose all that was learnt beside it. It computes in fp32. With
    activations in int8, too, whose scales ONNX Runtime takes over a whole batch, the text CNN of dual-path fell from
    13.7 to 2.9 R@1 on Flickr8k's validation, and a sentence's embedding depended on its neighbours.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    model = onnx.load(str(source))
    graph = model.graph
    weights = {one.name: one for one in graph.initializer}
    # the axis along which each scale holds: one for each output of a product, and for each word of a table
    axes: dict[str, int] = {}
    turned = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "Transpose"}
    for node in graph.node:
        places = {"MatMul": (1,), "Gemm": (1,), "Gather": (0,), "LSTM": (1, 2)}.get(node.op_type, ())
        for place in places:
            given = node.input[place] if place < len(node.input) else ""
            # a linear layer's weight stands in torch's order, and is turned before the product
            name = turned.get(given, given)
            weight = weights.get(name)
            if weight is None or weight.data_type != TensorProto.FLOAT or len(weight.dims) < 2:
                continue
            transposed = name != given or any(one.name == "transB" and one.i for one in node.attribute)
            is_row = node.op_type == "Gather" or transposed
            axes[name] = 0 if is_row else len(weight.dims) - (2 if node.op_type == "LSTM" else 1)
    made = []
    for name, axis in axes.items():
        values = numpy_helper.to_array(weights[name])
        if values.size < _LEAST:
            continue
        others = tuple(one for one in range(values.ndim) if one != axis)
        scales = np.abs(values).max(axis=others) / 127
        # a row of zeros keeps its zeros
        scales = np.where(scales > 0, scales, 1).astype(np.float32)
        shape = [-1 if one == axis else 1 for one in range(values.ndim)]
        whole = np.rint(values / scales.reshape(shape)).astype(np.int8)
        graph.initializer.remove(weights[name])
        lost = np.linalg.norm(values - whole * scales.reshape(shape)) / np.linalg.norm(values)
        if lost > _MOST_LOST:
            graph.initializer.append(numpy_helper.from_array(values.astype(np.float16), f"{name}_half"))
            made.append(
                helper.make_node(
                    "Cast", [f"{name}_half"], [name], name=f"{name}_from_half", to=TensorProto.FLOAT
                )
            )
            continue
        graph.initializer.extend(
            [
                numpy_helper.from_array(whole, f"{name}_int8"),
                numpy_helper.from_array(scales, f"{name}_scale"),
                numpy_helper.from_array(np.zeros(len(scales), np.int8), f"{name}_zero"),
            ]
        )
        made.append(
            helper.make_node(
                "DequantizeLinear",
                [f"{name}_int8", f"{name}_scale", f"{name}_zero"],
                [name],
                name=f"{name}_multiplied_out",
                axis=axis,
            )
        )
    nodes = [*made, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.save(model, str(target))


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
