"""Sets of composed queries: CIRR, FashionIQ and ITCPR as they are published. `limner data triplets` writes CIRR's form.

Sources: Liu et al., "Image Retrieval on Real-life Images with Pre-trained Vision-and-Language Models", ICCV 2021, and
the readme of github.com/Cuberick-Orion/CIRR; Wu et al., "Fashion IQ: A New Dataset Towards Retrieving Images by Natural
Language Feedback", CVPR 2021; Liu et al., "Word for Person", arXiv 2311.16515, and the readme of
github.com/Delong-liu-bupt/Word4Per.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from limner.data.composed import ComposedGallery, ComposedSet, Triplet
from limner.data.readers.parsing import (
    AnnotationEntry,
    is_there,
    locate,
    parse_json,
    shown,
)
from limner.data.readers.stated_terms import terms_of
from limner.errors import DataError
from limner.text_files import read_text

PUBLISHED: Mapping[tuple[str, str, str], tuple[int, int | None]] = {
    ("cirr", "val", ""): (4181, 2297),
    ("fashioniq", "val", "dress"): (2017, None),
    ("fashioniq", "val", "shirt"): (2038, None),
    ("fashioniq", "val", "toptee"): (1961, None),
    ("itcpr", "test", ""): (2225, 20510),
}
"""Queries and gallery pictures of published splits, where a source states them; CIRR's paper has 4,184 by a typing
error (its readme)."""

_IMAGE_FOLDERS = ("img_raw", "images", "imgs", ".")
_ENDINGS = (".png", ".jpg", ".jpeg")


def open_composed(source: str, split: str) -> ComposedSet:
    """Read one split of a set from `FORMAT:PATH`; PATH is its folder.

    Raises `DataError` for an unknown format or split, a file that is missing or damaged, a name that no picture has,
    and pictures that are not there.
    """
    name, colon, rest = source.partition(":")
    if not colon or name not in FORMATS or not rest.strip():
        raise DataError(
            f"composed queries: expected one of {', '.join(f'{known}:DIR' for known in FORMATS)}, got {source[:80]!r}"
        )
    folder = Path(rest).expanduser()
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such folder (from {source!r})")
    found = FORMATS[name](folder, source, split)
    deviations = []
    for gallery in found.galleries:
        expected = PUBLISHED.get((name, split, gallery.name))
        # a set of our own in CIRR's form is no edition of it
        if expected is None or (folder / "triplets.json").is_file():
            continue
        here = (len(gallery.triplets), gallery.size)
        for what, counted, published in zip(("queries", "pictures"), here, expected, strict=True):
            if published is not None and counted != published:
                label = f"{gallery.name}: " if gallery.name else ""
                deviations.append(f"{label}{counted:,} {what}, published {published:,}")
    return ComposedSet(
        found.source, split, found.protocol, found.galleries, terms_of(name, folder), tuple(deviations)
    )


def read_cirr(folder: Path, source: str, split: str) -> ComposedSet:
    """CIRR: `captions/cap.rc2.SPLIT.json` and `image_splits/split.rc2.SPLIT.json`, pictures below `img_raw`.

    The splits are train, val and test1, whose targets are kept back.
    """
    captions, listing = (
        _expected(folder, kind, f"{begin}.rc2", split)
        for kind, begin in (("captions", "cap"), ("image_splits", "split"))
    )
    values = parse_json(read_text(listing), listing)
    if not isinstance(values, dict) or not values:
        raise DataError(f"{listing}: an object of names and paths was expected, got {shown(values)}")
    entry = AnnotationEntry.of(listing, "its names", values)
    paths = [entry.path(name) for name in values]
    images = _located(listing, paths, folder)
    rows = {name: row for row, name in enumerate(values)}
    triplets = []
    for one in _entries(captions):
        row = _row_of(one, rows)
        members: tuple[int, ...] = ()
        if "img_set" in one.values:
            group = AnnotationEntry.of(one.file, f"{one.place}.img_set", one.get("img_set"))
            members = tuple(row(name) for name in group.texts("members"))
        reference = row(one.name("reference"))
        targets: tuple[int, ...] = ()
        # the test split has no target; targets beside the one that was written for count in training alone
        if "target_hard" in one.values:
            hard = one.name("target_hard")
            soft = one.values.get("target_soft") or {}
            others = [name for name, worth in soft.items() if worth == 1 and name != hard]
            targets = (row(hard), *map(row, others))
        members = tuple(member for member in members if member != reference)
        triplets.append(Triplet(one.name("pairid"), reference, one.text("caption"), targets, members))
    gallery = ComposedGallery("", tuple(values), images, tuple(triplets), len(values))
    return ComposedSet(source, split, "cirr", (gallery,))


CATEGORIES = ("dress", "shirt", "toptee")
"""FashionIQ's categories, each with a gallery of its own."""


def read_fashioniq(folder: Path, source: str, split: str) -> ComposedSet:
    """FashionIQ: `captions/cap.CATEGORY.SPLIT.json` and `image_splits/split.CATEGORY.SPLIT.json` of each category.

    The two captions of a query are joined by "and", as published evaluations of zero-shot methods do. The test split's
    captions have no target.
    """
    galleries = []
    for category in CATEGORIES:
        captions, listing = (
            _expected(folder, kind, f"{begin}.{category}", split)
            for kind, begin in (("captions", "cap"), ("image_splits", "split"))
        )
        names = parse_json(read_text(listing), listing)
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise DataError(f"{listing}: a list of names was expected, got {shown(names)}")
        rows = {name: row for row, name in enumerate(names)}
        ending = _ending(folder, names, listing)
        entry = AnnotationEntry(listing, "its names", {name: name + ending for name in names})
        images = _located(listing, [entry.path(name) for name in names], folder)
        triplets = []
        for number, one in enumerate(_entries(captions)):
            row = _row_of(one, rows)
            said = [caption.strip() for caption in one.texts("captions") if caption.strip()]
            if not said:
                one.fail("'captions' must hold a text")
            targets = (row(one.name("target")),) if "target" in one.values else ()
            reference = row(one.name("candidate"))
            triplets.append(Triplet(f"{category}-{number}", reference, " and ".join(said), targets))
        galleries.append(ComposedGallery(category, tuple(names), images, tuple(triplets), len(names)))
    return ComposedSet(source, split, "fashioniq", tuple(galleries))


def read_itcpr(folder: Path, source: str, split: str) -> ComposedSet:
    """ITCPR: `query.json` and `gallery.json`; a query matches the gallery's pictures of its `instance_id`.

    The set is for testing alone. A reference is in the gallery only if gallery.json lists it.
    """
    if split != "test":
        raise DataError(f"{folder}: ITCPR has one split, test, got {split!r}")
    queries, listed = folder / "query.json", folder / "gallery.json"
    for file in (queries, listed):
        if not is_there(file):
            raise DataError(f"{file}: ITCPR's annotation file was expected here")
    pictures = [(one.path("file_path"), one.name("instance_id")) for one in _entries(listed)]
    paths = [path for path, _ in pictures]
    right: dict[str, list[int]] = {}
    for row, (_, instance) in enumerate(pictures):
        right.setdefault(instance, []).append(row)
    rows = {path: row for row, path in enumerate(paths)}
    asked = []
    for number, one in enumerate(_entries(queries)):
        instance = one.name("instance_id")
        if instance == "-1" or instance not in right:
            one.fail(f"no picture of gallery.json has the instance_id {shown(instance)}")
        path = one.path("file_path")
        reference = rows.setdefault(path, len(rows))
        asked.append(Triplet(str(number), reference, one.text("caption"), tuple(right[instance])))
    images = _located(listed, list(rows), folder)
    names = tuple(map(str, rows))
    return ComposedSet(
        source, split, "itcpr", (ComposedGallery("", names, images, tuple(asked), len(paths)),)
    )


Reader = Callable[[Path, str, str], ComposedSet]

FORMATS: dict[str, Reader] = {"cirr": read_cirr, "fashioniq": read_fashioniq, "itcpr": read_itcpr}
"""Format → reader; the names that stand before the colon."""


def _expected(folder: Path, kind: str, begin: str, split: str) -> Path:
    """The file of a split, in its folder or in `cirr/` beside it. Raises `DataError` with the splits that there are."""
    for root in (folder, folder / "cirr"):
        file = root / kind / f"{begin}.{split}.json"
        if is_there(file):
            return file
    found = sorted(
        path.name[len(begin) + 1 : -len(".json")] for path in (folder / kind).glob(f"{begin}.*.json")
    )
    there = f"; splits here: {', '.join(found)}" if found else ""
    raise DataError(f"{folder / kind / f'{begin}.{split}.json'}: there is no such file{there}")


def _entries(file: Path) -> Iterable[AnnotationEntry]:
    values = parse_json(read_text(file), file)
    if not isinstance(values, list) or not values:
        raise DataError(f"{file}: a list of queries or pictures was expected, got {shown(values)}")
    return [AnnotationEntry.of(file, f"[{number}]", value) for number, value in enumerate(values)]


def _row_of(entry: AnnotationEntry, rows: Mapping[str, int]) -> Callable[[Any], int]:
    def found(name: Any) -> int:
        if name not in rows:
            entry.fail(f"{shown(name)} is no picture of the split's image list")
        return rows[name]

    return found


def _ending(folder: Path, names: list[str], listing: Path) -> str:
    for ending in _ENDINGS:
        if any(is_there(folder / inner / f"{names[0]}{ending}") for inner in _IMAGE_FOLDERS):
            return ending
    raise DataError(
        f"{listing}: its first picture {shown(names[0])} was not found in {', '.join(_IMAGE_FOLDERS)}, with "
        f"an ending of {', '.join(_ENDINGS)}"
    )


def _located(file: Path, paths: list[PurePosixPath], folder: Path) -> tuple[Path, ...]:
    place = locate(file, paths, roots=(folder, folder / "cirr", folder.parent), folders=_IMAGE_FOLDERS)
    return tuple(place(path) for path in paths)
