"""Processes that begin with the training loop imported: a fork server has done it once for all of them.

A fresh Python takes 3 to 4 s of processor time to import torch and limner. Each process here is one of its own all the
same: what it computes, opens or forgets is gone when it ends. Nothing is computed in the server, and nothing that
starts threads is imported there (such as LanceDB), since a fork has none of them.
"""

import gc
import multiprocessing
import os
import runpy
import sys
from collections.abc import Callable
from functools import cache
from multiprocessing.forkserver import ensure_running
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

IMPORTED = (
    *("limner.training.loop", "limner.cli.main", "limner.cli.train", "tests.toy", __name__),
    # what trainings import later: the first step of an optimiser, the log, towers and their adapters
    *("torch._dynamo", "torch.utils.tensorboard", "transformers.models.clip.modeling_clip", "peft"),
)
"""Modules that the server imports; one that is not installed is left out."""

ROOT = Path(__file__).parents[1]

Target = Callable[..., None]


def started(target: Target, *arguments: Any, environment: dict[str, str] | None = None) -> BaseProcess:
    """Call a function of a module in a process of its own, which has the variables of this one.

    `environment`: more of them.
    """
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
    process = _server().Process(target=_called, args=(variables, target, *arguments))
    process.start()
    return process  # type: ignore[no-any-return]


@cache
def _server() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    # it finds the tests by it
    with patch.dict(os.environ, PYTHONPATH=str(ROOT)):
        ensure_running()
    return context


def _called(variables: dict[str, str], target: Target, *arguments: Any) -> None:
    # those of the server are of the moment when it began
    os.environ.clear()
    os.environ.update(variables)
    # each training ends with two full collections, which go through all that the server has imported otherwise
    gc.freeze()
    torch.set_num_threads(1)
    # Python's own generator has another seed in each fork; a fresh process's would have, too
    np.random.seed()
    target(*arguments)


def run_python(arguments: tuple[str, ...], written: Path) -> None:
    """Run `python ARGUMENTS`, a script or `-m` and a module; all that it writes goes to the file `written`."""
    with written.open("w", encoding="utf-8") as file:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(file.fileno(), stream.fileno())
    if arguments[0] == "-m":
        sys.argv = [*arguments[1:]]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [*arguments]
        runpy.run_path(arguments[0], run_name="__main__")
