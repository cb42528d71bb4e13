"""A clock that goes back: between two commands, and under a training and a server that run.

With libfaketime (Debian's `libfaketime`, or the library that LIBFAKETIME names) every library of a process sees the
other time; without it only Python's `time.time` does. Times of files stay those of the system.
"""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.torture.commands import called, ended, started
from benchmarks.torture.contents import contents_of, expect_gone, run_of
from benchmarks.torture.killing import listing
from benchmarks.torture.outcome import Outcome
from benchmarks.torture.serving import expect_audit, picture, serving
from benchmarks.torture.workshop import SENTENCES, Workshop, facts_of
from limner.client import Client
from limner.errors import LimnerError

_DAY = 86_400
_AHEAD, _SHORT_AHEAD = (3600, 30 * _DAY, 10 * 365 * _DAY, -30 * _DAY), (30 * _DAY,)
"""Seconds by which the clock was wrong before it was set right."""
_REQUESTS = 200

_PATCHED = """
import time
from pathlib import Path
def shifted(clock, unit, file=Path({file!r})):
    return lambda: clock() + unit * int(file.read_text())
time.time, time.time_ns = shifted(time.time, 1), shifted(time.time_ns, 10**9)
from limner.__main__ import main
main()
"""


class Clock:
    """A clock of processes that are started with it; `set` changes it also while they run."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self._library = _libfaketime()
        self.set(0)

    @property
    def kind(self) -> str:
        return "time.time" if self._library is None else "libfaketime"

    def set(self, seconds: int) -> None:
        """Set it so many seconds ahead of the system's, or behind it."""
        part = self._file.with_suffix(".part")
        # in one step: the processes read it all the while
        part.write_text(f"{seconds:+d}", encoding="ascii")
        part.replace(self._file)

    @property
    def start(self) -> dict[str, Any]:
        """Arguments for `commands.started`."""
        if self._library is None:
            return {"program": ("-c", _PATCHED.format(file=str(self._file)))}
        return {
            "environment": {
                "LD_PRELOAD": str(self._library),
                "FAKETIME_TIMESTAMP_FILE": str(self._file),
                "FAKETIME_NO_CACHE": "1",
                # a monotonic clock never goes back, and what a file system writes is its own time
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "DONT_FAKE_MONOTONIC": "1",
                "NO_FAKE_STAT": "1",
            }
        }


def _libfaketime() -> Path | None:
    if given := os.environ.get("LIBFAKETIME"):
        return Path(given)
    return next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)


def clock(shop: Workshop, *, short: bool = False, seed: int = 0) -> Outcome:
    """Set the clock back after, and under, everything that might look at it."""
    outcome = Outcome()
    for ahead in _SHORT_AHEAD if short else _AHEAD:
        _store(shop, ahead, outcome)
    if not short:
        _training(shop, outcome)
        _server(shop, outcome, random.Random(seed))
    return outcome


def _store(shop: Workshop, ahead: int, outcome: Outcome) -> None:
    """Index while the clock is wrong, go on when it is right: nothing is lost, and what is compacted away is gone."""
    folder = shop.fresh("clock")
    wrong, paths = Clock(folder), shop.copy_of_toys(folder / "pictures")
    outcome.figures["clock"] = wrong.kind
    wrong.set(ahead)
    when = f"clock {ahead:+,d} s, then right"

    def steps(store: Path, first: Callable[..., Any]) -> None:
        notes = facts_of(paths, folder / "facts.jsonl", shelf=1)
        made = first(*("index", shop.run, store, *paths[:24], "--metadata", notes, "--batch", 4, "--cpu"))
        outcome.expect(made.code == 0, f"{when}: {made}")
        later = facts_of(paths[:12], folder / "later.jsonl", shelf=2)
        for command in (
            ("index", shop.run, store, *paths, "--metadata", later, "--batch", 4, "--cpu"),
            ("store", "delete", store, *paths[::2]),
            ("store", "compact", store),
        ):
            made = called(*command)
            outcome.expect(made.code == 0, f"{when}: {made}")

    steps(folder / "store", lambda *words: ended(started(*words, **wrong.start)))
    steps(folder / "other", called)
    now = contents_of(folder / "store", outcome, when)
    if differs := now.differs(contents_of(folder / "other", outcome, "clock right")):
        outcome.find(f"{when}: {differs}")
    expect_gone(folder / "store", tuple(map(str, paths[::2])), outcome, when)
    outcome.count("stores")


def _training(shop: Workshop, outcome: Outcome) -> None:
    """Set the clock back an hour under a training: it ends as any other, and no time of its log is below 0."""
    folder = shop.fresh("clock-training")
    turned = Clock(folder)
    command = ("train", shop.recipe(folder), "--data", shop.data, "--cpu", "--out")
    process = started(*command, folder / "run", **turned.start)
    first = listing(folder / "run")
    while process.poll() is None and listing(folder / "run") == first:
        pass
    turned.set(-3600)
    result = ended(process)
    outcome.expect(result.code == 0, f"clock back under a training: {result}")
    called(*command, folder / "other")
    now, end = run_of(folder / "run"), run_of(folder / "other")
    for name in sorted({*now, *end} - {"files"}):
        outcome.expect(now.get(name) == end.get(name), f"clock back under a training: {name} differs")
    lines = (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    seconds = [json.loads(line)["seconds"] for line in lines]
    outcome.expect(min(seconds) >= 0, f"clock back under a training: an epoch took {min(seconds)} s")
    outcome.count("trainings")


def _server(shop: Workshop, outcome: Outcome, rng: random.Random) -> None:
    """Set the clock back and forth under a server: no request is refused, and none took less than no time."""
    folder = shop.fresh("clock-server")
    turned, store, audit = Clock(folder), folder / "store", folder / "audit.jsonl"
    pictures = shop.copy_of_toys(folder / "pictures")
    assert called("index", shop.run, store, *pictures, "--cpu").code == 0
    options = ("--rate", 500, "--audit", audit)
    with serving(store, folder / "uploads", *options, **turned.start) as server, Client(server.url) as client:
        for number in range(_REQUESTS):
            turned.set((0, -3600, 3600, -_DAY, 400 * _DAY)[number % 5])
            try:
                answer = client.search(SENTENCES[number % 3], k=5)
                item = client.add(picture(rng), name=f"{number}.png")
                client.delete(item.id)
            except LimnerError as error:
                outcome.find(f"clock back under a server: {error}")
                continue
            outcome.count("requests", 3)
            outcome.expect(len(answer.hits) == 5, f"clock back under a server: {len(answer.hits)} hits")
        server.stop(outcome, "clock back under a server")
    lines = audit.read_text(encoding="utf-8").splitlines()
    outcome.expect(len(lines) >= _REQUESTS, f"clock back under a server: {len(lines)} lines of audit")
    expect_audit(audit, outcome, "clock back under a server")
    contents_of(store, outcome, "clock back under a server")
