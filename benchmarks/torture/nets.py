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
from functools import partial
from pathlib import Path
from typing import Any, Literal

from benchmarks.torture import disk, histories
from benchmarks.torture.forks import EndedError, Forks, forks
from benchmarks.torture.histories import Answers, State, Step
from benchmarks.torture.outcome import Outcome
from benchmarks.torture.workshop import Workshop

LENGTH = 12
"""Steps of a history."""
HOWS: tuple[disk.How, ...] = ("all", "names", "synced", "drawn", "drawn")


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

    def command(self, *words: object) -> dict[str, Any]:
        """Call a command of limner in a process. Raises `EndedError` for a signal or a stack trace."""
        result: dict[str, Any] = self.fork("benchmarks.torture.histories:command", *map(str, words))
        return result

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
            return f"refused: {said}" if before["pictures"] else ""
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


def power_cuts(one: Net, seed: int, tries: int, hows: tuple[disk.How, ...] = HOWS) -> Outcome:
    """Cut the power at drawn moments of a history, with what nobody had waited for lost, kept or drawn.

    A store that then says it is damaged must be whole after `limner store repair`; `repaired` counts them. What was
    erased does not come back.
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
    lost = {Path(name).name for name in {*real, *replayed} if real.get(name) != replayed.get(name)}
    outcome.expect(
        lost <= recording.mapped(),
        f"history {seed}: the recording lacks {lost}",
    )
    states = [histories.START, *(later for *_, later in walked)]
    for number in range(tries):
        # each tenth behind the last answer, of which nothing may be lost
        moment = rng.randint(1, recording.moments) if number % 10 else recording.moments
        how = rng.choice(hows)
        told = len(recording.files(moment, "all").get("told") or b"")
        before, later = states[told], states[min(told + 1, len(walked))]
        when = f"power cut, {how}, at {moment} of {recording.moments} of history {seed}, step {told}"
        cut_files = recording.files(moment, how, number)
        cut = disk.written(cut_files, one.work / "cut")
        outcome.count(f"cuts: {how}")
        if wrong := one.wrong(cut, before, later):
            if wrong.startswith("refused"):
                repaired = one.command("store", "repair", cut / before["store"], "--cpu")
                outcome.count("repaired")
                wrong = f"{wrong}; {repaired['said']}" if repaired["code"] else one.wrong(cut, before, later)
            outcome.expect(not wrong, f"{when}: {wrong}")
        # read before the store was opened: that may have removed what the cut had brought back
        left = _erased(walked[:told], before["store"], cut_files)
        outcome.expect(not left, f"{when}: {left}")
    return outcome


def _erased(done: list[tuple[Step, State, State]], store: str, files: dict[str, bytes | None]) -> str:
    """Say which file of a store has a text that an erasure among some steps erased."""
    states = [later for *_, later in done if later["store"] == store]
    erasures = [later for step, _, later in done if step[0] == "erase" and later["store"] == store]
    if not erasures:
        return ""
    earlier = [_texts(state) for state in states[: states.index(erasures[-1])]]
    gone = set().union(*earlier) - _texts(erasures[-1])
    for name, content in files.items():
        if name.startswith(f"{store}/") and (
            found := [text for text in gone if text.encode() in (content or b"")]
        ):
            return f"{found[0]!r} was erased and is in {name}"
    return ""


def _texts(state: State) -> set[str]:
    return {text for one in state["pictures"].values() for text in (*one[1:3], *one[3])}


def mutations(one: Net, seed: int, tries: int, *, killed: bool = False) -> Outcome:
    """Damage files of a store, and ask, verify and repair it; `killed`: its last writer was killed while it wrote."""
    outcome, rng = Outcome(), random.Random(seed)
    store, rights, others = _base(one, seed, killed, outcome)
    base = one.work / "base"
    for number in range(tries):
        when = f"mutation {number} of {seed}, {'killed' if killed else 'closed'}"
        shutil.rmtree(store.parent)
        shutil.copytree(base / "disk", store.parent)
        told, as_a_whole = mutate(store, [folder / store.name for folder in others], rng)
        try:
            found = one.ask(store)
            wrong = histories.differs(found, rights[0], near=0)
            # files that were put back to those of before, or of another store, are such a store
            if wrong and as_a_whole:
                wrong = wrong if all(histories.differs(found, answers) for answers in others.values()) else ""
            outcome.count("refused" if histories.refused(found) else "the same")
            wrong = wrong or _repaired(one, store, found, rights, as_a_whole)
        except EndedError as error:
            wrong = f"it ended: {error}"
        outcome.expect(not wrong, f"{when}, {told}: {wrong}")
    return outcome


def _base(
    one: Net, seed: int, killed: bool, outcome: Outcome
) -> tuple[Path, list[Answers], dict[Path, Answers]]:
    """Make a store, and others: it as it was some steps before, and one of another history; with their answers.

    The answers of the store itself are its own and, of a killed one, those before the step that was never answered.
    """
    kinds, others = ("add", "add", "sentences", "delete", "compact"), dict[Path, Answers]()
    one.emptied("base")
    for name, other in (("foreign", seed + 1), ("disk", seed)):
        walked = list(one.walk(other, kinds))
        state = histories.START
        earlier: list[Answers] = []
        for place, (step, before, later) in enumerate(walked):
            trouble = None
            if killed and name == "disk" and place == len(walked) - 1:
                earlier.append(one.ask(one.work / "disk" / state["store"]))
                # about as many operations as the last step had that did as much
                trouble = (str(disk.library()), "", 1, random.Random(seed).randint(30, 60))
            done = one.do([step], before, trouble)
            outcome.expect(done["told"] == 1 or trouble is not None, f"history {other}: {done['said']}")
            state = later
            if place == len(walked) - 3:
                others[shutil.copytree(one.work / "disk", one.work / "base" / f"{name}-earlier")] = one.ask(
                    one.work / "disk" / state["store"]
                )
        shutil.copytree(one.work / "disk", one.work / "base" / name)
        store = one.work / "disk" / state["store"]
        answers = one.ask(store)
        outcome.expect(not histories.refused(answers), f"history {other}: {histories.refused(answers)}")
        if name == "foreign":
            others[one.work / "base" / name] = answers
    return store, [answers, *earlier], others


def mutate(store: Path, others: list[Path], rng: random.Random) -> tuple[str, bool]:
    """Damage a file below a store's folder, and say how, and if a file as a whole was put back or taken away."""
    files = [path for path in sorted(store.rglob("*")) if path.is_file() and path.stat().st_size]
    # by number and by size, so that neither a large file nor many small ones have all of it
    path = rng.choices(files, None if rng.random() < 0.5 else [file.stat().st_size for file in files])[0]
    kind = rng.choice(("bit", "byte", "cut", "zeros", "longer", "removed", "exchanged", "other"))
    content, name = bytearray(path.read_bytes()), path.relative_to(store)
    place = rng.randrange(len(content))
    if kind == "removed":
        path.unlink()
        return f"{kind} {name}", True
    if kind == "other":
        from_ = rng.choice(others) / name
        path.write_bytes(from_.read_bytes() if from_.is_file() else b"")
        return f"{name} of {from_.parent}", True
    if kind == "exchanged":
        other = rng.choice(files)
        path.write_bytes(other.read_bytes())
        other.write_bytes(content)
        return f"{kind} {name} with {other.relative_to(store)}", False
    if kind in ("bit", "byte"):
        content[place] ^= 1 << rng.randrange(8) if kind == "bit" else rng.randrange(1, 256)
    elif kind == "cut":
        content = content[:place]
    elif kind == "zeros":
        content[place : place + rng.choice((1, 64, 4096))] = bytes(min(64, len(content) - place))
    else:
        content += rng.randbytes(rng.choice((1, 512, 4096)))
    path.write_bytes(content)
    return f"{kind} {name} at {place}", False


def _repaired(one: Net, store: Path, found: Answers, rights: list[Answers], as_a_whole: bool) -> str:
    """Repair a store: all comes back, or it is said what does not; no more than that goes with `--accept-loss`."""
    if not histories.refused(found):
        return ""
    result = one.fork(
        "benchmarks.torture.histories:command", "store", "repair", str(store), "--cpu", "--json"
    )
    now = one.ask(store)
    if result["code"] == 0:
        wrong = histories.refused(now) or all(histories.differs(now, right) for right in rights)
        return f"repaired: {histories.differs(now, rights[0])}" if wrong and not as_a_whole else ""
    if not result["refused"] and result["code"] != 1:
        return f"repair: {result['said']}"
    if wrong := histories.differs(now, {key: found[key] for key in found}):
        return f"a repair that was refused: {wrong}"
    if "put back a copy of the store" in result["said"]:
        # what SQLite cannot read is beyond a repair, which says so and changes nothing
        return ""
    result = one.command("store", "repair", store, "--cpu", "--json", "--accept-loss")
    if result["code"] not in (0, 1):
        return "" if result["refused"] else f"repair: {result['said']}"
    report, left = json.loads(result["out"]), one.ask(store)
    if report["beside"]:
        return ""
    if said := histories.refused(left):
        return f"repaired with losses: {said}"
    state = histories.state_in(left, one.references, store.name)
    if wrong := histories.differs(left, histories.expected(state, one.references)):
        return f"repaired with losses: {wrong}"
    if as_a_whole or report["missing"]:
        return ""
    told = {Path(path).stem for path, _ in report["lost"]}
    gone = [
        {name for name, row in right["list"].items() if left["list"].get(name) != row} for right in rights
    ]
    return "" if any(one <= told for one in gone) else f"repaired with losses: {gone} and not only {told}"


def erasures(one: Net, seed: int) -> Outcome:
    """Do a history of many erasures, and look for what each of them erased in every file that limner may write."""
    outcome = Outcome()
    seen: dict[str, dict[str, list[str]]] = {}
    for step, before, later in one.walk(seed, ("add", "add", "sentences", "delete", "erase")):
        when = f"{step[0]} of {sorted(step[1])}, history {seed}"
        if before["pictures"]:
            store = str(one.work / "disk" / before["store"])
            held = one.fork("benchmarks.torture.histories:traces_of", store)
            seen |= held
            for kind in sorted({kind for traces in held.values() for kind in traces}):
                traces = {trace for by_kind in held.values() for trace in by_kind.get(kind, ())}
                outcome.count(f"visible: {kind}", len(set().union(*_found(one, traces).values())))
        done = one.do([step], before)
        outcome.expect(done["told"] == 1, f"{when}: {done['said']}")
        if step[0] != "erase":
            continue
        store = str(one.work / "disk" / later["store"])
        stays = one.fork("benchmarks.torture.histories:traces_of", store) if later["pictures"] else {}
        kept = {trace for by_kind in stays.values() for traces in by_kind.values() for trace in traces}
        for name, by_kind in seen.items():
            for kind, erased in by_kind.items():
                for path, remains in _found(one, set(erased) - kept).items():
                    outcome.find(f"{when}: {kind} of {name} is left in {path}: {sorted(remains)[0][:80]}")
        outcome.count("erasures")
    return outcome


def _found(one: Net, traces: set[str]) -> dict[Path, set[str]]:
    """Which of some bytes are in which file below the folders that limner writes to."""
    found: dict[Path, set[str]] = {}
    wanted = [(trace, bytes.fromhex(trace)) for trace in traces]
    for folder in ("disk", "temporary", "cache"):
        for path in (one.work / folder).rglob("*"):
            content = path.read_bytes() if path.is_file() else b""
            if there := {trace for trace, needle in wanted if needle in content}:
                found[path.relative_to(one.work)] = there
    return found


def backups(one: Net, seed: int) -> Outcome:
    """Back a store up again and again while a history changes it: each copy is the store of one moment."""
    outcome = Outcome()
    steps = [*one.walk(seed, ("add", "sentences", "delete"))]
    states = [later for *_, later in steps]
    first = one.do([steps[0][0]], histories.START)
    outcome.expect(first["told"] == 1, f"history {seed}: {first['said']}")
    store, told = one.work / "disk" / states[0]["store"], one.work / "disk" / "told"
    with forks({}) as other:
        beside = Net(one.work, other, one.references)
        writing = threading.Thread(
            target=lambda: done.update(beside.do([s for s, *_ in steps[1:]], states[0]))
        )
        done: dict[str, Any] = {}
        writing.start()
        while writing.is_alive():
            copy = one.work / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            # a step that is done may not have been told yet
            since = told.stat().st_size - 1
            result = one.command("store", "backup", store, copy)
            until = min(told.stat().st_size + 1, len(states) - 1)
            outcome.count("copies" if result["code"] == 0 else "refused copies")
            outcome.expect(result["code"] == 0 or result["refused"], f"history {seed}: {result['said']}")
            if result["code"]:
                continue
            wrongs = [
                # behind the last step only its state is there
                one.wrong(
                    copy.parent, *({**state, "store": "copy"} for state in (states[at], states[at:][:2][-1]))
                )
                for at in range(since, max(until, since + 1))
            ]
            outcome.expect("" in wrongs, f"history {seed}, a copy of step {since} to {until}: {wrongs}")
        writing.join()
    outcome.expect(done.get("told") == len(steps) - 1, f"history {seed}: {done.get('said')}")
    return outcome


def part(name: str, shop: Workshop, *, short: bool = False, seed: int = 0) -> Outcome:
    """Run one net in its long form; the short ones are tests/search/test_nets.py, and nothing is left to do here."""
    outcome = Outcome()
    if short:
        return outcome
    if not disk.can_follow():
        outcome.count("not run: needs Linux on x86-64 and gcc")
        return outcome
    with net(shop.fresh("nets")) as one:
        for number in range(_HISTORIES):
            some = _LONG[name](one, seed + number)
            outcome.counts.update(some.counts)
            outcome.findings += some.findings
    return outcome


_HISTORIES = 10
_LONG: dict[str, Callable[[Net, int], Outcome]] = {
    "stops": lambda one, seed: stopped(one, "kill" if seed % 2 else "full", seed, 8),
    "power-cuts": lambda one, seed: power_cuts(one, seed, 100),
    "damage": lambda one, seed: mutations(one, seed, 50, killed=seed % 5 == 4),
    "erasures": lambda one, seed: erasures(one, seed),
    "backups": lambda one, seed: backups(one, seed),
}
PARTS: dict[str, Callable[..., Outcome]] = {name: partial(part, name) for name in _LONG}
"""Each net by its name, as parts of the torture."""
