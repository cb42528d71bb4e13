"""Writes towers as ONNX, and ONNX as OpenVINO's format."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from limner.errors import SettingsError, install_hint
from limner.export.recurrent import translations
from limner.export.sessions import OUTPUT
from limner.inference.openvino_library import require_openvino

# a protobuf message ends at 2 GiB
_ONE_FILE = 1_800_000_000
"""Most bytes of weights that stand in the graph's own file; more stand in a file beside it."""

# a text tower of 110 MB opens in 0.12 s in place of 0.32
_BESIDE = 32_000_000
"""Least size in bytes of a file whose weights `put_weights_beside` moves."""


def require_onnx() -> None:
    """Raise `SettingsError` if what writes ONNX is not installed."""
    try:
        import onnx
        import onnxscript
    except ImportError:
        raise SettingsError(f"export needs onnx and onnxscript: {install_hint('onnx')}") from None
    del onnx, onnxscript


class Example(NamedTuple):
    """An input that a module is recorded with; the axes `open` may have any size."""

    values: Tensor
    open: tuple[int, ...] = (0,)


def write_onnx(tower: nn.Module, example: Tensor, name: str, path: Path, *, any_length: bool = False) -> None:
    """Record a tower and write it as ONNX; rows, and with `any_length` their length, stay open.

    `name` is that of the input. Otherwise as `write_graph`.
    """
    write_graph(tower, {name: Example(example, (0, 1) if any_length else (0,))}, [OUTPUT], path)


@torch.no_grad()
def write_graph(tower: nn.Module, inputs: Mapping[str, Example], outputs: Sequence[str], path: Path) -> None:
    """Record a module and write it as ONNX.

    Inputs and outputs are named in the order in which the module takes and gives them. Weights beyond 1.8 GB stand in
    a file beside it, PATH.data.
    """
    open_ended = tuple(dict.fromkeys(one.open, torch.export.Dim.DYNAMIC) for one in inputs.values())
    # a mode of the whole tower: a module that trains draws dropout, and its statistics are of the batch
    tower.eval()
    size = sum(weight.numel() * weight.element_size() for weight in (*tower.parameters(), *tower.buffers()))
    with _quiet():
        recorded = torch.export.export(
            _Positional(tower), tuple(one.values for one in inputs.values()), dynamic_shapes=(open_ended,)
        )
        program: Any = torch.onnx.export(
            recorded,
            dynamo=True,
            verbose=False,
            custom_translation_table=translations(),
            input_names=list(inputs),
            output_names=list(outputs),
        )
        _forget_origins(program.model)
        program.save(path, external_data=size > _ONE_FILE)


class _Positional(nn.Module):
    """A module whose inputs are counted, since one that takes any number of them is recorded otherwise."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        return self.module(*inputs)  # type: ignore[no-any-return]


def _forget_origins(model: Any) -> None:
    """Take out where each operation stands in the code: it names folders of this machine."""
    model.metadata_props.clear()
    for graph in (model.graph, *model.functions.values()):
        for node in graph.all_nodes():
            node.metadata_props.clear()
            node.doc_string = None
            for value in node.outputs:
                value.metadata_props.clear()
        for value in (*graph.inputs, *getattr(graph, "initializers", {}).values()):
            value.metadata_props.clear()


def put_weights_beside(path: Path) -> None:
    """Move the weights of a large file to PATH.data, which ONNX Runtime maps into memory in place of reading it."""
    import onnx

    if path.stat().st_size < _BESIDE:
        return
    beside = path.with_name(f"{path.name}.data")
    onnx.save_model(
        onnx.load(path), path, save_as_external_data=True, all_tensors_to_one_file=True, location=beside.name
    )
    # onnx makes a file that nobody else may read, such as a server's account
    beside.chmod(path.stat().st_mode)


def write_openvino(source: Path, path: Path) -> None:
    """Convert an ONNX file to OpenVINO's two files, PATH.xml and PATH.bin, weights as they are."""
    openvino = require_openvino()
    openvino.save_model(openvino.convert_model(str(source)), str(path), compress_to_fp16=False)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporters report each of their passes on stdout and by warnings, none of which a user can act on."""
    names = ("torch.onnx", "torch.export", "onnxscript", "torch._export", "onnx_ir")
    before = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
