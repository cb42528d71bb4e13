"""The built wheel holds all that the package reads at run time, and nothing else."""

import shutil
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from benchmarks.wheel_test import ROOT, expect_all_files, newest_wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built without the network from a copy, so that nothing is written here."""
    pytest.importorskip("setuptools", minversion="77")
    source, dist = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "limner", source / "limner", ignore=shutil.ignore_patterns("__pycache__"))
    code = f"import setuptools.build_meta as backend; backend.build_wheel({str(dist)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True)
    return newest_wheel(dist)


def test_the_wheel_holds_every_file_of_the_package(wheel: Path, tmp_path: Path) -> None:
    assert expect_all_files(wheel) > 350
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(tmp_path / wheel.name, "w") as less:
        for name in whole.namelist():
            if name != "limner/server/page/app.js":
                less.writestr(name, whole.read(name))
    with pytest.raises(SystemExit, match=r"lacks \['limner/server/page/app\.js'\]"):
        expect_all_files(tmp_path / wheel.name)


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    with zipfile.ZipFile(wheel) as opened:
        folder = f"limner-{project['version']}.dist-info"
        told = message_from_bytes(opened.read(f"{folder}/METADATA"))
        commands = opened.read(f"{folder}/entry_points.txt").decode()
    assert told["Requires-Python"] == project["requires-python"]
    assert told["License-Expression"] == project["license"]
    assert set(told.get_all("Provides-Extra") or ()) == set(project["optional-dependencies"])
    assert "limner = limner.__main__:main" in commands


def test_no_newer_version_is_refused() -> None:
    """An upper bound would put an older version in place of a user's, and break what goes with it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(one for extra in project["optional-dependencies"].values() for one in extra),
    ]
    assert not [one for one in wanted if any(bound in one for bound in ("<", "==", "~="))]
    # those that `make` installs are chosen beside the package
    constraints = (ROOT / ".ci/constraints.txt").read_text(encoding="utf-8")
    assert "\ntorch<" in constraints
    assert "--constraint .ci/constraints.txt" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_every_extra_is_on_the_page() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    missing = [name for name in project["optional-dependencies"] if f"| `{name}` |" not in page]
    assert missing == ["dev"]
