"""A small trained run, its store and its exports, for benchmarks that need files to start from and no data.

Toys are drawn and learnt for an epoch by `dual-path-flickr8k-strong` with a MobileNetV2 from random weights and a text
path of a quarter of its width: what it finds means nothing, and it takes about as long to load and run as a real one.
In a short run the network is a toy.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.measuring import SHORT, sized

# exporting takes half a minute for each of them
ENGINES = sized(("onnx", "openvino"), ("onnx",))


class Taken(NamedTuple):
    """Seconds of a process, on its processors and on the clock."""

    cpu: float
    wall: float


def make_run(folder: Path, *, toy: bool = SHORT) -> tuple[Path, Path]:
    """Draw pictures and train on them, a `toy` if asked for; the run, and the folder of pictures."""
    from limner.data.readers import open_dataset
    from limner.recipes import get_recipe
    from limner.recipes.change import change
    from limner.training.loop import train
    from tests.toy import draw_toys, toy_recipe

    pictures, run = draw_toys(folder / "pictures"), folder / "run"
    recipe = toy_recipe() if toy else get_recipe("dual-path-flickr8k-strong")
    first = recipe.stages[0]
    once = [f"stages.{first.name}.{one}" for one in ("epochs=1", "batch=8", "views=1", "patience=null")]
    small = [] if toy else ["model.backbone.weights=null", "model.text.width=0.25"]
    recipe = change(recipe.replace(stages=(first,)), [*small, *once])
    data = open_dataset(f"folder:{pictures}")
    # compiled once, as an installed package is, also where the environment forbids to keep what is compiled
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["LIMNER_CACHE"] = str(folder / "cache")
    train(recipe, data.split("train"), data.split("val"), run, cpu=True)
    return run, pictures


def limner(*words: object) -> list[str]:
    """A command of limner in a process of its own."""
    return [sys.executable, "-m", "limner", *map(str, words)]


def quietly(*words: object) -> None:
    """Run a command of limner; what it prints is not shown unless it fails."""
    done = subprocess.run(limner(*words), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"limner {words[0]}: {done.stderr}")


def taken_by(command: list[str]) -> Taken:
    """Run a command in a process of its own, and return its seconds. Raises `SystemExit` if it fails."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        told = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command[1:4])}: {told}")
    return Taken(usage.ru_utime + usage.ru_stime, time.perf_counter() - began)
