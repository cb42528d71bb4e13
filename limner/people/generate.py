"""Write a set of generated pedestrians in the form of CUHK-PEDES.

    DIR/
      reid_raw.json     as CUHK-PEDES publishes it, and the labels of what can be seen; written last, so that its
                        presence means a complete set
      imgs/cam_a/…jpg   the pictures
      attributes.json   who is who and what each view shows; readers ignore it, tests and doctors may not
      terms.json        says that nobody is shown, which CUHK-PEDES's own terms do not say
      people.json       the options of this set, written first

Every picture and sentence depends on the seed and the identity's number alone: the number of worker processes
and interruptions change nothing.
"""

import json
import multiprocessing
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from limner.data.readers.stated_terms import FILE as TERMS_FILE
from limner.data.terms import TERMS
from limner.errors import DataError, SettingsError
from limner.people.camera import take_view
from limner.people.cast import Person, sample_people
from limner.people.languages import ENGLISH, chosen_languages, in_language, split_words
from limner.people.sentences import describe_and_tell

DRAWING: Final = 1
"""Raised whenever the same seed would give other pictures or sentences."""

LIES_SEED: Final = 20_261_124
"""The seed of the people of `limner bench`, whom no other set may show: models are trained on such sets."""

OPTIONS_FILE: Final = "people.json"
"""Its presence means a set of ours, complete or not."""

ATTRIBUTES: Final = "attributes.json"
"""Who is who, and what each view shows."""

_RECORDS, _PARTS = "reid_raw.json", ".parts"


@dataclass(frozen=True)
class PeopleSummary:
    """Content of the folder: counts over all splits, and how many identities had still to be drawn."""

    folder: Path
    identities: int
    images: int
    sentences: int
    drawn: int


@dataclass(frozen=True)
class _Options:
    identities: int
    seed: int
    val: int
    test: int
    views: tuple[int, int]
    size: tuple[int, int]
    drawing: int = DRAWING
    languages: tuple[str, ...] = ENGLISH

    def as_json(self) -> dict[str, Any]:
        """The options as the set keeps them."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        # Left out where it is English alone, as before there were others: such sets stay the same to the byte.
        if self.languages == ENGLISH:
            del values["languages"]
        return values

    def people(self) -> list[Person]:
        train = self.identities - self.val - self.test
        return sample_people({"train": train, "val": self.val, "test": self.test}, self.seed)


def generate_people(
    folder: Path,
    identities: int,
    seed: int = 0,
    *,
    val: int | None = None,
    test: int | None = None,
    views: tuple[int, int] = (3, 5),
    size: tuple[int, int] = (192, 96),
    languages: Sequence[str] = ENGLISH,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> PeopleSummary:
    """Draw `identities` people from `seed` into `folder` and describe them.

    - `val`, `test`: identities of these splits (defaults: a tenth and a fifth); the rest train.
    - `views`: fewest and most pictures of an identity; each has two or three sentences of each language.
    - `languages`: of "en", "de", "zh" and "vi". The sentences of a picture tell the same details in each; the pictures
      are the same whatever the languages. Sets of other languages than English alone say which a sentence is in.
    - `size`: height and width of the pictures in pixels.
    - `workers`: processes; more than one needs the usual `if __name__ == "__main__"` guard in a script.
    - `progress`: called with (identities done, all) as they are finished.

    A complete set of the same options is left as it is, an interrupted one is completed. Raises `DataError` when the
    folder holds anything else or cannot be written, `SettingsError` when an option is out of range.
    """
    val = round(identities / 10) if val is None else val
    test = round(identities / 5) if test is None else test
    options = _Options(identities, seed, val, test, views, size, languages=chosen_languages(languages))
    _check(options, workers)
    folder = Path(folder)
    try:
        return _generate(folder, options, workers, progress)
    except OSError as error:
        raise DataError(
            f"{error.filename or folder}: people cannot be drawn here ({error.strerror or error}); "
            "name a folder that can be written, on a disk with room"
        ) from None


def _generate(
    folder: Path, options: _Options, workers: int, progress: Callable[[int, int], None] | None
) -> PeopleSummary:
    _claim(folder, options)
    if not (folder / TERMS_FILE).is_file():
        _write_json(folder / TERMS_FILE, TERMS["people"].model_dump(mode="json"))
    people = options.people()
    parts = folder / _PARTS
    drawn = 0
    if not _complete(folder):
        todo = [person for person in people if not _part(parts, person).is_file()]
        drawn = len(todo)
        parts.mkdir(exist_ok=True)
        for index, _ in enumerate(_draw_all(todo, folder, options, workers), start=1):
            if progress is not None:
                progress(len(people) - len(todo) + index, len(people))
        _merge(folder, people, options)
    if parts.is_dir():
        shutil.rmtree(parts)
    records = json.loads((folder / _RECORDS).read_text(encoding="utf-8"))
    return PeopleSummary(
        folder, len(people), len(records), sum(len(record["captions"]) for record in records), drawn
    )


def _check(options: _Options, workers: int) -> None:
    fewest, most = options.views
    height, width = options.size
    train = options.identities - options.val - options.test
    complaints = (
        (options.identities < 1, f"identities must be 1 or more, got {options.identities}"),
        (options.seed < 0, f"seed must be 0 or more, got {options.seed}"),
        (
            options.seed == LIES_SEED,
            f"seed {LIES_SEED} is that of `limner bench`, whose people no model may have seen; take another",
        ),
        (
            min(options.val, options.test, train) < 0,
            f"val ({options.val}) and test ({options.test}) must be 0 or more and together at most the "
            f"{options.identities} identities; give fewer of them or more identities",
        ),
        (
            not 1 <= fewest <= most,
            f"views must be (fewest, most) with 1 ≤ fewest ≤ most, got {options.views}",
        ),
        (
            height < 64 or not 0.4 <= width / height <= 1,
            "size must be (height, width) with a height of 64 or more and a width of 0.4 to 1 of it, "
            f"got {options.size}",
        ),
        (workers < 1, f"workers must be 1 or more, got {workers}"),
    )
    for wrong, message in complaints:
        if wrong:
            raise SettingsError(message)


def _claim(folder: Path, options: _Options) -> None:
    """Make the folder ours, or see that it is."""
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file; name a folder for the generated people")
    marker = folder / OPTIONS_FILE
    wanted = options.as_json()
    if marker.is_file():
        try:
            found = json.loads(marker.read_text(encoding="utf-8"))
        except ValueError:
            found = None
        if found != wanted:
            raise DataError(
                f"{folder} holds generated people of other options ({_differences(found, wanted)}); "
                "give the same options, or another folder"
            )
    elif folder.is_dir() and any(folder.iterdir()):
        raise DataError(f"{folder} is not empty and holds no generated people; name a new or empty folder")
    else:
        folder.mkdir(parents=True, exist_ok=True)
        _write_json(marker, wanted)


def _differences(found: object, wanted: dict[str, Any]) -> str:
    if not isinstance(found, dict):
        return f"{OPTIONS_FILE} cannot be read"
    english = {"languages": list(ENGLISH)}
    found, wanted = {**english, **found}, {**english, **wanted}
    names = [name for name in wanted if found.get(name) != wanted[name]]
    return (
        ", ".join(f"{name} {found.get(name)} there, {wanted[name]} asked for" for name in names)
        or "unknown ones"
    )


def _complete(folder: Path) -> bool:
    if not (folder / ATTRIBUTES).is_file() or not (folder / _RECORDS).is_file():
        return False
    try:
        records = json.loads((folder / _RECORDS).read_text(encoding="utf-8"))
    except ValueError:
        return False
    return all((folder / "imgs" / record["file_path"]).is_file() for record in records)


def _draw_all(people: list[Person], folder: Path, options: _Options, workers: int) -> Iterator[None]:
    draw = partial(_draw_one, folder=folder, options=options)
    if workers == 1 or len(people) < 2:
        yield from map(draw, people)
        return
    # Spawned rather than forked: the caller may already run threads (torch does).
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(draw, people, chunksize=4)


def _draw_one(person: Person, folder: Path, options: _Options) -> None:
    """Draw and describe one identity; its part file, written last, says that all its pictures are there."""
    rng = np.random.default_rng([options.seed, person.number, 0, 2])
    count, start = views_of(options.views, rng)
    records, views = [], []
    for index in range(count):
        view = take_view(person, index, options.seed, options.size, start)
        path = f"{view.camera}/{person.number:05d}_{index}.jpg"
        target = folder / "imgs" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(view.jpeg)
        how_many = 3 if rng.random() < 0.2 else 2
        described = describe_and_tell(person, view.visible, bool(view.notes["walking"]), rng, how_many)
        captions = [
            (language, caption)
            for language in options.languages
            for caption in in_language(described, language, [options.seed, person.number, index])
        ]
        record = {
            "split": person.split,
            "captions": [caption for _, caption in captions],
            "file_path": path,
            "processed_tokens": [split_words(caption, language) for language, caption in captions],
            "id": person.number,
            "labels": person.identity.seen(view.visible),
        }
        if options.languages != ENGLISH:
            record["languages"] = [language for language, _ in captions]
        records.append(record)
        views.append({"file_path": path, "visible": sorted(view.visible), **view.notes})
    about = {
        "id": person.number,
        "split": person.split,
        "twin": person.twin,
        "detail": person.detail,
        "attributes": person.identity.as_json(),
        "views": views,
    }
    _write_json(_part(folder / _PARTS, person), {"records": records, "about": about})


def views_of(views: tuple[int, int], rng: np.random.Generator) -> tuple[int, int]:
    """How many views an identity has, and which viewpoint the first is from."""
    fewest, most = views
    return int(rng.integers(fewest, most + 1)), int(rng.integers(5))


def _merge(folder: Path, people: Iterable[Person], options: _Options) -> None:
    loaded = [json.loads(_part(folder / _PARTS, person).read_text(encoding="utf-8")) for person in people]
    about = {"options": options.as_json(), "identities": [part["about"] for part in loaded]}
    _write_json(folder / ATTRIBUTES, about)
    _write_json(folder / _RECORDS, [record for part in loaded for record in part["records"]])


def _part(parts: Path, person: Person) -> Path:
    return parts / f"{person.number:05d}.json"


def _write_json(path: Path, value: object) -> None:
    """Write and then rename, so that a file is there in full or not at all."""
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")
    unfinished.replace(path)
