"""The built wheel in a bare environment: does it hold all that the program reads, and does it work without a checkout?

    python -m benchmarks.wheel_test [DIST] [--extras parquet,server]        (or `make wheel-test`)

The files of the wheel are compared with those of `limner/`. Then a new environment outside of the checkout gets the
wheel from the package index's dependencies alone, and in an empty folder the commands and the public names run there:
people are drawn, learnt, evaluated, indexed, searched and exported.
Only the standard library is imported here: this runs before anything is installed.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOT_SHIPPED = {"__pycache__", ".mypy_cache", ".ruff_cache"}

SMALL = (
    *("--set", "stages.0.epochs=1", "--set", "stages.1.epochs=1", "--set", "stages.0.batch=8"),
    *("--set", "stages.1.batch=8", "--set", "images.resize=[48,24]", "--set", "images.crop=[48,24]"),
)
"""Settings with which a training takes seconds and learns nothing."""

NAMES = """
import importlib, importlib.metadata, pathlib, sys
import limner
here = pathlib.Path(limner.__file__).resolve()
assert here.is_relative_to(pathlib.Path(sys.prefix).resolve()), here
assert (here.parent / "py.typed").exists()
assert (here.parent / "server" / "page" / "index.html").exists()
for name in limner.__all__:
    assert getattr(limner, name) is not None, name
for module in ("limner.client", "limner.losses", "limner.plugins", "limner.settings", "limner.types", "limner.wire"):
    importlib.import_module(module)
assert limner.__version__ == importlib.metadata.version("limner")
with limner.open_store("STORE") as store:
    assert len(store) > 0
    assert store.search("a woman in a blue shirt", k=2).hits[0].rank == 1
print(len(limner.__all__), "public names")
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("dist", nargs="?", default="dist", type=Path)
    arguments.add_argument("--extras", default="parquet,server")
    given = arguments.parse_args()
    wheel = newest_wheel(given.dist)
    files = expect_all_files(wheel)
    print(f"{wheel.name}: {files} files, all of limner/, {wheel.stat().st_size / 1e6:.2f} MB")
    # not in the checkout, whose folder `limner` would be found first
    with tempfile.TemporaryDirectory(prefix="wheel-") as name:
        folder = Path(name).resolve()
        python = make_environment(folder / "env", wheel, given.extras)
        try_it(python, folder / "empty")
    print("the wheel works")


def newest_wheel(dist: Path) -> Path:
    found = sorted(dist.glob("limner-*.whl"), key=lambda path: path.stat().st_mtime)
    if not found:
        sys.exit(f"{dist}: holds no limner-*.whl; build one with `make wheel`")
    return found[-1].resolve()


def shipped_files() -> set[str]:
    """All files of the package in the checkout."""
    every = (path for path in (ROOT / "limner").rglob("*") if path.is_file())
    return {str(path.relative_to(ROOT)) for path in every if not NOT_SHIPPED & set(path.parts)}


def expect_all_files(wheel: Path) -> int:
    """Compare the wheel's list with the tree, and return the number of files."""
    with zipfile.ZipFile(wheel) as opened:
        held = {name for name in opened.namelist() if ".dist-info/" not in name}
        licences = {Path(name).name for name in opened.namelist() if ".dist-info/licenses/" in name}
    expected = shipped_files()
    if held != expected:
        sys.exit(
            f"{wheel.name}: lacks {sorted(expected - held)[:9]}, has besides {sorted(held - expected)[:9]}"
        )
    if licences != {"LICENSE", "NOTICE"}:
        sys.exit(f"{wheel.name}: lacks LICENSE or NOTICE")
    return len(held)


def make_environment(folder: Path, wheel: Path, extras: str) -> Path:
    began = time.monotonic()
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[{extras}]"],
        folder,
    )
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    print(f"installed with [{extras}] in {time.monotonic() - began:.0f} s, {size / 1e6:.0f} MB")
    return python


def try_it(python: Path, folder: Path) -> None:
    folder.mkdir()
    limner = python.with_name("limner")
    data = "cuhk-pedes:PEOPLE"
    run([limner, "--version"], folder)
    run([limner, "--help"], folder)
    people = ["--identities", "12", "--val", "3", "--test", "3", "--workers", "1"]
    run([limner, "data", "people", "PEOPLE", *people], folder)
    run([limner, "train", "dual-path-people", "--data", data, "--out", "RUN", *SMALL, "--quiet"], folder)
    run([limner, "evaluate", "RUN", "--data", data, "--split", "val"], folder)
    run([limner, "index", "RUN", "STORE", "--data", data, "--split", "test"], folder)
    run([limner, "search", "STORE", "a woman in a blue shirt", "-k", "3"], folder)
    run([limner, "store", "export", "STORE", "STORE.parquet", "--to", "parquet"], folder)
    run([limner, "serve", "--help"], folder)
    run([limner, "cite", "dual-path-people"], folder)
    run([python, "-I", "-c", NAMES], folder)


def run(command: list[str | Path], folder: Path) -> None:
    """Run a command that must succeed, without anything of this checkout in its environment."""
    began = time.monotonic()
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
    done = subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    print(
        f"{time.monotonic() - began:6.1f} s  {' '.join([Path(command[0]).name, *map(str, command[1:6])])[:80]}"
    )


if __name__ == "__main__":
    main()
