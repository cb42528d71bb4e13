import sys
from pathlib import Path

import pytest

from limner.cli import main
from limner.data.records import Dataset
from tests.cli.command import Limner, Result


@pytest.fixture
def limner(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Limner:
    """Runs a command in this process, through the error boundary."""

    def run(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["limner", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        said = capsys.readouterr()
        return Result(code, said.out, said.err)

    return run


@pytest.fixture(scope="session")
def pictures(toys: Dataset) -> Path:
    """The folder of the toys."""
    return toys.records[0].image.parent
