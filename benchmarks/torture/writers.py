"""Two writers of one store beside searches and deletes: a refused writer gets one line, readers see whole commits only.

Pictures lie in groups, and each change is one commit of a whole group: it is added, gets new metadata, or is deleted.
So a reader that sees a part of a group, or two generations of metadata in one, has seen half a commit. At the end each
group is as the last change left it that was acknowledged.
"""

import json
import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import limner
from benchmarks.torture.commands import called, ended, started
from benchmarks.torture.contents import contents_of
from benchmarks.torture.outcome import Outcome
from benchmarks.torture.workshop import SENTENCES, Workshop, facts_of
from limner.errors import UnknownPictureError

SECONDS, SHORT_SECONDS = 300.0, 3.0
_GROUP = 4
_COMPACT = 0.03
"""Share of the changes that compact the store instead."""
_REFUSALS = ("is being written by another process", "holds no such picture")

Seen = list[tuple[str, object]]
"""Group and generation of each picture that a reader has seen at once."""


@dataclass(frozen=True)
class Change:
    """One call of a writer; `generation` is 0 for a delete, and None for a refusal that is as it should be."""

    group: str
    began: float
    ended: float
    generation: int | None
    wrong: str = ""


def writers(shop: Workshop, *, short: bool = False, seed: int = 0) -> Outcome:
    """Let two processes write while this one reads."""
    outcome, folder = Outcome(), shop.fresh("writers")
    store, pictures = folder / "store", folder / "pictures"
    for number, path in enumerate(shop.copy_of_toys(folder / "all")):
        group = pictures / f"group-{number // _GROUP}"
        group.mkdir(parents=True, exist_ok=True)
        path.rename(group / path.name)
    # a store that is there, so that readers need not wait for it
    first = sorted((pictures / "group-0").iterdir())
    notes = facts_of(first, folder / "first.jsonl", generation=-1)
    made = called("index", shop.run, store, pictures / "group-0", "--metadata", notes, "--cpu")
    assert made.code == 0, made
    seconds = SHORT_SECONDS if short else SECONDS
    program = ("-m", "benchmarks.torture.writers")
    processes = [
        started(shop.run, store, pictures, folder, seconds, seed + number, program=program)
        for number in (1, 2)
    ]
    changes: list[Change] = []
    with _reading(store, outcome):
        for process in processes:
            result = ended(process, seconds=seconds + 300)
            outcome.expect(result.code == 0, f"a writer ended with {result.code}: {result.err[-250:]}")
            if result.code == 0:
                changes += [Change(**values) for values in json.loads(result.out)]
    for change in changes:
        outcome.count("changes" if change.generation is not None else "refused changes")
        outcome.expect(not change.wrong, change.wrong)
    now = contents_of(store, outcome, "after two writers")
    expect_last(now.rows, changes, outcome)
    return outcome


def expect_last(rows: dict[str, dict[str, object]], changes: list[Change], outcome: Outcome) -> None:
    """Each group is as a change left it that no other one followed."""
    found: dict[str, set[object]] = {}
    for path, row in rows.items():
        metadata = row["metadata"]
        assert isinstance(metadata, dict)
        found.setdefault(Path(path).parent.name, set()).add(metadata["generation"])
    done = {change.group for change in changes if change.generation is not None}
    for group in sorted(done - {"compaction"}):
        own = [change for change in changes if change.group == group and change.generation is not None]
        last = {change.generation for change in own if not any(other.began > change.ended for other in own)}
        now = found.get(group, {0})
        outcome.expect(
            len(now) == 1 and now <= last, f"{group}: generations {now}, the last change was {last}"
        )


class _reading:  # noqa: N801 - used as a context manager only
    """Readers in threads of this process, each with the store open for itself."""

    def __init__(self, store: Path, outcome: Outcome) -> None:
        self.store, self.outcome = store, outcome
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._read, args=(name, read), daemon=True)
            for name, read in (("lists", _listed), ("searches", _searched), ("thumbnails", _thumbnails))
        ]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _read(self, name: str, read: Callable[[limner.Store], Seen]) -> None:
        store = limner.open_store(self.store, device="cpu")
        while not self._stop.wait(0.02):
            try:
                seen = read(store)
            except Exception as error:
                # not limner's own alone: a thread that ends is not seen, and its reader would look at nothing more
                self.outcome.find(f"a reader's {name}: {type(error).__name__}: {error}")
                continue
            self.outcome.count(name)
            groups: dict[str, list[object]] = {}
            for group, generation in seen:
                groups.setdefault(group, []).append(generation)
            for group, generations in groups.items():
                if len(generations) != _GROUP or len(set(generations)) != 1:
                    self.outcome.find(f"a reader's {name}: {group} with generations {generations}")


def _listed(store: limner.Store) -> Seen:
    return [(_group(item.path), item.metadata["generation"]) for item in store.items(limit=500)]


def _searched(store: limner.Store) -> Seen:
    hits = store.search(SENTENCES[0], k=100).hits
    return [(_group(hit.path), hit.metadata["generation"]) for hit in hits]


def _thumbnails(store: limner.Store) -> Seen:
    for item in store.items(limit=500):
        try:
            assert store.thumbnail(item.id)[:2] == b"\xff\xd8"
        except UnknownPictureError:
            continue  # deleted since it was listed
    return []


def _group(path: Path | None) -> str:
    assert path is not None
    return path.parent.name


def _write(run: Path, store: Path, pictures: Path, folder: Path, seconds: float, seed: int) -> list[Change]:
    """Change random groups for so long; the clock is the system's, which both writers share."""
    rng = random.Random(seed)
    changes: list[Change] = []
    groups = sorted(pictures.iterdir())
    notes = folder / f"notes-{seed}.jsonl"
    # from the first change on, before which everything is imported
    until: float | None = None
    while until is None or time.monotonic() < until:
        group, generation = rng.choice(groups), 10**6 * seed + len(changes)
        command: tuple[object, ...]
        if rng.random() < _COMPACT:
            command, generation = ("store", "compact", store), -1
        elif rng.random() < 0.35:
            command, generation = ("store", "delete", store, group), 0
        else:
            facts_of(sorted(group.iterdir()), notes, generation=generation)
            command = ("index", run, store, group, "--metadata", notes, "--batch", _GROUP, "--cpu")
        began = time.monotonic()
        result = called(*command)
        refused = result.refused and any(text in result.err for text in _REFUSALS)
        wrong = "" if result.code == 0 or refused else f"a writer: {result}"
        name = "compaction" if generation == -1 else group.name
        kept = generation if result.code == 0 else None
        until = until or time.monotonic() + seconds
        changes.append(Change(name, began, time.monotonic(), kept, wrong))
    return changes


if __name__ == "__main__":
    run, store, pictures, folder = map(Path, sys.argv[1:5])
    made = _write(run, store, pictures, folder, float(sys.argv[5]), int(sys.argv[6]))
    print(json.dumps([asdict(change) for change in made]))
