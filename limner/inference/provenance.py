"""Provenance of a run's numbers beside its settings: versions, the commit, and the machine."""

import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch


def versions() -> dict[str, str]:
    """Versions of limner, its commit, torch, numpy and Python, the processor, and how many threads torch has.

    >>> sorted(versions().keys() - {"commit"})
    ['limner', 'numpy', 'processor', 'python', 'threads', 'torch']
    """
    found = {
        "limner": version("limner"),
        "torch": str(torch.__version__),
        "numpy": str(np.__version__),
        "python": platform.python_version(),
        "processor": processor(),
        # it changes the order of sums: the same demo ended at 39.0 with one thread and at 35.9 with two
        # (docs/log/2026-11-21.md)
        "threads": str(torch.get_num_threads()),
    }
    # the checkout's root; where limner is installed, site-packages, which has no .git
    commit = commit_of(Path(__file__).parents[2])
    return found | ({"commit": commit} if commit else {})


def processor() -> str:
    """The processor's name, or its architecture if the system does not say."""
    try:
        # the file, since `platform.processor()` says no more than the architecture on Linux, or nothing
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    # ARM's cpuinfo has no model name
    return named[0] if named else platform.machine()


@cache
def commit_of(checkout: Path) -> str | None:
    """The commit of a git checkout, with "+" behind it where tracked files differ; None for an installed package.

    Asked once a process, since the code that runs is the one that was there when it began.
    """
    # `git -C` climbs: without this a virtual environment within somebody's repository would name that
    if not (checkout / ".git").exists():
        return None
    try:
        head, changed = (
            subprocess.run(
                ["git", "-C", str(checkout), *arguments],
                capture_output=True,
                text=True,
                check=True,
                timeout=10,
            ).stdout.strip()
            # run folders and stores lie untracked in a checkout and change no code
            for arguments in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{head}+" if changed else head
