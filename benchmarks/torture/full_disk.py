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
from benchmarks.torture.contents import contents_of, expect_line, run_of
from benchmarks.torture.kills import at_once, changes_nothing, grows, indexed
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
    """A command that writes below `disk`.

    - `prepare`: makes what is there before; `command`: the words.
    - `state`: reads what the command makes; `differs`: says where two states differ.
    - `allowed`: says what is wrong with the state after a refusal, by those before, then and at the end.
    """

    name: str
    prepare: Callable[[Path], object]
    command: Callable[[Path], Words]
    state: Callable[[Path, Outcome, str], Any]
    differs: Callable[[Any, Any], str]
    allowed: Callable[[Any, Any, Any], str]


def full_disk(shop: Workshop, *, short: bool = False, seed: int = 0) -> Outcome:
    """Fill the disk under each command."""
    outcome = Outcome()
    if short:
        cases = {case.name: case for case in _cases(shop)}
        for name, most in (("index", 700), ("train", 2**17)):
            _limited(cases[name], shop.fresh("disk"), [most], outcome)
    elif _mounts():
        return _inside_namespace(shop)
    else:
        for case in _cases(shop):
            _limited(case, shop.fresh("disk"), [2**size for size in range(8, 8 + 2 * _STEPS, 2)], outcome)
    return outcome


def _cases(shop: Workshop) -> list[Case]:
    own = shop.fresh("of-full-disk")
    store, paths = indexed(shop, own)
    shutil.copyfile(shop.pictures / "captions.jsonl", paths[0].parent / "captions.jsonl")
    recipe, data = shop.recipe(own), f"folder:{paths[0].parent}"

    def with_store(disk: Path) -> object:
        return shutil.copytree(store, disk / "store")

    def stored(disk: Path, outcome: Outcome, when: str) -> Any:
        return contents_of(disk / "store", outcome, when)

    def new(disk: Path, outcome: Outcome, when: str) -> Any:
        return contents_of(disk / "new", outcome, when)

    def trained(disk: Path, outcome: Outcome, when: str) -> Any:
        return run_of(disk / "run") if (disk / "run").exists() else {}

    def saved(disk: Path, outcome: Outcome, when: str) -> Any:
        # a file that is not whole is no harm after a refusal: the same command writes it again
        if not (disk / "saved.npz").exists() or when.endswith(BEFORE):
            return {}
        with np.load(disk / "saved.npz") as file:
            return {name: file[name].tolist() for name in file.files}

    def any_state(before: Any, now: Any, end: Any) -> str:
        return ""

    def unequal(one: Any, other: Any) -> str:
        names = [name for name in {*one, *other} if name != "files" and one.get(name) != other.get(name)]
        return f"{min(names)} differs" if names else ""

    def differs(one: Any, other: Any) -> str:
        return str(one.differs(other))

    index: Callable[[Path], Words] = lambda disk: (  # noqa: E731
        *("index", shop.run, disk / "new", paths[0].parent, "--batch", 4, "--cpu"),
    )
    return [
        Case("index", lambda disk: None, index, new, differs, grows),
        Case(
            "index-sentences",
            with_store,
            lambda disk: ("index-sentences", shop.run, disk / "store", data, "--cpu"),
            stored,
            differs,
            grows,
        ),
        Case(
            "delete",
            with_store,
            lambda disk: ("store", "delete", disk / "store", *paths[::3]),
            stored,
            differs,
            at_once,
        ),
        Case(
            "compact",
            with_store,
            lambda disk: ("store", "compact", disk / "store"),
            stored,
            differs,
            changes_nothing,
        ),
        Case(
            "reindex",
            with_store,
            lambda disk: ("reindex", disk / "store", shop.other, disk / "new", "--batch", 4, "--cpu"),
            new,
            differs,
            grows,
        ),
        Case(
            "train",
            lambda disk: None,
            lambda disk: (
                *("train", recipe, "--data", shop.data, "--out", disk / "run"),
                *("--cpu", "--resume", "--quiet"),
            ),
            trained,
            unequal,
            any_state,
        ),
        Case(
            "evaluate --save",
            lambda disk: None,
            lambda disk: (
                *("evaluate", shop.run, "--data", shop.data, "--rerank", 0, "--cpu"),
                *("--save", disk / "saved.npz"),
            ),
            saved,
            unequal,
            any_state,
        ),
    ]


def _limited(case: Case, disk: Path, sizes: Sequence[int], outcome: Outcome) -> None:
    """Run a command of which no file may grow beyond a size."""
    before, end = _unrefused(case, disk, outcome)
    for size in sizes:
        _emptied(disk)
        case.prepare(disk)
        # Python would cut short what it compiles, too, and read it in every command after this one
        process = started(*case.command(disk), environment={"PYTHONDONTWRITEBYTECODE": "1"})
        # by the harness and not in the child, which is still importing and has written nothing
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, size))
        _judge(case, disk, ended(process), (before, end), f"no file above {size:,} bytes", outcome)


def _unrefused(case: Case, disk: Path, outcome: Outcome) -> tuple[Any, Any]:
    """The states before and after a command that has room."""
    _emptied(disk)
    case.prepare(disk)
    before = case.state(disk, outcome, f"{case.name} {BEFORE}")
    whole = called(*case.command(disk))
    outcome.expect(whole.code == 0, f"{case.name} with room: {whole}")
    return before, case.state(disk, outcome, f"{case.name} with room")


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
        case.prepare(disk)
        filled = _used(disk)
        states = _unrefused(case, disk, outcome)
        # more than is left at the end may be needed meanwhile
        needed = 2 * max(_used(disk) - filled, 16 * 2**10)
        for step in range(_STEPS):
            _emptied(disk)
            case.prepare(disk)
            room = needed * step // _STEPS
            with _without_room(disk, room):
                result = ended(started(*case.command(disk)))
            _judge(case, disk, result, states, f"{room:,} bytes free", outcome)
    return outcome


def _judge(
    case: Case, disk: Path, result: Result, states: tuple[Any, Any], how: str, outcome: Outcome
) -> None:
    """Hold a command that had too little room against what it promises, and let it go on with room."""
    when, (before, end) = f"{case.name} with {how}", states
    if result.code == 0:
        outcome.count(f"{case.name}: room enough")
    else:
        outcome.count(f"{case.name}: refused")
        expect_line(result, outcome, when)
    if wrong := case.allowed(before, case.state(disk, outcome, f"{when}, {BEFORE}"), end):
        outcome.find(f"{when}: {wrong}")
    again = called(*case.command(disk))
    done = again.code == 0 or (again.refused and "holds no such" in again.err)
    outcome.expect(done, f"{when}, then with room: {again}")
    if wrong := case.differs(case.state(disk, outcome, f"{when}, then with room"), end):
        outcome.find(f"{when}, then with room: {wrong}")


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
