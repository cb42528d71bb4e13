"""Packages as they lie when they are installed, without an installer: code, and a `.dist-info` folder beside it."""

import importlib
import sys
import tomllib
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parent / "example_package"


def write_dist_info(folder: Path, pyproject: Path) -> Path:
    """Write the metadata that an installer would of a `pyproject.toml`; returns `folder`, which belongs on the path."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def install_example(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Make the example package importable and its entry points known; none of it is imported yet."""
    for module in [name for name in sys.modules if name.partition(".")[0] == "limner_example"]:
        patch.delitem(sys.modules, module)
    write_dist_info(folder, EXAMPLE / "pyproject.toml")
    patch.syspath_prepend(str(EXAMPLE))
    patch.syspath_prepend(str(folder))


def install(folder: Path, patch: pytest.MonkeyPatch, name: str, entry_points: str, code: str = "") -> None:
    """Make up a package of one module, `name`, with these entry points."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(code, encoding="utf-8")
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(entry_points, encoding="utf-8")
    patch.syspath_prepend(str(folder))
    patch.delitem(sys.modules, name, raising=False)
    importlib.invalidate_caches()
