"""Flickr8k, Flickr30k and MSCOCO in the form of Karpathy's split files, `dataset_*.json`.

    {"dataset": "coco", "images": [{"filename": …, "filepath": "val2014", "split": "restval", "imgid": 0,
     "cocoid": 391895, "sentences": [{"raw": …, "tokens": […]}, …]}, …]}

`filepath` and the ids may be missing; of a sentence only `raw` is read, since each model splits words its
own way.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from limner.data.readers.parsing import (
    TOP,
    AnnotationEntry,
    is_there,
    locate,
    parse_json,
    shown,
    split_name,
)
from limner.data.records import Dataset, Record
from limner.errors import DataError
from limner.text_files import read_text

OWN_FILE = {
    "flickr8k": "dataset_flickr8k.json",
    "flickr30k": "dataset_flickr30k.json",
    "mscoco": "dataset_coco.json",
}
"""Karpathy's name of each format's file; his archive holds all three together."""


def find(folder: Path, format_name: str) -> Path | None:
    """The format's `dataset_*.json` in a folder, its own name first, else the only one; None without any.

    Raises `DataError` when several could be meant, or when the only one is another format's.
    """
    expected = folder / OWN_FILE[format_name]
    if is_there(expected):
        return expected
    # A copy may have been renamed; one file alone can only be meant.
    others = sorted(folder.glob("dataset_*.json"))
    foreign = {file: name for name, file in OWN_FILE.items()}
    if len(others) > 1:
        found = ", ".join(file.name for file in others)
        raise DataError(
            f"{folder}: {expected.name} was expected, found {found}; give the path of the one to use"
        )
    if others and others[0].name in foreign:
        right = foreign[others[0].name]
        raise DataError(
            f"{folder}: {expected.name} was expected, found {others[0].name}; write {right}:{folder}"
        )
    return others[0] if others else None


def read_karpathy(file: Path, source: str) -> Dataset:
    """Read one `dataset_*.json`; the pictures are found by trying the first names beside it.

    Groups are named by `image_groups`. Raises `DataError` naming the file and the entry.
    """
    top = AnnotationEntry.of(file, TOP, parse_json(read_text(file), file))
    entries = [
        AnnotationEntry.of(file, f"images[{index}]", item) for index, item in enumerate(top.items("images"))
    ]
    if not entries:
        raise DataError(f"{file}: 'images' lists no picture")
    paths = [_path(entry) for entry in entries]
    picture = locate(file, paths)
    records = tuple(
        Record(
            image=picture(path),
            sentences=_sentences(entry),
            group=group,
            split=_split(entry),
            metadata=_ids(entry),
        )
        for entry, path, group in zip(entries, paths, image_groups(paths), strict=True)
    )
    return Dataset(source, "image", records)


def image_groups(paths: Sequence[PurePosixPath]) -> list[str]:
    """Name each picture's group: the file name without its ending, or the whole path where two pictures
    share it.

    The name is the same in every edition of a dataset, while Karpathy's `imgid` counts the lines of one
    edition.
    """
    # A set: a picture that is listed twice does not share its name with another.
    sharing = Counter(path.stem for path in set(paths))
    return [path.stem if sharing[path.stem] == 1 else str(path) for path in paths]


def _ids(entry: AnnotationEntry) -> dict[str, int | str]:
    for key in ("imgid", "cocoid"):
        if key in entry.values:
            # Called for its check; the value keeps its own type.
            entry.name(key)
    return {key: entry.values[key] for key in ("imgid", "cocoid") if key in entry.values}


def _path(entry: AnnotationEntry) -> PurePosixPath:
    # MSCOCO's pictures lie in folders by part; Flickr's files have no `filepath`, or an empty one.
    return entry.path("filepath", "filename") if entry.values.get("filepath") else entry.path("filename")


def _split(entry: AnnotationEntry) -> str:
    # For the message of a missing key; `split_name` would take it for a picture without a split.
    entry.get("split")
    split = split_name(entry)
    if split is None:
        entry.fail(f"'split' must name a split, got {shown(entry.values['split'])}")
    return split


def _sentences(entry: AnnotationEntry) -> tuple[str, ...]:
    sentences = []
    # No AnnotationEntry each: MSCOCO has 616,767 sentences.
    for index, item in enumerate(entry.items("sentences")):
        raw = item.get("raw") if isinstance(item, dict) else None
        if not isinstance(raw, str):
            entry.fail(f"sentences[{index}] must be an object with a string 'raw', got {shown(item)}")
        sentences.append(raw)
    return tuple(sentences)
