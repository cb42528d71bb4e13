"""Runs exported graphs by ONNX Runtime or OpenVINO, without torch."""

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from limner.errors import CheckpointError, SettingsError, install_hint

Engine = Literal["onnx", "openvino"]
"""The program that runs a tower."""

Run = Callable[[np.ndarray], Float[np.ndarray, "rows dim"]]
"""A tower: pixels or token ids in, embeddings out. It may be called by several threads."""

OUTPUT = "embeddings"
"""Name of a tower's output; "embedding" is what exporters call a look-up in a word table."""


class Graph(NamedTuple):
    """A loaded file.

    - `inputs`: the names of what it reads.
    - `run`: arrays in by these names, arrays out by the names of its outputs. It may be called by several threads.
    """

    inputs: tuple[str, ...]
    run: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]


def open_tower(path: Path, engine: Engine, *, bf16: bool = False) -> Run:
    """Load a tower; otherwise as `open_graph`."""
    graph = open_graph(path, engine, bf16=bf16)
    name = graph.inputs[0]
    return lambda rows: graph.run({name: rows})[OUTPUT]


def open_graph(path: Path, engine: Engine, *, bf16: bool = False) -> Graph:
    """Load a file; `bf16` lets OpenVINO compute in it.

    Raises `SettingsError` if the engine is not installed, `CheckpointError` for a damaged file.
    """
    return _onnx(path) if engine == "onnx" else _openvino(path, bf16=bf16)


def threads() -> int | None:
    """The threads that the environment allows a process; None = it says nothing."""
    # neither engine reads it itself
    told = os.environ.get("OMP_NUM_THREADS", "")
    return int(told) if told.isdecimal() and int(told) > 0 else None


def require_onnxruntime() -> Any:
    """ONNX Runtime. Raises `SettingsError` if it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        raise SettingsError(f"a tower in ONNX needs onnxruntime: {install_hint('onnx')}") from None
    return onnxruntime


def _onnx(path: Path) -> Graph:
    onnxruntime = require_onnxruntime()
    options = onnxruntime.SessionOptions()
    # warnings of its graph passes say nothing to a user
    options.log_severity_level = 3
    if (most := threads()) is not None:
        options.intra_op_num_threads = most
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    # its errors derive from Exception alone
    except Exception as error:
        raise _damaged(path, error) from None
    outputs = [one.name for one in session.get_outputs()]

    def run(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        found = session.run(outputs, {name: np.ascontiguousarray(array) for name, array in arrays.items()})
        return dict(zip(outputs, found, strict=True))

    return Graph(tuple(one.name for one in session.get_inputs()), run)


def _openvino(path: Path, *, bf16: bool) -> Graph:
    from limner.inference.openvino_library import require_openvino

    openvino: Any = require_openvino()
    # always given: by default OpenVINO takes bf16 wherever the processor has it
    config: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "bf16" if bf16 else "f32"}
    if (most := threads()) is not None:
        config["INFERENCE_NUM_THREADS"] = most
    try:
        compiled = openvino.Core().compile_model(str(path), "CPU", config)
    except Exception as error:
        raise _damaged(path, error) from None
    one_at_a_time = threading.Lock()

    def run(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        # a compiled model has one request and one output buffer; the copies leave it before the next call
        with one_at_a_time:
            found = compiled({name: np.ascontiguousarray(array) for name, array in arrays.items()})
            return {one.get_any_name(): np.array(found[one]) for one in compiled.outputs}

    return Graph(tuple(one.get_any_name() for one in compiled.inputs), run)


def openvino_has_bf16() -> bool:
    """True where OpenVINO computes in bf16 on this processor if asked to; elsewhere it computes in fp32."""
    from limner.inference.openvino_library import require_openvino

    core: Any = require_openvino().Core()
    return "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def _damaged(path: Path, error: Exception) -> CheckpointError:
    lines = str(error).strip().splitlines()
    reason = lines[-1][:200] if lines else type(error).__name__
    return CheckpointError(f"{path}: cannot be loaded ({reason}); export the run anew")
