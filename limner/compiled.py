"""C++ of ours, compiled by the machine's own compiler when it is first needed.

A package without compiled parts installs everywhere. Where there is a compiler, the few loops that PyTorch has no
operation for run as built for this processor; everywhere else PyTorch's operations do the same in more steps.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch  # before compiled code is loaded, so that both have the same threads

from limner.user_cache import user_cache

_FLAGS = ["-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fopenmp", "-fPIC", "-shared"]
if platform.machine() == "x86_64":
    _FLAGS.append("-mprefer-vector-width=512")  # in place of 256, GCC's choice on processors that have both
_SECONDS = 120


class Compiler(NamedTuple):
    """GCC on this machine."""

    path: str
    version: str
    """The first line that it says of itself."""


@cache
def compiler() -> Compiler | None:
    """The compiler that is used: GCC on Linux, since PyTorch's own builds there have their threads from its OpenMP.

    None where there is none, and with `LIMNER_COMPILE=0` in the environment.
    """
    path = shutil.which("g++")
    if os.environ.get("LIMNER_COMPILE") == "0" or platform.system() != "Linux" or path is None:
        return None
    try:
        said = subprocess.run(
            [path, "--version"], check=True, capture_output=True, text=True, timeout=_SECONDS
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return Compiler(path, said.stdout.partition("\n")[0].strip())


@cache
def compiled(source: Path) -> ctypes.CDLL | None:
    """The functions of a C++ file, or None where they cannot be had.

    None without a compiler (`compiler`). Where there is one but it fails, or the user's cache folder cannot be
    written or loaded from, also a warning. What was compiled is kept there in `compiled`, a folder of this user's
    alone, with a file for each source, compiler and processor, checked before it is loaded.
    """
    found = compiler()
    if found is None:
        return None
    try:
        folder, name = _own_folder(), f"{source.stem}-{_fingerprint(source, found)}"
        for kept in folder.glob(f"{name}-*.so"):
            if kept.name == f"{name}-{_digest(kept)}.so":  # a damaged one could end the process
                return ctypes.CDLL(str(kept))
        return ctypes.CDLL(str(_compile(source, found, folder, name)))
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        said = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else error
        warnings.warn(f"{source.name}: not compiled, so PyTorch's operations stand in ({said})", stacklevel=2)
        return None


def _own_folder() -> Path:
    """Made if need be. What others can write is not loaded from."""
    folder = user_cache() / "compiled"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{folder} can be written by others")
    return folder


def _fingerprint(source: Path, found: Compiler) -> str:
    """Of all that decides what comes out."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    processor = {line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))}
    parts = [source.read_text(encoding="utf-8"), *_FLAGS, *found, str(torch.__version__), *sorted(processor)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def _compile(source: Path, found: Compiler, folder: Path, name: str) -> Path:
    """All or nothing, as NAME-DIGEST.so; of two processes that compile at once either's file can be loaded."""
    with tempfile.TemporaryDirectory(dir=folder) as within:
        made = Path(within) / f"{name}.so"
        command = [found.path, *_FLAGS, str(source), "-o", str(made)]
        subprocess.run(
            command, check=True, capture_output=True, text=True, errors="replace", timeout=_SECONDS
        )
        return made.replace(folder / f"{name}-{_digest(made)}.so")
