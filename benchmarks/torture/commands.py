"""Commands of limner: called in this process, or started as a process that can be killed."""

import io
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import torch

from limner.cli.main import main

# as in processes that are started: sums over several threads are added in another order each time
torch.set_num_threads(1)

ROOT = Path(__file__).parents[2]
"""The checkout, which is first on the path of each process: a test's environment may hold another limner."""

_ONE_LINE = re.compile(r'limner: [^\n]+\n|\{"error": [^\n]+\}\n')


@dataclass(frozen=True)
class Result:
    """What a command said, and its exit code."""

    command: tuple[str, ...]
    code: int
    out: str
    err: str

    @property
    def refused(self) -> bool:
        """True for a refusal as it should be: exit code 2 and one line, of JSON if that was asked for."""
        return self.code == 2 and _ONE_LINE.fullmatch(self.err) is not None

    def __str__(self) -> str:
        said = (self.err or self.out)[-200:]
        return f"`limner {' '.join(self.command)}` ended with {self.code}: {said}"


def called(*arguments: object) -> Result:
    """Call a command in this process, through its error boundary; an exception that passes it is let through."""
    command = tuple(map(str, arguments))
    before, out, err = sys.argv, io.StringIO(), io.StringIO()
    sys.argv = ["limner", *command]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    finally:
        sys.argv = before
    return Result(command, code, out.getvalue(), err.getvalue())


def started(
    *arguments: object,
    environment: Mapping[str, str] | None = None,
    program: tuple[str, ...] = ("-m", "limner"),
) -> "subprocess.Popen[str]":
    """Start a command as a process in a session of its own, so that a signal reaches nobody else."""
    return subprocess.Popen(
        [sys.executable, *program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
            **(environment or {}),
        },
    )


def ended(process: "subprocess.Popen[str]", *, seconds: float = 600) -> Result:
    """Wait for a process, and end it if it takes too long, which is an error of the harness's caller."""
    assert isinstance(process.args, list)
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        err += f"(ended after {seconds:g} s)"
    return Result(tuple(map(str, process.args[3:])), process.returncode, out, err)


def has_command(*names: str) -> bool:
    """True if this limner has such a command."""
    return called(*names, "--help").code == 0
