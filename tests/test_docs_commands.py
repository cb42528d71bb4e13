"""The commands of README.md and of the tutorial do what the pages say: each is run, in their order, on toys.

Only the placeholders are ours: `PICTURES` is a folder of toys, and a recipe is replaced by one that trains in
seconds. RUN and STORE are what the page's own commands have made.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import uvicorn

from limner.data.records import Dataset
from limner.recipes import RECIPES
from tests import towers
from tests.cli.command import Limner
from tests.cli.conftest import limner as limner
from tests.toy import draw_toys, toy_recipe

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/start.md")
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
# The model of the README's first command.
HUB = "hf:google/siglip2-base-patch16-224"
# Run by tests/cli/test_demo.py, on fewer people: ten minutes are too long here.
DEMO = "limner demo"
FOR_CPU = "pip install torch --index-url https://download.pytorch.org/whl/cpu"


def commands_of(page: str) -> list[str]:
    """What a reader types: the lines after `$ ` of the page's console blocks, without comments."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```console\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [shlex.join(shlex.split(line[2:], comments=True)) for line in lines if line.startswith("$ ")]


@pytest.fixture
def reader(
    toys: Dataset, toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limner: Limner
) -> Path:
    """A folder as a reader has it: pictures with captions, and what `limner demo` leaves behind."""
    del toys
    draw_toys(tmp_path / "PICTURES")
    (tmp_path / "toy.json").write_text(toy_recipe().model_dump_json(), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert limner("index", toy_run, "demo-output/store", "PICTURES").code == 0
    # `limner serve` prepares everything and then hands over to uvicorn, which would wait for ever.
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets=None: None)
    # It closes all handlers there are, and absl's, which TensorBoard brings, closes the stream that it was made with:
    # pytest's capture, so that every later test fails.
    monkeypatch.setattr("logging.config.dictConfig", lambda config: None)
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_commands_do_what_the_page_says(page: str, reader: Path, limner: Limner) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    commands = commands_of(page)
    assert sum(command.startswith("limner ") for command in commands) >= 8
    for command in commands:
        program, *arguments = shlex.split(command)
        if program == "make":
            assert set(arguments) <= TARGETS, command
        elif command == FOR_CPU:
            # docs/install.md says the same
            assert command in (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
        elif program == "pip":
            named = re.fullmatch(r"install (?:-e )?\.\[(.+)\]", " ".join(arguments))
            assert named, command
            assert set(named[1].split(",")) <= extras.keys(), command
        elif command not in {DEMO, ". .venv/bin/activate", "python3 -m venv .venv"}:
            assert program == "limner", f"{page}: nothing runs {command!r}"
            if arguments[0] == "open":
                _open_with_the_hub(arguments, reader)
            elif HUB in arguments:
                _run_with_the_hub(arguments, reader)
            else:
                _run(command, arguments, reader, limner)


def _with_the_hub(arguments: list[str], folder: Path) -> subprocess.Popen[str]:
    """A process of its own, and offline: its cache of the hub holds a tiny model of the page's name."""
    if not (folder / "hub").exists():
        towers.save_in_cache(folder / "hub", HUB.removeprefix("hf:"))
    data = {"HF_HOME": str(folder / "hub"), "XDG_DATA_HOME": str(folder / "data")}
    command = [sys.executable, "-m", "limner", *arguments]
    environment = {**os.environ, **data, "HF_HUB_OFFLINE": "1"}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, env=environment, stdout=pipe, stderr=pipe, stdin=subprocess.DEVNULL, text=True
    )


def _run_with_the_hub(arguments: list[str], folder: Path) -> None:
    with _with_the_hub(arguments, folder) as process:
        _, told = process.communicate(timeout=300)
        assert process.returncode == 0, told


def _open_with_the_hub(arguments: list[str], folder: Path) -> None:
    """It serves until it is stopped; a tiny model that is in the cache is not asked for."""
    with _with_the_hub([*arguments, "--no-browser"], folder) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.kill()
        _, told = process.communicate(timeout=300)
    assert "pictures at http://127.0.0.1:" in first, told


def _run(command: str, arguments: list[str], folder: Path, limner: Limner) -> None:
    if arguments[0] == "train":
        assert arguments[1] in RECIPES, command
        arguments[1] = str(folder / "toy.json")
    result = limner(*arguments)
    if arguments[0] == "calibrate" and result.code:
        # A toy model finds next to nothing after its few seconds, and `calibrate` says so.
        assert "train the model further" in result.err, (command, result)
        return
    assert result.code == 0, (command, result)
    if "--json" in arguments:
        json.loads(result.out)
    if "--sheet" in arguments:
        assert (folder / arguments[arguments.index("--sheet") + 1]).is_file(), command
