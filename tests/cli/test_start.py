"""What a command imports, and Ctrl-C while it does: in processes of their own."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from limner.cli.commands import COMMANDS
from limner.cli.interrupts import held_back

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "lancedb", "pyarrow", "numpy", "transformers", "accelerate", "PIL", "matplotlib", "httpx")

_IMPORTED = """
import json, sys
from limner.__main__ import main
sys.argv = ["limner", *sys.argv[1:]]
try:
    main()
except SystemExit as stop:
    code = stop.code
else:
    code = 0
print(json.dumps([code or 0, sorted(name for name in sys.modules if "." not in name)]), file=sys.stderr)
"""


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def _imported(*arguments: str) -> tuple[int, set[str]]:
    """Exit code of a command, and the packages that its process has imported."""
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTED, *arguments], capture_output=True, text=True, env=_environment()
    )
    code, names = json.loads(done.stderr.splitlines()[-1])
    return code, set(names)


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("--version",), ("recipes", "list"), ("recipes", "list", "--json"), ("search", "-h")],
    ids=" ".join,
)
def test_what_needs_no_model_imports_none(arguments: tuple[str, ...]) -> None:
    code, names = _imported(*arguments)
    assert code == 0
    assert not names & set(HEAVY)


def test_help_imports_no_command() -> None:
    script = (
        "import sys, limner.cli; print(*[name for name in sys.modules if name.startswith('limner.cli.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=_environment(), check=True
    )
    assert not {listed.module for listed in COMMANDS.values()} & set(done.stdout.split())


def test_a_recipe_is_shown_without_lancedb() -> None:
    code, names = _imported("recipes", "show", "dual-path-people")
    assert code == 0
    assert "torch" in names
    assert not names & {"lancedb", "pyarrow", "matplotlib", "httpx"}


@pytest.mark.parametrize("closed", [1, 2])
def test_a_closed_stream_is_no_error(closed: int) -> None:
    """As `limner … >&-` and services without a terminal give it."""
    done = subprocess.run(
        [sys.executable, "-m", "limner", "recipes", "list"],
        capture_output=True,
        env=_environment(),
        preexec_fn=lambda: os.close(closed),
    )
    assert (done.returncode, done.stderr, bool(done.stdout)) == (0, b"", closed == 2)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_stdout_has_no_letters_for_is_escaped(encoding: str) -> None:
    """A name of Chinese letters, and a file's name of other bytes: a report of what was done must not be lost."""
    script = "from limner.cli import console, main; main._prepare_streams(); console.out.print_lines({!a})"
    done = subprocess.run(
        [sys.executable, "-c", script.format("\u5f35 \u00d7 \udcff\na\x1b[31mb")],
        capture_output=True,
        env={**_environment(), "PYTHONIOENCODING": f"{encoding}:strict"},
    )
    letters = "\u5f35 \u00d7".encode(encoding, "backslashreplace")
    assert done.stdout.splitlines() == [letters + rb" \udcff", rb"a\x1b[31mb"], done.stderr


_INTERRUPTED = """
import os, signal, sys
from importlib.abc import MetaPathFinder

wanted = sys.argv[1]

class CtrlC(MetaPathFinder):
    "Presses Ctrl-C when a module is imported."

    def find_spec(self, name, path, target=None):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, CtrlC())
from limner.__main__ import main
sys.argv = ["limner", *sys.argv[2:]]
main()
"""


_PRESS = "            os.kill(os.getpid(), signal.SIGINT)"
_LOST = _INTERRUPTED.replace(
    _PRESS,
    """            Dying()  # as importlib's weak references do: Python drops what is raised there

class Dying:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(100):  # the handler runs between two steps of Python's
            pass
""",
)
_UNDER_CPP = _INTERRUPTED.replace(
    _PRESS,
    """            try:
                os.kill(os.getpid(), signal.SIGINT)
                for _ in range(100):  # the handler runs between two steps of Python's
                    pass
            except BaseException:  # as C++ ends a process when Python code that it called raises
                os.abort()
""",
)
_BEFORE, _KEPT = "stopped before it began", "stopped; what was finished is kept"
_TRAIN, _INDEX = (
    ("train", "dual-path-people", "--data", "folder:x", "--out", "y"),
    ("index", "RUN", "STORE", "x"),
)


@pytest.mark.parametrize(
    ("script", "module", "arguments", "said"),
    [
        (_INTERRUPTED, "typer", ("recipes", "list"), _BEFORE),
        (_INTERRUPTED, "torch.nn", _TRAIN, f"{_KEPT}; the same command with --resume goes on from there"),
        (_INTERRUPTED, "limner.search.index", _INDEX, f"{_KEPT}; the same command goes on from there"),
        (_LOST, "typer", ("recipes", "list"), _BEFORE),
        (_LOST, "limner.cli.recipes", ("recipes", "list"), _KEPT),
        (_UNDER_CPP, "typer", ("recipes", "list"), _BEFORE),
        (_UNDER_CPP, "limner.search.index", _INDEX, f"{_KEPT}; the same command goes on from there"),
    ],
)
def test_ctrl_c_among_imports_waits_for_their_end_and_is_one_line(
    script: str, module: str, arguments: tuple[str, ...], said: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script, module, *arguments], capture_output=True, text=True, env=_environment()
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", f"limner: {said}\n")


def test_ctrl_c_outside_of_imports_does_not_wait() -> None:
    """Nor in a program that is itself being imported when it calls the command line."""
    with held_back(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    script = "import sys; sys.path.insert(0, sys.argv[1]); import calls_it"
    calls = """
import signal
from limner.cli.interrupts import held_back
try:
    with held_back():
        signal.raise_signal(signal.SIGINT)
        for _ in range(100):
            pass
except KeyboardInterrupt:
    print("stopped")
"""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "calls_it.py").write_text(calls)
        done = subprocess.run(
            [sys.executable, "-c", script, folder], capture_output=True, text=True, env=_environment()
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped\n", "")


def test_ctrl_c_in_the_first_second_is_one_line() -> None:
    """From outside, at some moment of the imports, as a terminal sends it."""
    words = ["ablate", "dual-path-table-4", "--data", "folder:x", "--out", "y"]
    command = [sys.executable, "-m", "limner", *words]
    with subprocess.Popen(
        command, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        time.sleep(0.7)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.startswith("limner: stopped")
    assert err.count("\n") == 1
