"""Recordings of towers for the whole test run: each takes seconds, and many tests export the same model."""

import copy
import fcntl
import hashlib
import io
import os
import pickle
import re
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from pydantic import BaseModel
from torch import Tensor, nn

from limner.export import onnx_files, run
from limner.export.onnx_files import Example

# such as that in which a pretrained tower was unpacked, which its configuration names; weights and settings are told
_TEMPORARY = re.compile(rf'{re.escape(tempfile.gettempdir())}/[^"]*/')


class _Content(pickle.Pickler):
    """The same bytes for the same tower, in every process of the run and from whichever temporary folder it came."""

    # each equal text is written again: whether two of them are one object differs between two readings of a tower
    fast = True

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, str) and _TEMPORARY.match(obj):
            return "temporary", _TEMPORARY.sub("", obj)
        if isinstance(obj, Tensor):
            return str(obj.dtype), tuple(obj.shape), obj.detach().contiguous().numpy().tobytes()
        # each process has an order of its own
        if isinstance(obj, set | frozenset):
            return "set", tuple(sorted(map(repr, obj)))
        # transformers hangs functions of its own on a model, once it was asked for hidden states: they compute nothing;
        # their keys count the hooks of the process
        if isinstance(obj, OrderedDict) and any(isinstance(hook, FunctionType) for hook in obj.values()):
            return "hooks", tuple(hook.__qualname__ for hook in obj.values())
        return None

    def reducer_override(self, obj: Any) -> Any:
        # its state holds a set of names
        if isinstance(obj, BaseModel):
            return type(obj), (_TEMPORARY.sub("", obj.model_dump_json()),)
        return NotImplemented


def digest_of(*content: object) -> str:
    """SHA-256 of all that is in an object, tensors and settings alike."""
    written = io.BytesIO()
    _Content(written).dump(content)
    return hashlib.sha256(written.getvalue()).hexdigest()


def keep_recordings(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Have exports take a tower from `folder` that was recorded before: weights, code and settings are the same.

    Workers share the folder. One waits for another that records the same.
    """
    folder.mkdir(exist_ok=True)
    record: Callable[..., None] = onnx_files.write_graph
    one_file = onnx_files._ONE_FILE
    once = cache(lambda: keep_translations(patch))

    def recorded(tower: nn.Module, inputs: Mapping[str, Example], outputs: Sequence[str], path: Path) -> None:
        # not earlier, since it imports the exporter
        with suppress(ImportError):
            once()
        record(tower, inputs, outputs, path)

    def kept(tower: nn.Module, inputs: Mapping[str, Example], outputs: Sequence[str], path: Path) -> None:
        if one_file != onnx_files._ONE_FILE:
            recorded(tower, inputs, outputs, path)
            return
        # before the digest, which tells a module that trains from one that does not
        tower.eval()
        with (folder / f"{digest_of(tower, inputs, list(outputs))}.onnx").open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if file.seek(0, os.SEEK_END):
                shutil.copyfile(file.name, path)
                return
            recorded(tower, inputs, outputs, path)
            file.write(path.read_bytes())

    for module in (onnx_files, run):
        patch.setattr(module, "write_graph", kept)


def keep_translations(patch: pytest.MonkeyPatch) -> None:
    """Have torch's exporter read its 500 translations once; for each recording it takes a second.

    There is no public way. Raises `ImportError` without onnxscript.
    """
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    read = cache(ONNXRegistry.from_torchlib)

    def kept(*version: int, **named: int) -> ONNXRegistry:
        registry = copy.copy(read(*version, **named))
        # a recording adds its own
        registry.functions = {operation: [*found] for operation, found in registry.functions.items()}
        return registry

    patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(kept))
