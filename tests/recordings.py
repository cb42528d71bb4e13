"""Recordings of towers for the whole test run: each takes seconds, and many tests export the same model."""

import hashlib
import io
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from pydantic import BaseModel
from torch import Tensor, nn

from limner.export import immich, onnx_files, run


class _Content(pickle.Pickler):
    """The same bytes for the same tower, in every process of the run."""

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, Tensor):
            return str(obj.dtype), tuple(obj.shape), obj.detach().contiguous().numpy().tobytes()
        return None

    def reducer_override(self, obj: Any) -> Any:
        # transformers hangs functions of its own on a model, once it was asked for hidden states: they compute nothing
        if isinstance(obj, FunctionType) and "<locals>" in obj.__qualname__:
            return str, (obj.__qualname__,)
        # its state holds a set of names, whose order is the process's own
        return (type(obj), (obj.model_dump_json(),)) if isinstance(obj, BaseModel) else NotImplemented


def digest_of(*content: object) -> str:
    """SHA-256 of all that is in an object, tensors and settings alike."""
    written = io.BytesIO()
    _Content(written).dump(content)
    return hashlib.sha256(written.getvalue()).hexdigest()


def keep_recordings(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Have exports take a tower from `folder` that was recorded before: weights, code and settings are the same.

    Workers share the folder; two that record the same at once write the same.
    """
    folder.mkdir(exist_ok=True)
    record: Callable[..., None] = onnx_files.write_onnx
    one_file = onnx_files._ONE_FILE

    def kept(tower: nn.Module, example: Tensor, name: str, path: Path, *, any_length: bool = False) -> None:
        if one_file != onnx_files._ONE_FILE:
            record(tower, example, name, path, any_length=any_length)
            return
        # before the digest, which tells a module that trains from one that does not
        tower.eval()
        file = folder / f"{digest_of(tower, example, name, any_length)}.onnx"
        if not file.exists():
            record(tower, example, name, path, any_length=any_length)
            written = file.with_suffix(f".{os.getpid()}")
            shutil.copyfile(path, written)
            written.rename(file)
            return
        shutil.copyfile(file, path)

    for module in (run, immich):
        patch.setattr(module, "write_onnx", kept)
