"""Training that is cut short, in this process or in one of its own, and what two runs must have in common."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from limner.data.records import Dataset
from limner.inference.checkpoint import read_description
from limner.inference.source import RUN_FILE
from limner.training.log import LOG_FILE, EpochEnded, Event, Listener, StageEnded, Stepped
from limner.training.loop import train
from limner.training.recipe import Recipe
from tests.forked import run_python, started
from tests.toy import toy_dataset

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


_LATER = {"calibration.json", "evaluations.jsonl", "inversion.safetensors"}
"""Files of a finished run, which other tests may have made in one that they share."""


def same_run(one: Path, other: Path) -> None:
    """Expect equal bytes of all files but the state and the log, which are equal but for the times in them."""
    same_numbers(one, other)
    states = [read_description(folder / STATE)["state"] for folder in (one, other)]
    for state in states:
        # seconds, and the length of a log with seconds in it
        del state["progress"]["seconds"], state["progress"]["log_bytes"]
    # TensorBoard has the log once more, in a folder
    files = [{file.name for file in folder.iterdir() if file.is_file()} - _LATER for folder in (one, other)]
    assert files[0] == files[1]
    assert {STATE, LOG_FILE, RUN_FILE} < files[0]
    made_by = [
        json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))["versions"] for folder in (one, other)
    ]
    # a commit that somebody makes while tests run is in one of both
    if made_by[0] == made_by[1]:
        # as texts: the order of keys, too
        assert json.dumps(states[0]) == json.dumps(states[1])
        for file in files[0] - {STATE, LOG_FILE}:
            assert (one / file).read_bytes() == (other / file).read_bytes(), file


def same_numbers(one: Path, other: Path) -> None:
    """Expect equal tensors in the state and in all stages' files, and equal logs but for the times."""
    files = [{file.name for file in folder.glob("*.safetensors")} for folder in (one, other)]
    assert files[0] == files[1]
    assert STATE in files[0]
    for file in files[0]:
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
            for line in (folder / LOG_FILE).read_text(encoding="utf-8").splitlines()
        ]
        for folder in (one, other)
    ]
    assert rows[0] == rows[1]


def run_apart(toys: Dataset, recipe: Recipe, out: Path, *, kill_at: str | None = None) -> None:
    """Train, or go on with it, in a process of its own; `kill_at` is "stage epoch step" of its last step."""
    steps, telling = multiprocessing.Pipe(duplex=False)
    pictures = toys.records[0].image.parent
    process = started(_trained_apart, pictures, recipe.model_dump_json(), out, telling)
    telling.close()
    with steps, suppress(EOFError):
        while steps.recv() != kill_at:
            pass
        process.kill()
    process.join()
    assert process.exitcode == (0 if kill_at is None else -signal.SIGKILL)


def _trained_apart(pictures: Path, recipe: str, out: Path, telling: Connection) -> None:
    def listen(event: Event) -> None:
        if isinstance(event, Stepped):
            telling.send(f"{event.stage} {event.epoch} {event.step}")

    data = toy_dataset(pictures)
    arguments = (Recipe.model_validate_json(recipe), data.split("train"), data.split("val"), out)
    train(*arguments, resume=True, listener=listen, cpu=True)


def killed_and_resumed(toys: Dataset, recipe: Recipe, out: Path, *kill_at: str) -> None:
    """Train in processes of which all but the last are killed, each at its "stage epoch step"."""
    for step in kill_at:
        run_apart(toys, recipe, out, kill_at=step)
    run_apart(toys, recipe, out)


def in_two_processes(*arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """Run `python ARGUMENTS` as two processes that train together; what they write is in `stderr`."""
    return in_processes(2, *arguments, cache=cache)


def in_processes(count: int, *arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """The same as so many processes, with the variables that `torchrun` sets."""
    # where both find each other; torchrun keeps it for its processes, too
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    shared = {
        "LIMNER_CACHE": str(cache),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    written = [cache.with_name(f"written-{rank}.txt") for rank in range(count)]
    processes = [
        started(
            run_python, arguments, file, environment={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        )
        for rank, file in enumerate(written)
    ]
    end = time.monotonic() + 300
    codes = [process.exitcode for process in processes]
    # where one has failed, the other would wait for it
    while None in codes and not any(codes) and time.monotonic() < end:
        wait([process.sentinel for process in processes if process.exitcode is None], timeout=1)
        codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
        process.join()
    texts = [file.read_text(encoding="utf-8") for file in written]
    return subprocess.CompletedProcess(arguments, int(any(codes) or None in codes), stderr="".join(texts))


def in_torchrun(*arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """Run `torchrun ARGUMENTS` with two processes."""
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
    command = [sys.executable, *torchrun, *arguments]
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "LIMNER_CACHE": str(cache),
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


_SCRIPT = """
import os
import signal
import sys
from pathlib import Path

from limner.training.log import Stepped
from limner.training.loop import train
from limner.training.recipe import Recipe
from tests.toy import toy_dataset

_, pictures, out, recipe, kill_at = sys.argv
# WATCHED


def listen(event):
    if isinstance(event, Stepped) and f"{event.stage} {event.epoch} {event.step}" == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)


data = toy_dataset(Path(pictures))
train(
    Recipe.model_validate_json(recipe), data.split("train"), data.split("val"), Path(out),
    resume=True, listener=listen, cpu=True,
)
"""


_SAVED = """
import torch


def saved(value):
    torch.save(value, f"{out}-{os.environ['RANK']}.pt")


"""


def train_together(
    processes: int, toys: Dataset, recipe: Recipe, out: Path, *, kill_at: str = "", watched: str = ""
) -> subprocess.CompletedProcess[str]:
    """Train, or go on with it, in so many processes, which are all killed behind a "stage epoch step".

    `watched`: a program that runs before, and may take `saved(VALUE)` to leave what `left_by` reads.
    """
    script = out.with_name("sharded.py")
    script.write_text(_SCRIPT.replace("# WATCHED\n", _SAVED + watched if watched else ""), encoding="utf-8")
    return in_processes(
        processes,
        *(str(script), str(toys.records[0].image.parent), str(out), recipe.model_dump_json(), kill_at),
        cache=out.with_name("cache"),
    )


def trained_together(
    processes: int, toys: Dataset, recipe: Recipe, out: Path, *, kill_at: str = "", watched: str = ""
) -> None:
    """The same, and expect them to come to the end, or to be killed."""
    done = train_together(processes, toys, recipe, out, kill_at=kill_at, watched=watched)
    assert bool(done.returncode) == bool(kill_at), done.stderr


def left_by(out: Path) -> tuple[Any, Any]:
    """What each of two processes has saved last."""
    one, other = (torch.load(f"{out}-{rank}.pt", weights_only=True) for rank in (0, 1))
    return one, other
