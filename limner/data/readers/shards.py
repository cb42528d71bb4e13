"""Datasets in shards: which files are meant, and how the columns of their samples become records.

Parquet files and tar archives come from many hands, so that columns are recognised by the names that are usual:

- captions: `caption`, `text`, `sentence` or `description`, also in the plural and numbered (`caption1`), each a string
  or a list of strings; where a row has several of these families, the first one counts;
- `identity`, `person_id` or `pid`; `id` where some value repeats, since it numbers the rows elsewhere;
- `split`, else the word that the shard's name or folder begins with (`train-00000-of-00010.parquet`, `val/0.tar`);
- `labels` (names), `language` and `languages` as in a captions file of one's own (`folder`).

All other columns become metadata.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from limner.data.readers.folder import SPLIT_SEED
from limner.data.readers.parsing import AnnotationEntry, is_there, shown, split_name
from limner.data.readers.unpacking import Reading, UnpackedPicture, unpack
from limner.data.records import Dataset, Record
from limner.data.splits import assign_splits
from limner.errors import DataError

_FAMILIES = ("caption", "text", "sentence", "description", "txt")
# `texts` and `captions` are lists mostly, numbered ones are WebPerson's.
_CAPTION = re.compile(rf"({'|'.join(_FAMILIES)})s?[_-]?[0-9]*", re.IGNORECASE)
_IDENTITIES = ("identity", "person_id", "pid", "id")
_SPLIT_WORD = re.compile(r"(train|training|val|valid|validation|dev|test|testing)(?![A-Za-z])", re.IGNORECASE)
_RANGE = re.compile(r"\{([0-9]{1,9})\.\.([0-9]{1,9})\}")
_MOST = 1_000_000


def is_pattern(name: str) -> bool:
    """True for a file name with `*`, `?`, `[` or a range such as `{000..120}`."""
    return bool(_RANGE.search(name)) or any(sign in name for sign in "*?[")


def shard_files(path: Path, endings: Sequence[str], what: str) -> list[Path]:
    """The shards of a folder and of the folders in it, those of a pattern, or one file, in the order of their names.

    A range `{000..120}` names each of its files. Raises `DataError` if none is there, or one of a range is not.
    """
    if is_there(path):
        return [path]
    if path.is_dir():
        # Hidden files are what macOS and downloads leave beside the shards.
        files = [
            file
            for ending in endings
            for file in path.rglob(f"*{ending}")
            if not any(part.startswith(".") for part in file.relative_to(path).parts)
        ]
        if not files:
            raise DataError(f"{path}: {what} was expected here ({', '.join(endings)}), found none")
        return sorted(files)
    span = _RANGE.search(path.name)
    if span is None:
        files = sorted(file for file in path.parent.glob(path.name) if is_there(file))
        if not files:
            raise DataError(f"{path}: {what} was expected, no file has such a name")
        return files
    first, last = int(span[1]), int(span[2])
    if not 0 <= last - first < _MOST:
        raise DataError(f"{path}: a range from a smaller to a larger number was expected, got {span[0]}")
    files = [
        path.with_name(f"{path.name[: span.start()]}{number:0{len(span[1])}}{path.name[span.end() :]}")
        for number in range(first, last + 1)
    ]
    missing = [file for file in files if not is_there(file)]
    if missing:
        raise DataError(f"{missing[0]}: {what} was expected; {len(missing)} of {len(files)} are not there")
    return files


def read_shards(path: Path, files: Sequence[Path], source: str, reading: Reading, kind: str) -> Dataset:
    """Unpack shards where they are not yet, and make a record of each picture.

    A group is an identity where identities are given, else a picture, named by its shard and number. Where no split is
    named, `assign_splits` gives 10% of the groups each to val and test. Raises `DataError` naming the shard and the
    place.
    """
    base = path if path.is_dir() else path.parent
    rows: list[tuple[AnnotationEntry, UnpackedPicture, str]] = []
    for file, pictures in zip(files, unpack(files, reading, kind), strict=True):
        shard = file.relative_to(base).as_posix() if file.is_relative_to(base) else file.name
        rows += [
            (AnnotationEntry(file, picture.place, picture.values), picture, f"{shard}/{picture.image.name}")
            for picture in pictures
        ]
    if not rows:
        raise DataError(f"{path}: no picture was found in {len(files)} shards")
    captions = _caption_families(path, [row.values for row, _, _ in rows])
    identity = _identity_key([row.values for row, _, _ in rows])
    by_name = {file: _split_of_name(file, base) for file in files}
    records = tuple(
        _record(row, picture, group, captions, identity, by_name[row.file]) for row, picture, group in rows
    )
    dataset = Dataset(source, "identity" if identity else "image", records)
    if all(record.split is None for record in records):
        return assign_splits(dataset, SPLIT_SEED)
    return dataset


def _record(
    row: AnnotationEntry,
    picture: UnpackedPicture,
    group: str,
    families: Sequence[Sequence[str]],
    identity: str | None,
    split: str | None,
) -> Record:
    # By row: of tar archives, some samples may have captions in JSON and others a text alone.
    captions = next((family for family in families if any(key in row.values for key in family)), ())
    sentences = tuple(sentence for key in captions for sentence in _sentences(row, key))
    languages = (
        row.languages() if row.values.get("languages") is not None else (row.language(),) * len(sentences)
    )
    # A class label is a number in many sets; only names are labels here.
    labels = row.labels() if _names(row.values.get("labels")) else ()
    # Downloaders write a caption to `.txt` and to JSON.
    used = {*captions, identity, "txt", "split", "language", "languages", *(["labels"] if labels else [])}
    metadata = {
        key: value for key, value in row.values.items() if key not in used and value not in (None, "")
    }
    if identity is not None:
        group = f"id-{row.name(identity)}"
    if picture.name:
        metadata = {"name": picture.name, **metadata}
    return Record(
        *(picture.image, sentences, group, split_name(row) or split, metadata, labels),
        languages=languages if any(languages) else (),
    )


def _sentences(row: AnnotationEntry, key: str) -> Iterator[str]:
    value = row.values.get(key)
    for sentence in value if isinstance(value, list) else [value]:
        if sentence is None:
            continue
        if not isinstance(sentence, str):
            row.fail(f"'{key}' must be a string or a list of strings, got {shown(value)}")
        yield sentence


def _caption_families(path: Path, rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The columns of captions of each family that is there, in the order of the columns."""
    keys = dict.fromkeys(key for row in rows for key in row)
    found = [(key, name[1].lower()) for key in keys if (name := _CAPTION.fullmatch(key))]
    families = [[key for key, of in found if of == family] for family in _FAMILIES]
    if not found:
        raise DataError(
            f"{path}: a column of captions was expected (caption, captions, caption1, text, sentences …), "
            f"got {shown(', '.join(keys) or 'none')}"
        )
    return [family for family in families if family]


def _identity_key(rows: Sequence[Mapping[str, Any]]) -> str | None:
    for key in _IDENTITIES:
        values = [row[key] for row in rows if row.get(key) is not None]
        # "id" mostly numbers the rows: it names persons only where one has several pictures.
        if values and (key != "id" or len({str(value) for value in values}) < len(values)):
            return key
    return None


def _split_of_name(file: Path, base: Path) -> str | None:
    """The split that a shard's name, or else its folder in the dataset, begins with."""
    parts = file.relative_to(base).parts if file.is_relative_to(base) else (file.name,)
    for part in reversed(parts):
        if found := _SPLIT_WORD.match(part):
            return split_name(AnnotationEntry(file, "name", {"split": found[1]}))
    return None


def _names(value: object) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)
    )


def plain_values(values: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Values that JSON can hold; not-a-number becomes null, and what JSON has no form for is left out."""
    return {key: plain for key, value in values if (plain := _plain(value)) is not _UNFIT}


_UNFIT = object()


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, list):
        return [None if (plain := _plain(one)) is _UNFIT else plain for one in value]
    if isinstance(value, dict):
        return plain_values((str(key), one) for key, one in value.items())
    return _UNFIT
