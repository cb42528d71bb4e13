"""MSCOCO in its official form: `annotations/captions_*.json`, and category labels from `instances_*.json` beside them.

    {"images": [{"id": 9, "file_name": "COCO_train2014_000000000009.jpg", …}, …],
     "annotations": [{"image_id": 9, "id": 661611, "caption": "…"}, …]}

The labels of a picture are the names of the categories that have an instance in it.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from limner.data.readers.annotations import Entry, parse_json, read_text
from limner.data.readers.layout import ANNOTATIONS, is_there, locate, root_of
from limner.data.records import Dataset, Record
from limner.errors import DataError

_PARTS = (("train2014", "val2014"), ("train2017", "val2017"))
"""The parts of each year's release, as its files call them: pictures to train on, and others."""

_DRAWN = 5000
"""MNiL's pictures for validation, and as many for testing."""


def find(folder: Path) -> list[Path]:
    """The files of sentences in a folder or its `annotations/`, the training part first; empty when there is none."""
    for place in (folder / ANNOTATIONS, folder):
        for parts in _PARTS:
            files = [place / f"captions_{part}.json" for part in parts]
            if found := [file for file in files if is_there(file)]:
                return found
    return []


def read_coco(files: Sequence[Path], source: str, *, labels: bool = False) -> Dataset:
    """Read files of sentences; pictures of `train*` are for training, those of `val*` for validation.

    There is no test split here: its sentences were never published. `labels` reads them, too. Raises `DataError` naming
    the file and the entry, and for labels without their file.
    """
    records: list[Record] = []
    for file in files:
        split = "train" if _part_name(file).startswith("train") else "val"
        records += _records(file, split, _labels(file) if labels else {})
    return Dataset(source, "image", tuple(records))


def read_coco_labels(path: Path, source: str) -> Dataset:
    """MNiL's set: pictures with at least one label, 5,000 of the `val*` part for validation, 5,000 for testing.

    Source: MNiL (MM 2017), section 4. **Decided**: the paper draws them at random and says neither how nor from where;
    here they are the first 10,000 of the `val*` pictures by a hash of their names, and the others of that part are left
    out. With fewer than 10,000 they are halved. Raises `DataError` as `read_coco`.
    """
    files = find(path) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path}: annotations/captions_train2014.json was expected here")
    dataset = read_coco(files, source, labels=True)
    named = [record for record in dataset.records if record.labels]
    others = sorted((record for record in named if record.split == "val"), key=_draw)
    count = min(_DRAWN, len(others) // 2)
    drawn = [replace(record, split="val") for record in others[:count]]
    drawn += [replace(record, split="test") for record in others[count : 2 * count]]
    train = [record for record in named if record.split == "train"]
    return replace(dataset, records=(*train, *sorted(drawn, key=lambda record: record.image.name)))


def _part_name(file: Path) -> str:
    return file.stem.removeprefix("captions_")


def _records(file: Path, split: str, labels: Mapping[int, tuple[str, ...]]) -> Iterator[Record]:
    top = Entry.of(file, "top level", parse_json(read_text(file), file))
    images = list(_entries(top, "images"))
    if not images:
        raise DataError(f"{file}: 'images' lists no picture")
    sentences: dict[int, list[str]] = {_number(entry, "id"): [] for entry in images}
    for entry in _entries(top, "annotations"):
        number = _number(entry, "image_id")
        if number not in sentences:
            entry.fail(f"'image_id' {number} is not among 'images'")
        sentences[number].append(entry.text("caption"))
    paths = [entry.path("file_name") for entry in images]
    picture = locate(file, paths, root=root_of(file))
    for entry, path in zip(images, paths, strict=True):
        number = _number(entry, "id")
        yield Record(
            picture(path),
            tuple(sentences[number]),
            path.stem,
            split,
            {"cocoid": number},
            labels.get(number, ()),
        )


def _labels(captions: Path) -> Mapping[int, tuple[str, ...]]:
    file = captions.with_name(f"instances_{_part_name(captions)}.json")
    if not is_there(file):
        raise DataError(f"{file}: the labels of the pictures were expected here, beside {captions.name}")
    top = Entry.of(file, "top level", parse_json(read_text(file), file))
    categories = {_number(entry, "id"): entry.text("name") for entry in _entries(top, "categories")}
    found: dict[int, set[str]] = {}
    for entry in _entries(top, "annotations"):
        category = categories.get(_number(entry, "category_id"))
        if category is None:
            entry.fail(f"'category_id' {entry.values['category_id']} is not among 'categories'")
        found.setdefault(_number(entry, "image_id"), set()).add(category)
    return {number: tuple(sorted(names)) for number, names in found.items()}


def _entries(top: Entry, key: str) -> Iterator[Entry]:
    for index, item in enumerate(top.items(key)):
        yield Entry.of(top.file, f"{key}[{index}]", item)


def _number(entry: Entry, key: str) -> int:
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        entry.fail(f"'{key}' must be a whole number, got {value!r}")
    return value


def _draw(record: Record) -> str:
    return hashlib.sha256(record.image.name.encode()).hexdigest()
