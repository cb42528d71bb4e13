"""Kills of `limner train`: with `--resume` it ends with the tensors and metrics of an uninterrupted training."""

import random
import shutil
from pathlib import Path

import limner
from benchmarks.torture.commands import called, started
from benchmarks.torture.contents import run_of
from benchmarks.torture.killing import counted, killed
from benchmarks.torture.outcome import Outcome
from benchmarks.torture.workshop import Workshop
from limner.errors import LimnerError

KILLS = 23
"""Kills of the long form."""
_CHAIN = 5


def kills(shop: Workshop, *, short: bool = False, seed: int = 0) -> Outcome:
    """Kill a training often, in chains, and compare each end with that of an uninterrupted one."""
    outcome, rng, wanted = Outcome(), random.Random(seed), 1 if short else KILLS
    work = shop.fresh("kills-training")
    out, recipe = work / "run", shop.recipe(work)
    command = ("train", recipe, "--data", shop.data, "--out", out, "--cpu", "--resume", "--quiet")
    result, changes = counted(out, *command)
    if result.code:
        outcome.find(f"train unkilled: {result}")
        return outcome
    end = run_of(out)
    done = attempts = 0
    while done < wanted and attempts < 3 * wanted:
        shutil.rmtree(out)
        epochs = 0
        for _ in range(min(_CHAIN, wanted - done)):
            attempts += 1
            if killed(started(*command), out, changes, rng) is not None:
                break
            done += 1
            outcome.count("kills of train")
            if not out.exists():
                continue
            now = run_of(out, killed=True)
            # an epoch's line is written before its state: the last one may be run, and written, again
            outcome.expect(
                len(now["metrics"]) >= epochs - 1 and now["metrics"] == end["metrics"][: len(now["metrics"])],
                f"train killed: {len(now['metrics'])} epochs are written, {epochs} were before, or others",
            )
            epochs = max(epochs, len(now["metrics"]))
            _expect_loads(out, outcome)
        last = called(*command)
        outcome.expect(last.code == 0, f"train resumed: {last}")
        now = run_of(out)
        for name in sorted({*end, *now} - {"files"}):
            outcome.expect(
                now.get(name) == end.get(name), f"train resumed: {name} differs from an unkilled run"
            )
        left = sorted(set(now["files"]) ^ set(end["files"]))
        outcome.expect(not left, f"train resumed: other files than an unkilled run leaves: {left[:4]}")
        outcome.count("continued to the end")
    return outcome


def _expect_loads(out: Path, outcome: Outcome) -> None:
    """A run that was killed loads, or says in one line that it has no checkpoint yet."""
    try:
        limner.load(out, device="cpu")
    except LimnerError:
        outcome.count("runs without a checkpoint yet")
