"""Functions called each in a process of its own, forked from one that has imported everything.

A fresh Python takes seconds to import torch and limner; a fork takes milliseconds, may be killed, and may end by a
signal. The functions take and return what JSON holds.
"""

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from benchmarks.torture.commands import ROOT
from limner.errors import LimnerError


class EndedError(Exception):
    """A process that ended without an answer, such as by a signal."""


class Forks:
    """The process that forks: see `forks`."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def __call__(self, function: str, *arguments: Any) -> Any:
        """Call `MODULE:FUNCTION`. Raises `EndedError`, and `LimnerError` as the function does."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([function, arguments]) + "\n")
        self._process.stdin.flush()
        kind, value = json.loads(self._process.stdout.readline())
        if kind == "answer":
            return value
        raise (LimnerError if kind == "refused" else EndedError)(value)


@contextmanager
def forks(environment: Mapping[str, str]) -> Iterator[Forks]:
    """Start a process whose forks answer calls, one at a time; it ends with the block."""
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **environment},
    ) as process:
        try:
            yield Forks(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()


def _answer(function: str, arguments: list[Any]) -> list[Any]:
    module, _, name = function.partition(":")
    try:
        return ["answer", getattr(import_module(module), name)(*arguments)]
    except LimnerError as error:
        return ["refused", str(error)]
    except BaseException:
        return ["bug", traceback.format_exc()[-2000:]]


def _main() -> None:
    import torch

    torch.set_num_threads(1)
    for name in ("cli.main", "cli.index", "cli.store", "search.store", "search.index", "inference.load"):
        import_module(f"limner.{name}")
    import_module("benchmarks.torture.histories")
    for line in sys.stdin:
        reading, writing = os.pipe()
        if not (child := os.fork()):
            os.close(reading)
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            with os.fdopen(writing, "w") as file:
                file.write(json.dumps(_answer(*json.loads(line))))
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as file:
            told = file.read()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(
            told or json.dumps(["ended", f"signal {-code}" if code < 0 else f"exit code {code}"]), flush=True
        )


if __name__ == "__main__":
    _main()
