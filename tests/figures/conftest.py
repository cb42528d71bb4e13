from pathlib import Path

import pytest

from limner.runs import load_run
from limner.runs.run import Run


@pytest.fixture(scope="package")
def run(toy_run: Path) -> Run:
    """The toys' run, on the CPU."""
    return load_run(toy_run, device="cpu")
