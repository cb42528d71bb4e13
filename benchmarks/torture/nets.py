"""Nets below any store: trouble at any operation of random histories, whose outcome a model in Python knows.

After a kill, a full disk or a power cut the store is as it was before or after the step in which it came, and the step
can be done again. Damage changes no answer without an error, and ends no process by a signal. Of what was erased no
byte is left. A backup beside a writer is the store of one moment. No net knows of which files a store consists.
"""

import json
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.torture import disk, histories
from benchmarks.torture.commands import called
from benchmarks.torture.forks import EndedError, Forks, forks
from benchmarks.torture.histories import Answers, State, Step
from benchmarks.torture.outcome import Outcome
from limner.errors import LimnerError

LENGTH, SHORT_LENGTH = 12, 5
"""Steps of a history."""
_HOWS: tuple[disk.How, ...] = ("all", "names", "synced", "drawn", "drawn")


@dataclass(frozen=True)
class Net:
    """A folder of one's own, forks that have imported limner, and what a store answers of each content."""

    work: Path
    fork: Forks
    references: Answers
    length: int = LENGTH

    def do(self, steps: list[Step], state: State, trouble: tuple[Any, ...] | None = None) -> dict[str, Any]:
        """Do steps in a process; `told` is None if it did not survive."""
        try:
            done: dict[str, Any] = self.fork(
                "benchmarks.torture.histories:do", str(self.work), steps, state, trouble
            )
        except EndedError as error:
            return {"told": None, "said": str(error), "well": False, "operations": 0}
        return done

    def ask(self, store: Path) -> Answers:
        """Raises `EndedError` for a signal or a stack trace."""
        found: Answers = self.fork("benchmarks.torture.histories:answers_of", str(store))
        return found

    def wrong(self, folder: Path, before: State, later: State) -> str:
        """Say what is wrong with the stores of a folder after a step that was stopped; "refused: …" for an error."""
        name = before["store"]
        try:
            now = self.ask(folder / name)
        except EndedError as error:
            return f"it ended: {error}"
        if said := histories.refused(now):
            # of the first step nothing need be there
            return f"refused: {said}" if before["pictures"] or (folder / name / "told").exists() else ""
        state = histories.state_in(now, self.references, name)
        return histories.differs(now, histories.expected(state, self.references)) or histories.strays(
            # a reindexing leaves its source as it is
            state,
            before,
            before if later["store"] != name else later,
        )

    def walk(self, seed: int, kinds: tuple[str, ...] = ()) -> Iterator[tuple[Step, State, State]]:
        """Do a history; give each step before it is done, and the states before and after it."""
        self.emptied("disk", "pictures")
        state = histories.START
        for step, later in histories.history(seed, self.length, kinds):
            yield step, state, later
            state = later

    def emptied(self, *names: str) -> None:
        for name in names:
            shutil.rmtree(self.work / name, ignore_errors=True)
            (self.work / name).mkdir(parents=True)


@contextmanager
def net(work: Path, length: int = LENGTH) -> Iterator[Net]:
    """Make a net in an empty folder, for histories of so many steps."""
    # what is thrown down beside the store is looked at, too
    for name in ("disk", "temporary"):
        (work / name).mkdir(parents=True)
    given = {"LIMNER_CACHE": str(work / "cache"), "TMPDIR": str(work / "temporary")}
    with forks(given) as fork:
        most = histories.MOST * length
        yield Net(work, fork, fork("benchmarks.torture.histories:references_of", str(work), most), length)


def stopped(one: Net, kind: Literal["kill", "full"], seed: int, tries: int) -> Outcome:
    """Stop each step of a history at drawn operations, by SIGKILL or by a disk that is full from then on."""
    outcome, rng = Outcome(), random.Random(seed)
    library, number, base = str(disk.library()), {"kill": 1, "full": 2}[kind], one.work / "base"
    for step, before, later in one.walk(seed):
        when = f"{kind} in {step[0]}, history {seed}"
        shutil.rmtree(base, ignore_errors=True)
        shutil.copytree(one.work / "disk", base)
        most = one.do([step], before, (library, "", 0, 0))
        outcome.expect(most["told"] == 1, f"{when}, with room: {most['said']}")
        wrong = one.wrong(one.work / "disk", later, later)
        outcome.expect(not wrong, f"{when}, undisturbed: {wrong}")
        for _ in range(tries):
            at = rng.randint(1, max(1, most["operations"]))
            shutil.rmtree(one.work / "disk")
            shutil.copytree(base, one.work / "disk")
            done = one.do([step], before, (library, "", number, at))
            outcome.count(f"{step[0]}: {'stopped' if done['told'] != 1 else 'done'}")
            told = f"{when}, operation {at} of {most['operations']}"
            if kind == "full":
                outcome.expect(done["well"], f"{told}: {done['said']}")
            wrong = one.wrong(one.work / "disk", later if done["told"] == 1 else before, later)
            outcome.expect(not wrong, f"{told}: {wrong}")
            again = one.do([step], before)
            # what is deleted already cannot be named again
            well = again["told"] == 1 or "no such picture" in again["said"]
            wrong = one.wrong(one.work / "disk", later, later)
            outcome.expect(well and not wrong, f"{told}, again: {wrong or again['said']}")
    return outcome


def power_cuts(one: Net, seed: int, tries: int) -> Outcome:
    """Cut the power at drawn moments of a history, with what nobody had waited for lost, kept or drawn.

    A store that then says it is damaged must be whole after `limner store repair`; `repaired` counts them.
    """
    outcome, rng, log = Outcome(), random.Random(seed), one.work / "log"
    log.unlink(missing_ok=True)
    walked = list(one.walk(seed))
    recording = disk.Recording(one.work / "disk")
    done = one.do([step for step, *_ in walked], histories.START, (str(disk.library()), str(log), 0, 0))
    outcome.expect(done["told"] == len(walked), f"history {seed}: {done['said']}")
    recording.read(log)
    real = disk.read(one.work / "disk")
    replayed = recording.files(recording.moments, "all")
    lost = [name for name in {*real, *replayed} if real.get(name) != replayed.get(name)]
    outcome.expect(set(lost) <= recording.mapped(), f"history {seed}: the recording lacks {lost}")
    states = [histories.START, *(later for *_, later in walked)]
    for number in range(tries):
        # each tenth behind the last answer, of which nothing may be lost
        moment = rng.randint(1, recording.moments) if number % 10 else recording.moments
        how = rng.choice(_HOWS)
        told = len(recording.files(moment, "all").get("told") or b"")
        before, later = states[told], states[min(told + 1, len(walked))]
        when = f"power cut, {how}, at {moment} of {recording.moments} of history {seed}, step {told}"
        cut = disk.written(recording.files(moment, how, number), one.work / "cut")
        kept = {step[0]: step for step, *_ in walked[:told]}.get("erase")
        outcome.count(f"cuts: {how}")
        if wrong := one.wrong(cut, before, later):
            if wrong.startswith("refused"):
                repaired = called("store", "repair", cut / before["store"], "--cpu")
                outcome.count("repaired")
                wrong = one.wrong(cut, before, later) or "" if repaired.code == 0 else f"{wrong}; {repaired}"
            outcome.expect(not wrong, f"{when}: {wrong}")
        del kept
    return outcome
