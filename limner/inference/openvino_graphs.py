"""Modules of torch as graphs of OpenVINO, kept in limner's cache: tracing and converting one takes seconds.

    $LIMNER_CACHE/openvino/KEY.graph   the SHA-256 of the rest, the length of the XML, the XML, the weights

The key covers all that a graph comes from: the module's values, classes and settings, the size of the pictures, the
source text of limner's networks, and the versions of torch and OpenVINO. A graph does not depend on the processor: it
is compiled for it anew, in a tenth of a second. An entry that is damaged is made anew, and where nothing can be kept,
nothing is.
"""

import hashlib
import io
import os
import pickle
import warnings
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import limner.models.image
from limner.data.image_digests import cache_folder
from limner.durable import write_whole
from limner.errors import DataError
from limner.inference.openvino_library import require_openvino

KEPT = 16
"""Graphs that stay; those that were not used for longest go first."""

_DIGEST, _LENGTH = 32, 8
"""Bytes of an entry's digest, and of the length of its XML."""


def openvino_graph(module: nn.Module, size: tuple[int, int]) -> Any:
    """The graph of a module for any number of pictures (uint8, channels first) of a height and width, kept or new.

    Raises `SettingsError` if OpenVINO is not installed.
    """
    openvino = require_openvino()
    module.eval()
    file = _file(module, size)
    content = None if file is None else _read(file)
    if content is None:
        content = _converted(openvino, module, size)
        if file is not None:
            _keep(file, content)
    # also a new one, so that both compute the same to the last bit
    length = int.from_bytes(content[:_LENGTH], "little")
    xml, weights = content[_LENGTH : _LENGTH + length], content[_LENGTH + length :]
    # OpenVINO reads the values where they lie, so the array has to live as long as the graph: Tensor holds it
    return openvino.Core().read_model(
        bytes(xml), openvino.Tensor(np.frombuffer(weights, np.uint8), shared_memory=False)
    )


def _converted(openvino: Any, module: nn.Module, size: tuple[int, int]) -> bytes:
    # uint8: the backbone normalises pixels itself, and a batch has a quarter of float32's bytes
    example = torch.zeros(2, 3, *size, dtype=torch.uint8)
    with warnings.catch_warnings(), torch.inference_mode(False), torch.no_grad():
        # the tracer remarks on each Python condition; those of a backbone are of its layers, not of pictures
        warnings.simplefilter("ignore")
        # Traced here, since OpenVINO lets torch trace a second time and compare, for which torch imports its
        # distributed tensors: 2.9 s of processor time for MobileNetV2, and 1.2 without.
        traced = torch.jit.trace(module, example, strict=False, check_trace=False)  # type: ignore[no-untyped-call]
        graph = openvino.convert_model(
            traced, example_input=example, input=[openvino.PartialShape([-1, 3, *size])]
        )
    with TemporaryDirectory() as folder:
        xml = Path(folder) / "graph.xml"
        openvino.save_model(graph, xml, compress_to_fp16=False)
        text = xml.read_bytes()
        return len(text).to_bytes(_LENGTH, "little") + text + xml.with_suffix(".bin").read_bytes()


def _file(module: nn.Module, size: tuple[int, int]) -> Path | None:
    """The entry's place; None where there is no cache, or for a module that cannot be told from another."""
    digest = hashlib.sha256(f"{size} {torch.__version__} {version('openvino')}".encode())
    for source in sorted(Path(limner.models.image.__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    try:
        stream = io.BytesIO()
        _Described(stream).dump(module)
        digest.update(stream.getbuffer())
        return cache_folder() / "openvino" / f"{digest.hexdigest()}.graph"
    except (DataError, OSError, pickle.PicklingError, AttributeError, TypeError, RecursionError):
        return None


class _Described(pickle.Pickler):
    """Writes classes and values of a module, tensors by their digests. It is hashed, and never read."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, nn.Module):
            # the order of a set of names is another in each process
            own = {
                name: sorted(part) if isinstance(part, set) else part for name, part in vars(value).items()
            }
            return dict, ([(f"{type(value).__module__}.{type(value).__qualname__}", own)],)
        if not isinstance(value, Tensor):
            return NotImplemented
        # bfloat16 is unknown to numpy, so the bytes are taken
        raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return str, (f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(raw.data).hexdigest()}",)


def _read(file: Path) -> bytes | None:
    """An entry's content; None if it is not there, or damaged."""
    try:
        whole = file.read_bytes()
        if hashlib.sha256(memoryview(whole)[_DIGEST:]).digest() != whole[:_DIGEST]:
            return None
        os.utime(file)
    except OSError:
        return None
    return whole[_DIGEST:]


def _keep(file: Path, content: bytes) -> None:
    """Write an entry under its name when it is whole, and remove those beyond the number that stays."""
    # a full disk, or a folder that cannot be written: the next process converts again
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, hashlib.sha256(content).digest() + content)
        entries = sorted(file.parent.iterdir(), key=lambda one: one.stat().st_mtime, reverse=True)
        for old in entries[KEPT:]:
            old.unlink(missing_ok=True)
