"""A suite that skips says so, and ends in a failure where nothing may be skipped."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.skips import not_allowed, summary

ROOT = Path(__file__).parents[1]
SUITE = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_of_a_package(number):
    pytest.importorskip("no_such_package")

@pytest.mark.skip(reason="no firefox is installed")
def test_of_the_machine():
    pass
"""


def run(folder: Path, *options: str, required: bool) -> subprocess.CompletedProcess[str]:
    (folder / "test_suite.py").write_text(SUITE)
    (folder / "test_module.py").write_text("import pytest\npytest.importorskip('no_such_module')\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LIMNER_SKIP_NOTHING": "1" if required else ""}
    # a worker of the outer run would take itself for one of this
    environment = {name: value for name, value in environment.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.skips", f"--rootdir={folder}"]
    return subprocess.run(
        [*command, *options, folder], capture_output=True, text=True, check=False, cwd=folder, env=environment
    )


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_a_suite_says_what_it_skipped(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = run(tmp_path, *options, required=False)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("skipped: "))
    assert "3 × could not import 'no_such_package'" in line
    assert "1 × could not import 'no_such_module'" in line
    assert "1 × no firefox is installed" in line
    assert "CONTRIBUTING.md" in line
    assert done.returncode in (0, 5)
    required = run(tmp_path, *options, required=True)
    assert required.returncode == 1
    (line,) = (line for line in required.stdout.splitlines() if line.startswith("may not be skipped here: "))
    assert "no_such_package" in line
    assert "no_such_module" in line
    assert "firefox" not in line


def test_reasons() -> None:
    assert summary(["a\nb", "a\nb", "c"]).startswith("skipped: 2 × a b; 1 × c. ")
    assert not_allowed(
        ["there is no CUDA device", "no firefox is installed", "no chromium is installed"]
    ) == ["no chromium is installed"]
