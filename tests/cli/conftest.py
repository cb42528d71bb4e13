import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from limner.cli.main import main
from limner.cli.root import app
from limner.data.records import Dataset
from tests.cli.command import Limner, Result, write_metadata


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


@pytest.fixture(scope="session")
def store(toy_run: Path, pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the toys with their identities, made by the command."""
    folder = tmp_path_factory.mktemp("stores") / "store"
    notes = write_metadata(pictures, folder.parent)
    command = ["index", str(toy_run), str(folder), str(pictures), "--metadata", str(notes)]
    assert CliRunner().invoke(app, command).exit_code == 0
    return folder
