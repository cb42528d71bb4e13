"""MSCOCO in its official form: `annotations/captions_*.json`, and category labels from `instances_*.json` beside them.

    {"images": [{"id": 9, "file_name": "COCO_train2014_000000000009.jpg", …}, …],
     "annotations": [{"image_id": 9, "id": 661611, "caption": "…"}, …]}

The labels of a picture are the names of the categories that have an instance in it.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath

from limner.data.readers.parsing import (
    ANNOTATIONS,
    PICTURE_FOLDERS,
    TOP,
    AnnotationEntry,
    PicturesMissingError,
    is_there,
    locate,
    parse_json,
    roots_of,
    shown,
)
from limner.data.records import Dataset, Record
from limner.errors import DataError
from limner.text_files import read_text

# Never both years together: 2017's parts hold the pictures of 2014's, divided anew.
_PARTS = (("train2014", "val2014"), ("train2017", "val2017"))
"""The parts of each year's release, as its files call them, the year of the papers first."""

_DRAWN = 5000
"""MNiL's pictures for validation, and as many for testing."""


def find(folder: Path) -> list[Path]:
    """The files of sentences in a folder or its `annotations/`, all years; empty if it has none."""
    for place in (folder / ANNOTATIONS, folder):
        names = [f"captions_{part}.json" for parts in _PARTS for part in parts]
        if found := [place / name for name in names if is_there(place / name)]:
            return found
    return []


def read_coco(files: Sequence[Path], source: str, *, labels: bool = False) -> Dataset:
    """Read files of sentences; pictures of `train*` are for training, those of `val*` for validation.

    There is no test split here: its sentences were never published. Of several files those of the first year are read
    that has pictures, without a part that has none. `labels` reads them, too. Raises `DataError` naming the file and
    the entry, for labels without their file, and where no picture is found.
    """
    failure: PicturesMissingError | None = None
    for parts in _PARTS:
        records: list[Record] = []
        for file in files:
            if _part_name(file) not in parts:
                continue
            try:
                records += _records(file, labels)
            # Many have one part's pictures alone. The first failure is kept, as it names the papers' year.
            except PicturesMissingError as missing:
                failure = failure or missing
        if records:
            return Dataset(source, "image", tuple(records))
    expected = ", ".join(f"captions_{part}.json" for parts in _PARTS for part in parts)
    raise failure or DataError(f"{files[0]}: one of {expected} was expected")


def read_coco_labels(path: Path, source: str) -> Dataset:
    """MNiL's set: pictures with at least one label, 5,000 of the `val*` part for validation, 5,000 for testing.

    Source: MNiL (MM 2017), section 4. **Decided**: the paper draws them at random, ten times, and says neither how nor
    from where; here they are the first 10,000 of the `val*` pictures by a hash of their names, once, and the others of
    that part are left out. With fewer than 10,000 they are halved. Pictures keep all their sentences, of which the
    paper takes one; and the labels are those of the file (80 categories in what is published, 81 in the paper).
    Raises `DataError` as `read_coco`.
    """
    files = find(path) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path}: annotations/captions_train2014.json was expected here")
    dataset = read_coco(files, source, labels=True)
    named = [record for record in dataset.records if record.labels]
    # A hash needs no seed and no random generator, so every machine and every version draws the same.
    others = sorted((record for record in named if record.split == "val"), key=_draw)
    count = min(_DRAWN, len(others) // 2)
    drawn = [replace(record, split="val") for record in others[:count]]
    drawn += [replace(record, split="test") for record in others[count : 2 * count]]
    train = [record for record in named if record.split == "train"]
    return replace(dataset, records=(*train, *sorted(drawn, key=lambda record: record.image.name)))


def _part_name(file: Path) -> str:
    return file.stem.removeprefix("captions_")


def _records(file: Path, labels: bool) -> list[Record]:
    part = _part_name(file)
    top = AnnotationEntry.of(file, TOP, parse_json(read_text(file), file))
    images = list(_entries(top, "images"))
    if not images:
        raise DataError(f"{file}: 'images' lists no picture")
    paths = [entry.path("file_name") for entry in images]
    picture = locate(file, paths, roots=roots_of(file), folders=(part, f"images/{part}", *PICTURE_FOLDERS))
    sentences: dict[int, list[str]] = {}
    # A file may list a picture twice, which is for the doctor to say. Two pictures of one id are refused,
    # since their sentences could not be told apart.
    path_of: dict[int, PurePath] = {}
    for entry, path in zip(images, paths, strict=True):
        number = _number(entry, "id")
        if path_of.setdefault(number, path) != path:
            entry.fail(f"'id' {number} is that of {shown(str(path_of[number]))}, too")
        # Also for pictures that no annotation names: they stay in the set, without a sentence.
        sentences[number] = []
    for entry in _entries(top, "annotations"):
        number = _number(entry, "image_id")
        if number not in sentences:
            entry.fail(f"'image_id' {number} is not among 'images'")
        sentences[number].append(entry.text("caption"))
    named = _labels(file) if labels else {}
    # Everything of val* is for validation: the test part's sentences were never published.
    split = "train" if part.startswith("train") else "val"
    return [
        Record(
            picture(path),
            tuple(sentences[_number(entry, "id")]),
            path.stem,
            split,
            {"cocoid": _number(entry, "id")},
            named.get(_number(entry, "id"), ()),
        )
        for entry, path in zip(images, paths, strict=True)
    ]


def _labels(captions: Path) -> Mapping[int, tuple[str, ...]]:
    # The instances of the same part; those of another would name other pictures' ids.
    file = captions.with_name(f"instances_{_part_name(captions)}.json")
    if not is_there(file):
        raise DataError(f"{file}: the labels of the pictures were expected here, beside {captions.name}")
    top = AnnotationEntry.of(file, TOP, parse_json(read_text(file), file))
    categories = {_number(entry, "id"): entry.text("name") for entry in _entries(top, "categories")}
    found: dict[int, set[str]] = {}
    for entry in _entries(top, "annotations"):
        category = categories.get(_number(entry, "category_id"))
        if category is None:
            entry.fail(f"'category_id' {entry.values['category_id']} is not among 'categories'")
        # A set: a picture with six chairs has the label once.
        found.setdefault(_number(entry, "image_id"), set()).add(category)
    return {number: tuple(sorted(names)) for number, names in found.items()}


def _entries(top: AnnotationEntry, key: str) -> Iterator[AnnotationEntry]:
    for index, item in enumerate(top.items(key)):
        yield AnnotationEntry.of(top.file, f"{key}[{index}]", item)


def _number(entry: AnnotationEntry, key: str) -> int:
    value = entry.get(key)
    # In Python True is an int.
    if isinstance(value, bool) or not isinstance(value, int):
        entry.fail(f"'{key}' must be a whole number, got {value!r}")
    return value


def _draw(record: Record) -> str:
    # Of the name without its folder, which differs between copies of the set.
    return hashlib.sha256(record.image.name.encode()).hexdigest()
