"""Shell completion: what a shell asks, and what it is told."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# a shell starts `limner`; here it is the module under that name
_SCRIPT = 'import sys; sys.argv[0] = "limner"; from limner.__main__ import main; main()'


def _told(words: str) -> set[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "_LIMNER_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, env=environment)
    assert done.stderr == ""
    return set(done.stdout.split())


def test_commands_and_options_are_completed() -> None:
    assert _told("limner se") == {"search", "serve"}
    commands = {
        "alerts",
        "duplicates",
        "info",
        "list",
        "delete",
        "erase",
        "verify",
        "backup",
        "sync",
        "export",
        "repair",
        "compact",
    }
    assert _told("limner store ") == commands | {"recall"}
    assert {"--queries", "--quiet"} <= _told("limner search --qu")


def test_a_script_can_be_shown() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    shown = subprocess.run(
        [sys.executable, "-c", _SCRIPT, "--show-completion", "bash"],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert "_LIMNER_COMPLETE=complete_bash" in shown.stdout
