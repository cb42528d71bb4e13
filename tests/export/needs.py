"""Tests that are skipped where a library is missing, and a search where torch is not to be had."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from limner.errors import SettingsError
from limner.inference.openvino_library import require_openvino


def need_openvino() -> None:
    """Skip a test if OpenVINO is not installed.

    `pytest.importorskip` would import its telemetry too, which copies this process for each report of a conversion.
    """
    try:
        require_openvino()
    except SettingsError as missing:
        pytest.skip(str(missing))


def search_without_torch(store: Path, query: str, export: Path) -> list[dict[str, Any]]:
    """The hits of `limner search` in a process that refuses to import torch."""
    hits: list[dict[str, Any]] = without_torch("search", store, query, "--run", export)["hits"]
    return hits


def without_torch(*arguments: str | Path) -> dict[str, Any]:
    """What `limner ARGUMENTS --json` prints in a process that refuses to import torch."""
    answered = run_without_torch(*arguments)
    assert answered.returncode == 0, answered.stderr
    told: dict[str, Any] = json.loads(answered.stdout)
    return told


def run_without_torch(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """`limner ARGUMENTS --json` in a process that refuses to import torch."""
    called = ["limner", *(str(argument) for argument in arguments), "--json"]
    code = (
        "import sys\n"
        "class Refused:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('torch', 'transformers', 'accelerate'):\n"
        "            raise ModuleNotFoundError(f'{name} is not to be imported', name=name)\n"
        "sys.meta_path.insert(0, Refused())\n"
        "from limner.__main__ import main\n"
        f"sys.argv = {called!r}\n"
        "main()\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
