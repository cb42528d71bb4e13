"""Training that is cut short, in this process or in one of its own, and what two runs must have in common."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from limner.data.records import Dataset
from limner.training.log import EpochEnded, Event, Listener, StageEnded, Stepped
from limner.training.loop import train
from limner.training.recipe import Recipe

STATE = "last.safetensors"


class KilledError(Exception):
    """Stands for the end of the process."""


def killer(kill_at: int) -> Listener:
    """A listener that ends the run at its `kill_at`-th event, from 1."""
    seen = 0

    def listen(event: Event) -> None:
        nonlocal seen
        if isinstance(event, Stepped | EpochEnded | StageEnded):
            seen += 1
            if seen == kill_at:
                raise KilledError

    return listen


def stopped_and_resumed(toys: Dataset, recipe: Recipe, out: Path, *, kill_at: int, cpu: bool = True) -> None:
    """Train up to the `kill_at`-th event, and go on with it to the end, both in this process."""
    arguments = (recipe, toys.split("train"), toys.split("val"), out)
    with pytest.raises(KilledError):
        train(*arguments, listener=killer(kill_at), cpu=cpu)
    train(*arguments, resume=True, cpu=cpu)


def same_run(one: Path, other: Path) -> None:
    """Expect equal tensors in the state and in both stages' files, and equal logs but for the times."""
    for file in (STATE, "stage-1.safetensors", "stage-2.safetensors"):
        ours, theirs = load_file(one / file), load_file(other / file)
        assert ours.keys() == theirs.keys()
        for name, tensor in ours.items():
            assert torch.equal(tensor, theirs[name]), f"{file}: {name}"
    rows = [
        [
            {
                name: value
                for name, value in json.loads(line).items()
                if name not in {"seconds", "pairs_per_second"}
            }
            for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        ]
        for folder in (one, other)
    ]
    assert rows[0] == rows[1]


_SCRIPT = """
import sys
from pathlib import Path
import torch
from limner.training.log import Stepped
from limner.training.loop import train
from limner.training.recipe import Recipe
from tests.toy import toy_dataset

torch.set_num_threads(1)
recipe = Recipe.model_validate_json(sys.argv[3])
data = toy_dataset(Path(sys.argv[1]))
def listen(event):
    if isinstance(event, Stepped):
        print(event.stage, event.epoch, event.step, flush=True)
train(recipe, data.split("train"), data.split("val"), Path(sys.argv[2]), resume=True, listener=listen, cpu=True)
"""


def run_apart(toys: Dataset, recipe: Recipe, out: Path, *, kill_at: str | None = None) -> None:
    """Train, or go on with it, in a process of its own; `kill_at` is "stage epoch step" of its last step."""
    command = [
        *(sys.executable, "-c", _SCRIPT, str(toys.records[0].image.parent), str(out)),
        recipe.model_dump_json(),
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == kill_at:
            process.send_signal(signal.SIGKILL)
            break
    process.stdout.close()
    assert process.wait() == (0 if kill_at is None else -signal.SIGKILL)


def killed_and_resumed(toys: Dataset, recipe: Recipe, out: Path, *kill_at: str) -> None:
    """Train in processes of which all but the last are killed, each at its "stage epoch step"."""
    for step in kill_at:
        run_apart(toys, recipe, out, kill_at=step)
    run_apart(toys, recipe, out)


def in_two_processes(*arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """Run `python ARGUMENTS` as two processes that train together."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "2",
        *arguments,
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "LIMNER_CACHE": str(cache),
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
