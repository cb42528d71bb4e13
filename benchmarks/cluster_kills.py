"""Kills while a cluster indexes: does `limner index --cluster local` leave the store that one process leaves?

    python -m benchmarks.cluster_kills [PHOTOGRAPHS] [--pictures 200000] [--every 20] [--seed 0]
                                                            needs the extra `cluster`

Claim: no row is lost, doubled or another, and `limner store verify` calls the store sound.

Each photograph of the folder PHOTOGRAPHS (drawn ones without it) is scaled to 68 × 68 pixels and cut to 64 × 64 at 25
places: JPEGs with pixels, bytes and a comment of their own. Each has an identity and two facts in a CSV file. The run
is the toy of `tests.toy`, learnt for an epoch (a narrow ResNet-18 at 32 × 32 pixels, 16 numbers a vector): its cost is
small beside reading and writing, and its search is worthless.

One process makes the first store. For the second, processes are killed by SIGKILL: after a number of seconds drawn with
the mean `--every` a worker (14 times of 20), the command itself (4), or of Ray's head the GCS or the raylet (1 each),
all drawn from the seed. A command that is killed or fails is begun again until one ends. Then both stores
are read. Numbers of a vector may differ by 1e-6: a list that is halved after kills is encoded in another batch.
"""

import argparse
import csv
import json
import math
import os
import random
import signal
import subprocess
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.measuring import cannot_run, sized, write
from benchmarks.small_run import limner, make_run

EDGE, ROOM = 64, 4
PLACES = [(left, top) for top in range(ROOM + 1) for left in range(ROOM + 1)]
STUCK = 180.0
"""Seconds that a command may be without what is to be killed; after more it hangs, which is told, and is killed."""
KINDS = {"worker": 14, "command": 4, "gcs": 1, "raylet": 1}
NO_MORE = (math.inf, "command")
# in the command lines of Ray's processes; an actor is named after its class
TITLES = {"worker": "ray::Worker", "gcs": "gcs/gcs_server", "raylet": "raylet/raylet"}
TOLERANCE = 1e-6


@dataclass
class Done:
    """What was done until a command ended."""

    report: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    commands: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    ended_by_itself: list[str] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("photographs", type=Path, nargs="?", help="a folder of JPEGs; drawn if not given")
    parser.add_argument("--pictures", type=int, default=sized(200_000, 2_000))
    parser.add_argument("--every", type=float, default=sized(20.0, 3.0), help="mean seconds between kills")
    parser.add_argument("--most", type=int, default=sized(100, 4), help="kills after which it is let alone")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if find_spec("ray") is None:
        cannot_run("needs the extra cluster")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        run, _ = make_run(folder, toy=True)
        pictures, facts = _pictures(folder, given.photographs, given.pictures)
        words = ["index", run, pictures, "--metadata", facts, "--cpu", "--json"]
        print(f"{given.pictures:,} pictures made", flush=True)
        alone = _index(folder, [*words[:2], folder / "alone", *words[2:]])
        print(f"one process: {given.pictures / alone.seconds:.0f} pictures a second", flush=True)
        kills = _moments(random.Random(given.seed), given.every, given.most)
        killed = _index(folder, [*words[:2], folder / "killed", *words[2:], "--cluster", "local"], kills)
        print(f"with kills: {given.pictures / killed.seconds:.0f} pictures a second", flush=True)
        _told(killed)
        found = _compared(folder / "alone", folder / "killed")
        found["sound"] = _is_sound(folder / "killed", given.pictures)
        # before the folder is removed, which takes minutes on a busy machine
        for name, value in found.items():
            print(f"{name}: {value}", flush=True)
    write(
        "cluster_kills",
        {
            "pictures": given.pictures,
            "photographs": "drawn" if given.photographs is None else "of a folder",
            "seed": given.seed,
            "mean_seconds_between_kills": given.every,
            "kills": dict(killed.kills),
            "restarts": killed.commands - 1,
            "failed_without_being_killed": Counter(killed.ended_by_itself),
            "seconds": {"alone": alone.seconds, "killed": killed.seconds},
            "per_second": {
                "alone": given.pictures / alone.seconds,
                "killed": given.pictures / killed.seconds,
            },
            "rows": found,
        },
    )
    if (
        any(found[name] for name in ("lost", "doubled", "more", "other", "vectors_beyond"))
        or not found["sound"]
    ):
        raise SystemExit("the stores differ")


def _told(done: Done) -> None:
    print(f"kills: {dict(done.kills)}; the command was begun {done.commands} times")
    for reason, count in Counter(done.ended_by_itself).items():
        print(f"{count} times it ended with: {reason}")


def _pictures(folder: Path, photographs: Path | None, count: int) -> tuple[Path, Path]:
    """Write the pictures, a thousand a folder, and their facts."""
    pictures, facts = folder / "many", folder / "facts.csv"
    sources = _drawn(count) if photographs is None else _opened(photographs)
    with facts.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(("file", "identity", "place", "number"))
        number = 0
        for name, image in sources:
            for place, (left, top) in enumerate(PLACES):
                if number == count:
                    return pictures, facts
                path = pictures / f"{number // 1000:03}" / f"{number:06}.jpg"
                path.parent.mkdir(parents=True, exist_ok=True)
                cut = image.crop((left, top, left + EDGE, top + EDGE))
                cut.save(path, quality=85, comment=f"{name}, place {place}".encode())
                rows.writerow((path, name, place, number))
                number += 1
    if number == count:
        return pictures, facts
    raise SystemExit(
        f"{photographs}: expected {-(-count // len(PLACES))} photographs, got {number // len(PLACES)}"
    )


def _opened(photographs: Path) -> Iterator[tuple[str, Image.Image]]:
    for path in sorted(photographs.glob("*.jpg")):
        with Image.open(path) as image:
            yield path.stem, image.convert("RGB").resize((EDGE + ROOM, EDGE + ROOM))


def _drawn(count: int) -> Iterator[tuple[str, Image.Image]]:
    drawn = np.random.default_rng(0)
    for number in range(count):
        small = Image.fromarray(drawn.integers(0, 256, (9, 9, 3), dtype=np.uint8))
        yield f"drawn-{number}", small.resize((EDGE + ROOM, EDGE + ROOM), Image.Resampling.BICUBIC)


def _moments(rng: random.Random, every: float, most: int) -> Iterator[tuple[float, str]]:
    """Seconds to wait and what to kill then."""
    for _ in range(most):
        yield rng.expovariate(1 / every), rng.choices(list(KINDS), list(KINDS.values()))[0]


def _index(folder: Path, words: list[object], kills: Iterable[tuple[float, str]] = ()) -> Done:
    """Begin the command until it ends, and kill meanwhile."""
    done, began = Done(), time.monotonic()
    moments = iter(kills)
    pause, kind = next(moments, NO_MORE)
    since = began
    while not done.report:
        # all processes of one command have the mark in their environment, whoever has become their parent
        mark = uuid.uuid4().hex
        with (
            (folder / "said.txt").open("w+") as said,
            subprocess.Popen(
                limner(*words),
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                start_new_session=True,
                # one thread everywhere: Ray gives a worker as many as it has cores, which changes last bits
                env={**os.environ, "LIMNER_KILLS": mark, "OMP_NUM_THREADS": "1", "RAY_TMPDIR": str(folder)},
            ) as process,
        ):
            done.commands += 1
            by_us = False
            while process.poll() is None:
                time.sleep(0.05)
                late = time.monotonic() - since - pause
                if late < 0:
                    continue
                # before it has such a process, the moment waits
                found = [process.pid] if kind == "command" else _processes(mark, TITLES[kind])
                if not found and late > STUCK:
                    found, kind = [process.pid], "hanging command"
                if found and process.poll() is None:
                    os.kill(found[0], signal.SIGKILL)
                    done.kills[kind] += 1
                    by_us = kind == "command"
                    since = time.monotonic()
                    pause, kind = next(moments, NO_MORE)
            assert process.stdout is not None
            output = process.stdout.read()
            said.seek(0)
            last = _reason(said)
        if process.returncode == 0:
            done.report = json.loads(output)
        elif not by_us:
            done.ended_by_itself.append(f"{process.returncode}: {last}")
            # a mistake of this script, which every further try would make again
            if done.commands > 3 and not done.kills:
                raise SystemExit(last)
        print(
            f"{time.monotonic() - began:6.0f} s {dict(done.kills)} {process.returncode} {last}",
            flush=True,
        )
        for left in _processes(mark, ""):
            os.kill(left, signal.SIGKILL)
    done.seconds = time.monotonic() - began
    return done


def _reason(said: Iterable[str]) -> str:
    """The line of a command that gave up; of Ray's own, which name processes and addresses, only that they are."""
    lines = [line for line in said if line.startswith('{"error"')]
    return str(json.loads(lines[-1])["error"]["message"]) if lines else "no line of limner's"


def _processes(mark: str, title: str) -> list[int]:
    """The processes with a mark in their environment whose command line holds a title."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                named = title.encode() in (entry / "cmdline").read_bytes()
                if named and f"LIMNER_KILLS={mark}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            # it has ended, or is another user's
            except OSError:
                pass
    return sorted(found)


def _compared(alone: Path, killed: Path) -> dict[str, Any]:
    """Rows of the second store against those of the first."""
    from limner.store.files import StoreFiles
    from limner.store.sound import read_vectors

    rows, vectors = [], []
    for folder in (alone, killed):
        files = StoreFiles.open(folder)
        with files.rows.reading() as reading:
            rows.append(sorted(reading.pictures(), key=lambda row: row.id))
            vectors.append(read_vectors(folder, reading, rows[-1], files.dim))
    expected, got = rows
    ids, known = [row.id for row in got], {row.id for row in expected}
    found: dict[str, Any] = {
        "expected": len(expected),
        "lost": len(known.difference(ids)),
        "doubled": len(ids) - len(set(ids)),
        "more": len(set(ids) - known),
    }
    if [row.id for row in expected] != ids:
        return {**found, "other": None, "vectors_beyond": None}
    # the order of writing, and vectors, which are compared below
    own: dict[str, Any] = dict.fromkeys(("number", "vector_sum", "digest"))
    differing = [
        one._replace(**own) != other._replace(**own) for one, other in zip(expected, got, strict=True)
    ]
    apart = np.abs(vectors[0] - vectors[1]).max(axis=1)
    return {
        **found,
        "other": sum(differing),
        "vectors_equal_bit_by_bit": int((apart == 0).sum()),
        "vectors_beyond": int((apart > TOLERANCE).sum()),
        "greatest_difference": float(apart.max()),
    }


def _is_sound(store: Path, pictures: int) -> bool:
    """True if the store verifies itself, with the bytes of thumbnails and of the picture files."""
    command = limner("store", "verify", store, "--hashes", "--json")
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    report = json.loads(done.stdout)
    return bool(done.returncode == 0 and report["sound"] and report["pictures"] == pictures)


if __name__ == "__main__":
    main()
