"""Kills by SIGKILL of every command that changes a store, and of training, at moments over the changes that they make.

After each kill the store opens, is sound under `limner store verify --hashes`, has lost nothing that was there, and
holds nothing twice. The same command then goes on, through up to five kills, to what an unkilled one ends with.
"""

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.torture.commands import Result, called, has_command, started
from benchmarks.torture.contents import Contents, contents_of
from benchmarks.torture.killing import counted, killed
from benchmarks.torture.kills_training import kill_training
from benchmarks.torture.outcome import Outcome
from benchmarks.torture.workshop import Workshop, exchange, facts_of

KILLS = 200
"""Kills of the long form, over all commands."""

SHORT = {"index": 1}
"""Kills of the short form, by command."""

_CHAIN = 5
"""Most kills after which the command is let go on to its end."""

Command = Callable[[Path], tuple[object, ...]]
Allowed = Callable[[Contents, Contents, Contents], str]


@dataclass(frozen=True)
class Case:
    """A command and the store that it begins with.

    - `base`: a folder that each chain of kills begins with a copy of; the store is `store` in it.
    - `command`: the words of the command, by the chain's folder.
    - `allowed`: says what is wrong with the contents after a kill, by those before, those now and those at the end.
    - `gone`: texts that no file of the store may hold at the end.
    """

    name: str
    base: Path
    command: Command
    allowed: Allowed
    gone: tuple[str, ...] = ()
    store: str = "store"


def kills(shop: Workshop, *, short: bool = False, seed: int = 0) -> Outcome:
    """Kill every command, each equally often."""
    outcome, rng = Outcome(), random.Random(seed)
    makers: dict[str, Callable[[Workshop], Case]] = {
        "index": _index,
        "update": _update,
        "delete": _delete,
        "compact": _compact,
        "purge": _purge,
        "reindex": _reindex,
        "index-sentences": _sentences,
    }
    # a case of its own: its command may not be there
    if has_command("store", "erase"):
        makers["erase"] = _erase
    share = -(-KILLS // (len(makers) + 1))
    for name, maker in makers.items():
        if wanted := SHORT.get(name, 0) if short else share:
            _torture(maker(shop), shop.folder / "kills", wanted, outcome, rng)
    kill_training(shop, 1 if short else share, outcome, rng)
    return outcome


def _torture(case: Case, work: Path, wanted: int, outcome: Outcome, rng: random.Random) -> None:
    """Kill one command so often, and go on with it."""
    start = contents_of(_copy(case, work) / case.store, outcome, f"{case.name} before")
    result, changes = counted(work, *case.command(work))
    if result.code:
        outcome.find(f"{case.name} unkilled: {result}")
        return
    end = contents_of(work / case.store, outcome, f"{case.name} unkilled")
    expect_gone(work / case.store, case.gone, outcome, case.name)
    done = attempts = 0
    while done < wanted and attempts < 3 * wanted:
        _copy(case, work)
        before = start
        for link in range(min(_CHAIN, wanted - done)):
            attempts += 1
            when = f"{case.name}, kill {link + 1} of a chain"
            result_or_kill = killed(started(*case.command(work)), work, changes, rng)
            now = contents_of(work / case.store, outcome, when)
            if result_or_kill is not None:
                # it was done before its moment came: what it acknowledged is the end
                _expect_end(case, result_or_kill, now, end, outcome, when)
                break
            done += 1
            outcome.count(f"kills of {case.name}")
            if wrong := case.allowed(before, now, end):
                outcome.find(f"{when}: {wrong}")
            before = now
        last = called(*case.command(work))
        now = contents_of(work / case.store, outcome, f"{case.name} continued")
        _expect_end(case, last, now, end, outcome, f"{case.name} continued")
        expect_gone(work / case.store, case.gone, outcome, case.name)
        outcome.count("continued to the end")


def _copy(case: Case, work: Path) -> Path:
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(case.base, work)
    return work


def _expect_end(
    case: Case, result: Result, now: Contents, end: Contents, outcome: Outcome, when: str
) -> None:
    # what is deleted already cannot be named again
    done = result.code == 0 or (result.refused and "holds no such" in result.err)
    outcome.expect(done, f"{when}: {result}")
    if wrong := now.differs(end):
        outcome.find(f"{when}: differs from an unkilled command: {wrong}")


def expect_gone(folder: Path, texts: tuple[str, ...], outcome: Outcome, when: str) -> None:
    """No file below a folder may hold one of these texts."""
    for path in sorted(folder.rglob("*")) if texts else ():
        content = path.read_bytes() if path.is_file() else b""
        if found := next((text for text in texts if text.encode() in content), None):
            outcome.find(f"{when}: {Path(found).name} is still in {path.relative_to(folder)}")
            return


def grows(before: Contents, now: Contents, end: Contents) -> str:
    """Only adds: all of before is there still, and nothing that does not stay."""
    lost = before.rows.keys() - now.rows.keys() or set(before.sentences) - set(now.sentences)
    if lost:
        return f"{len(lost)} lost, e.g. {min(lost)}"
    return _of_the_end(now, end)


def replaces(before: Contents, now: Contents, end: Contents) -> str:
    """Each picture is the old one or the new one, and never the old one again."""
    if now.rows.keys() != end.rows.keys():
        return f"{len(now.rows)} pictures in place of {len(end.rows)}"
    for path, row in now.rows.items():
        if row not in (before.rows[path], end.rows[path]):
            return f"{Path(path).name}: {row} is neither {before.rows[path]} nor {end.rows[path]}"
    return ""


def at_once(before: Contents, now: Contents, end: Contents) -> str:
    """All of it, or nothing yet."""
    if now.rows.keys() not in (before.rows.keys(), end.rows.keys()):
        return f"{len(now.rows)} pictures; {len(before.rows)} before, {len(end.rows)} at the end"
    return ""


def changes_nothing(before: Contents, now: Contents, end: Contents) -> str:
    return now.differs(before)


def _of_the_end(now: Contents, end: Contents) -> str:
    for path, row in now.rows.items():
        if end.rows.get(path) != row:
            return f"{Path(path).name}: {row} in place of {end.rows.get(path)}"
    strange = set(now.sentences) - set(end.sentences)
    return f"{len(strange)} sentences that an unkilled command does not add" if strange else ""


def indexed(shop: Workshop, folder: Path, *, batch: int = 36) -> tuple[Path, list[Path]]:
    """Make a store of the toys' copies, with their identities; return it and the copies."""
    paths = shop.copy_of_toys(folder / "pictures")
    notes = facts_of(paths, folder / "facts.jsonl")
    store = folder / "store"
    made = called(
        "index", shop.run, store, folder / "pictures", "--metadata", notes, "--batch", batch, "--cpu"
    )
    assert made.code == 0, made
    return store, paths


# the pictures of a base stay where they are, since a store names them by their absolute paths; only stores are copied


def _base(shop: Workshop, name: str) -> tuple[Path, Path]:
    """The folder of a case's pictures, and that of its store."""
    return shop.fresh(f"of-{name}"), shop.fresh(f"base-{name}")


def _with_store(shop: Workshop, name: str) -> tuple[Path, list[Path]]:
    """The base of a case whose store holds the toys, and the paths of its pictures."""
    own, base = _base(shop, name)
    store, paths = indexed(shop, own)
    shutil.move(store, base / "store")
    return base, paths


def _index(shop: Workshop) -> Case:
    own, base = _base(shop, "index")
    shop.copy_of_toys(own / "pictures")
    pictures = own / "pictures"
    return Case(
        "index",
        base,
        lambda work: ("index", shop.run, work / "store", pictures, "--batch", 4, "--cpu"),
        grows,
    )


def _update(shop: Workshop) -> Case:
    base, paths = _with_store(shop, "update")
    exchange(paths[::2])
    notes = facts_of(paths[:24], base.parent / "of-update" / "later.jsonl", shelf=7)
    pictures = paths[0].parent
    return Case(
        "update",
        base,
        lambda work: (
            *("index", shop.run, work / "store", pictures),
            *("--metadata", notes, "--batch", 4, "--cpu"),
        ),
        replaces,
    )


def _delete(shop: Workshop) -> Case:
    base, paths = _with_store(shop, "delete")
    assert (
        called("index-sentences", shop.run, base / "store", f"folder:{_captions(shop, paths)}", "--cpu").code
        == 0
    )
    doomed = paths[::3]
    return Case("delete", base, lambda work: ("store", "delete", work / "store", *doomed), at_once)


def _captions(shop: Workshop, paths: list[Path]) -> Path:
    folder = paths[0].parent
    shutil.copyfile(shop.pictures / "captions.jsonl", folder / "captions.jsonl")
    return folder


def _in_pieces(shop: Workshop, name: str) -> Path:
    """A store of many commits, a third of it deleted."""
    own, base = _base(shop, name)
    paths = shop.copy_of_toys(own / "pictures")
    for start in range(0, len(paths), 6):
        made = called("index", shop.run, base / "store", *paths[start : start + 6], "--batch", 3, "--cpu")
        assert made.code == 0, made
    assert called("store", "delete", base / "store", *paths[::3]).code == 0
    return base


def _compact(shop: Workshop) -> Case:
    base = _in_pieces(shop, "compact")
    return Case("compact", base, lambda work: ("store", "compact", work / "store"), changes_nothing)


def _purge(shop: Workshop) -> Case:
    base = _in_pieces(shop, "purge")
    return Case("purge", base, lambda work: ("store", "compact", work / "store", "--purge"), changes_nothing)


def _reindex(shop: Workshop) -> Case:
    base, _ = _with_store(shop, "reindex")
    return Case(
        "reindex",
        base,
        lambda work: ("reindex", work / "store", shop.other, work / "new", "--batch", 4, "--cpu"),
        grows,
        store="new",
    )


def _sentences(shop: Workshop) -> Case:
    base, paths = _with_store(shop, "sentences")
    data = f"folder:{_captions(shop, paths)}"
    return Case(
        "index-sentences",
        base,
        lambda work: ("index-sentences", shop.run, work / "store", data, "--cpu"),
        grows,
    )


def _erase(shop: Workshop) -> Case:
    base, paths = _with_store(shop, "erase")
    doomed = [path for path in paths if path.stem.startswith("0")]
    return Case(
        "erase",
        base,
        lambda work: ("store", "erase", work / "store", "--identity", "0"),
        at_once,
        gone=tuple(str(path) for path in doomed),
    )
