"""Write triplets of generated people in the form of CIRR: a reference, a sentence about one change, and the target.

    DIR/
      captions/cap.rc2.train.json      the triplets of a split, as CIRR publishes them, and what changes
      image_splits/split.rc2.train.json  the gallery: name → path below img_raw
      img_raw/train/train-00012-0.jpg  the pictures
      twins.json                       who is who; readers ignore it
      terms.json                       says that nobody is shown
      triplets.json                    the options and the content's digest; written last: its presence means a
                                       complete set

The people are those of a set of `limner data people`, in their splits: whoever trained a model is in train here, too.
Of each person there are a reference, a second picture without a change, and near-twins that differ from the person in
one attribute each; a triplet's `img_set` holds them all. The other people of the split are the rest of the gallery.
"""

import dataclasses
import hashlib
import json
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from limner.data.readers.stated_terms import FILE as TERMS_FILE
from limner.data.terms import TERMS
from limner.durable import opened, sealed
from limner.errors import DataError, SettingsError
from limner.people.attributes import Identity
from limner.people.body import VIEWPOINTS
from limner.people.camera import View, draw_view
from limner.people.cast import Person, sample_people
from limner.people.generate import DRAWING, OPTIONS_FILE
from limner.people.triplets.changes import Change, asked_for, changes_of

VERSION: Final = 1
"""Raised whenever the same people and seed would give other triplets."""

FILE: Final = "triplets.json"
"""Its presence means a complete set."""

TWINS_FILE: Final = "twins.json"

_TRIES: Final = 4
"""Views in which a changed detail is looked for, before the change is left out."""


@dataclass(frozen=True)
class TripletsSummary:
    """Counts of a set over its splits."""

    folder: Path
    people: int
    images: int
    triplets: int
    digest: str


@dataclass(frozen=True)
class _Drawn:
    """One picture: its name, its bytes, who is in it, and what changes in it (None for no change)."""

    name: str
    jpeg: bytes
    who: Identity
    change: Change | None
    text: str


@dataclass(frozen=True)
class _Options:
    people: dict[str, Any]
    seed: int
    twins: int
    version: int = VERSION


def draw_triplets(
    people: Path,
    folder: Path,
    *,
    seed: int = 0,
    twins: int = 4,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> TripletsSummary:
    """Draw triplets of the people of a set into a new folder.

    - `people`: folder of `limner data people`; only its options are read.
    - `twins`: near-twins of each person at most, and so triplets; a change that cannot be seen is left out.
    - `progress`: called with (people done, all).

    Deterministic in the people's options, `seed` and `twins`. A complete set of the same options is left as it is.
    Raises `DataError` for a folder that holds anything else and for people that were drawn by another version,
    `SettingsError` for options out of range.
    """
    if seed < 0 or not 1 <= twins <= 8 or workers < 1:
        raise SettingsError(
            f"triplets: expected seed ≥ 0, 1 ≤ twins ≤ 8 and workers ≥ 1, got {seed}, {twins} and {workers}"
        )
    options = _Options(_people_options(people), seed, twins)
    if (folder / FILE).is_file():
        return _complete(folder, options)
    if folder.exists() and (not folder.is_dir() or _is_foreign(folder)):
        raise DataError(
            f"{folder}: is not empty and holds no unfinished triplets; name a new or empty folder"
        )
    try:
        return _write(folder, options, workers, progress)
    except OSError as error:
        raise DataError(
            f"{error.filename or folder}: triplets cannot be drawn here ({error.strerror or error}); "
            "name a folder that can be written, on a disk with room"
        ) from None


def _people_options(people: Path) -> dict[str, Any]:
    try:
        options = json.loads((people / OPTIONS_FILE).read_text(encoding="utf-8"))
        values = {name: options[name] for name in ("identities", "seed", "val", "test", "size", "drawing")}
    except (OSError, ValueError, KeyError, TypeError):
        raise DataError(f"{people}: holds no generated people; draw some with `limner data people`") from None
    if values["drawing"] != DRAWING:
        raise DataError(f"{people}: its people were drawn by another version of limner; draw them again")
    return values


def _is_foreign(folder: Path) -> bool:
    ours = {"captions", "image_splits", "img_raw", TWINS_FILE, TERMS_FILE}
    return any(path.name not in ours for path in folder.iterdir())


def _complete(folder: Path, options: _Options) -> TripletsSummary:
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
        same = found["options"] == json.loads(json.dumps(dataclasses.asdict(options)))
        counts = {name: opened(found)[name] for name in ("people", "images", "triplets")}
        digest = str(found["content"])
    except (OSError, ValueError, KeyError, TypeError):
        raise DataError(f"{folder / FILE}: damaged; remove the folder and draw the triplets again") from None
    if not same:
        raise DataError(f"{folder}: holds triplets of other options; give the same ones, or another folder")
    return TripletsSummary(folder, **counts, digest=digest)


def planned_changes(people: list[Person], seed: int) -> dict[int, list[Change]]:
    """The changes of each person, by number, in the order in which they are tried.

    No two of them, and no person of the set, are the same identity: a target is right for one query alone.
    """
    taken = {person.identity for person in people}
    planned = {}
    for person in people:
        rng = np.random.default_rng([seed, person.number, 11])
        fresh = [change for change in changes_of(person.identity, rng) if change.who not in taken]
        taken |= {change.who for change in fresh}
        planned[person.number] = fresh
    return planned


def _write(
    folder: Path, options: _Options, workers: int, progress: Callable[[int, int], None] | None
) -> TripletsSummary:
    counts = {split: int(options.people[split]) for split in ("val", "test")}
    train = int(options.people["identities"]) - sum(counts.values())
    people = sample_people({"train": train, **counts}, int(options.people["seed"]))
    planned = planned_changes(people, options.seed)
    digest = hashlib.sha256()
    captions: dict[str, list[dict[str, Any]]] = {}
    galleries: dict[str, dict[str, str]] = {}
    about: dict[str, dict[str, Any]] = {}
    work = [(person, planned[person.number]) for person in people]
    for done, (person, drawn) in enumerate(
        zip(people, _draw_all(work, options, workers), strict=True), start=1
    ):
        for one in drawn:
            path = folder / "img_raw" / person.split / f"{one.name}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(one.jpeg)
            digest.update(one.jpeg)
            galleries.setdefault(person.split, {})[one.name] = f"./{person.split}/{one.name}.jpg"
            about[one.name] = {
                "person": person.number,
                "detail": None if one.change is None else one.change.detail,
                "attributes": one.who.as_json(),
            }
        listed = captions.setdefault(person.split, [])
        listed += _entries(drawn, sum(map(len, captions.values())))
        if progress is not None:
            progress(done, len(people))
    for kind, files in (("captions", captions), ("image_splits", galleries)):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for split, content in files.items():
            name = f"{'cap' if kind == 'captions' else 'split'}.rc2.{split}.json"
            _write_json(folder / kind / name, content)
            digest.update(json.dumps(content).encode())
    _write_json(folder / TWINS_FILE, about)
    _write_json(folder / TERMS_FILE, TERMS["people"].model_dump(mode="json"))
    summary = TripletsSummary(
        folder, len(people), len(about), sum(map(len, captions.values())), digest.hexdigest()
    )
    values = {name: getattr(summary, name) for name in ("people", "images", "triplets")}
    text = sealed({"options": dataclasses.asdict(options), **values, "content": summary.digest})
    (folder / FILE).write_text(text, encoding="utf-8")
    return summary


def _entries(drawn: list[_Drawn], first: int) -> list[dict[str, Any]]:
    """The triplets of one person as CIRR writes them; the first picture is the reference."""
    reference = drawn[0].name
    members = [one.name for one in drawn]
    changed = [one for one in drawn if one.change is not None]
    return [
        {
            "pairid": first + number,
            "reference": reference,
            "target_hard": one.name,
            "target_soft": {one.name: 1.0},
            "caption": one.text,
            "img_set": {"id": first, "members": members},
            "detail": one.change.detail if one.change is not None else None,
        }
        for number, one in enumerate(changed)
    ]


def _draw_all(
    work: list[tuple[Person, list[Change]]], options: _Options, workers: int
) -> Iterator[list[_Drawn]]:
    draw = partial(_draw_one, options=options)
    # Spawned rather than forked: the caller may already run threads (torch does).
    pool = (
        ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) if workers > 1 else None
    )
    with pool or nullcontext():
        yield from map(draw, work) if pool is None else pool.map(draw, work, chunksize=4)


def _draw_one(work: tuple[Person, list[Change]], options: _Options) -> list[_Drawn]:
    """The pictures of one person: the reference, the second picture, then the near-twins."""
    person, changes = work
    rng = np.random.default_rng([options.seed, person.number, 12])
    viewpoints = list(VIEWPOINTS)
    start = int(rng.integers(len(viewpoints)))

    def view(of: Person, number: int) -> View:
        viewpoint = viewpoints[(start + number) % len(viewpoints)]
        return draw_view(of, viewpoint, _size(options), rng, obstacle=None).view

    def named(number: int) -> str:
        return f"{person.split}-{person.number:05d}-{number}"

    reference, again = view(person, 0), view(person, int(rng.integers(1, len(viewpoints))))
    drawn = [
        _Drawn(named(number), one.jpeg, person.identity, None, "")
        for number, one in enumerate((reference, again))
    ]
    for change in changes:
        if len(drawn) == options.twins + 2:
            break
        if change.needs_before and change.detail not in reference.visible:
            continue
        twin = dataclasses.replace(person, identity=change.who)
        seen = (view(twin, int(rng.integers(len(viewpoints)))) for _ in range(_TRIES))
        found = next((one for one in seen if not change.needs_after or change.detail in one.visible), None)
        if found is not None:
            drawn.append(_Drawn(named(len(drawn)), found.jpeg, change.who, change, asked_for(change, rng)))
    return drawn


def _size(options: _Options) -> tuple[int, int]:
    height, width = options.people["size"]
    return int(height), int(width)


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")
