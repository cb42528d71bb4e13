"""A disk that is full: each command that writes ends in one line, loses nothing, and goes on once there is room.

The disk is a small tmpfs in a mount namespace of its own (`unshare`), filled up to a few kilobytes. Where the system
lets nobody mount one, no file may grow beyond a size (RLIMIT_FSIZE), which is what a quota is like; so it is in the
short form, which starts no further process for the namespace.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.torture.commands import ROOT, Result, called, ended, started
from benchmarks.torture.contents import expect_line, run_of
from benchmarks.torture.outcome import Outcome
from benchmarks.torture.workshop import Workshop

_DISK = 64 * 2**20
"""Bytes of the small disk: a store and a run of the toys fit ten times."""

_STEPS = 8
"""Sizes of free space of the long form, for each command, from nothing to what the command needs."""

BEFORE = "before the command has had room"

Words = tuple[object, ...]


@dataclass(frozen=True)
class Case:
    """A command that writes below `disk`: its words, and what reads the state that it leaves there."""

    name: str
    command: Callable[[Path], Words]
    state: Callable[[Path, str], Any]


def full_disk(shop: Workshop, *, short: bool = False, seed: int = 0) -> Outcome:
    """Fill the disk under each command."""
    outcome = Outcome()
    if short:
        _limited(_cases(shop)[0], shop.fresh("disk"), [2**17], outcome)
    elif _mounts():
        return _inside_namespace(shop)
    else:
        for case in _cases(shop):
            _limited(case, shop.fresh("disk"), [2**size for size in range(8, 8 + 2 * _STEPS, 2)], outcome)
    return outcome


def _cases(shop: Workshop) -> list[Case]:
    recipe = shop.recipe(shop.fresh("of-full-disk"))

    def trained(disk: Path, when: str) -> Any:
        return run_of(disk / "run") if (disk / "run").exists() else {}

    def saved(disk: Path, when: str) -> Any:
        # a file that is not whole is no harm after a refusal: the same command writes it again
        if not (disk / "saved.npz").exists() or when.endswith(BEFORE):
            return {}
        with np.load(disk / "saved.npz") as file:
            return {name: file[name].tolist() for name in file.files}

    return [
        Case(
            "train",
            lambda disk: (
                *("train", recipe, "--data", shop.data, "--out", disk / "run"),
                *("--cpu", "--resume", "--quiet"),
            ),
            trained,
        ),
        Case(
            "evaluate --save",
            lambda disk: (
                *("evaluate", shop.run, "--data", shop.data, "--rerank", 0, "--cpu"),
                *("--save", disk / "saved.npz"),
            ),
            saved,
        ),
    ]


def _limited(case: Case, disk: Path, sizes: Sequence[int], outcome: Outcome) -> None:
    """Run a command of which no file may grow beyond a size."""
    end = _unrefused(case, disk, outcome)
    for size in sizes:
        _emptied(disk)
        # Python would cut short what it compiles, too, and read it in every command after this one
        process = started(*case.command(disk), environment={"PYTHONDONTWRITEBYTECODE": "1"})
        # by the harness and not in the child, which is still importing and has written nothing
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, size))
        _judge(case, disk, ended(process), end, f"no file above {size:,} bytes", outcome)


def _unrefused(case: Case, disk: Path, outcome: Outcome) -> Any:
    """The state that a command leaves that has room."""
    _emptied(disk)
    whole = called(*case.command(disk))
    outcome.expect(whole.code == 0, f"{case.name} with room: {whole}")
    return case.state(disk, f"{case.name} with room")


def _inside_namespace(shop: Workshop) -> Outcome:
    """Do the rest in a process that may mount a disk which nobody else sees."""
    told = shop.folder / "full-disk.json"
    inner = [
        sys.executable,
        "-m",
        "benchmarks.torture.full_disk",
        shop.folder,
        shop.pictures,
        shop.run,
        shop.other,
        told,
    ]
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", *map(str, inner)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    if done.returncode:
        outcome = Outcome()
        outcome.find(f"the part ended with {done.returncode}: {done.stderr[-250:]}")
        return outcome
    return Outcome.from_json(json.loads(told.read_text(encoding="utf-8")))


def _filled(shop: Workshop) -> Outcome:
    """Run each command on a disk with less and less room."""
    outcome, disk = Outcome(), shop.fresh("disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", str(disk)], check=True)
    for case in _cases(shop):
        _emptied(disk)
        filled = _used(disk)
        end = _unrefused(case, disk, outcome)
        # more than is left at the end may be needed meanwhile
        needed = 2 * max(_used(disk) - filled, 16 * 2**10)
        for step in range(_STEPS):
            _emptied(disk)
            room = needed * step // _STEPS
            with _without_room(disk, room):
                result = ended(started(*case.command(disk)))
            _judge(case, disk, result, end, f"{room:,} bytes free", outcome)
    return outcome


def _judge(case: Case, disk: Path, result: Result, end: Any, how: str, outcome: Outcome) -> None:
    """Hold a command that had too little room against what it promises, and let it go on with room."""
    when = f"{case.name} with {how}"
    if result.code == 0:
        outcome.count(f"{case.name}: room enough")
    else:
        outcome.count(f"{case.name}: refused")
        expect_line(result, outcome, when)
    # it can be read, whatever is there
    case.state(disk, f"{when}, {BEFORE}")
    again = called(*case.command(disk))
    outcome.expect(again.code == 0, f"{when}, then with room: {again}")
    now = case.state(disk, f"{when}, then with room")
    wrong = [name for name in {*now, *end} if name != "files" and now.get(name) != end.get(name)]
    outcome.expect(not wrong, f"{when}, then with room: {sorted(wrong)[:1]} differs")


@contextmanager
def _without_room(disk: Path, room: int) -> Iterator[None]:
    """Fill the disk up to so many bytes."""
    ballast = disk / "ballast"
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(free - room, 1))
    yield
    ballast.unlink()


def _emptied(disk: Path) -> None:
    for path in disk.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _used(disk: Path) -> int:
    state = os.statvfs(disk)
    return (state.f_blocks - state.f_bfree) * state.f_frsize


def _mounts() -> bool:
    """True if this user may mount a disk in a namespace of its own."""
    try:
        return (
            subprocess.run(
                ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
                check=False,
                capture_output=True,
            ).returncode
            == 0
        )
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    folder, pictures, run, other, told = map(Path, sys.argv[1:])
    told.write_text(json.dumps(_filled(Workshop(folder, pictures, run, other)).to_json()), encoding="utf-8")
