"""Any pictures with a `captions.csv` or `captions.jsonl`.

    file,caption,language,identity,split,labels,camera
    a/1.jpg,"a man, in a red coat",en,7,train,coat;man,north

    {"file": "a/1.jpg", "captions": ["a man, in a red coat"], "identity": 7, "split": "train", "labels": ["coat"]}

`file` is relative to the captions file, or absolute and inside its folder. The cells of CSV may also be parted by
semicolons or tabs; `filepath` and `title` are open_clip's names of the first two. `caption` is one sentence; several
rows of a file give several, and JSON lines may hold `captions`, a list. `identity`, `split` and `labels` (with
semicolons between them, in JSON a list) are optional; every other column becomes metadata. `language` is that of the
row's sentences, a tag such as "de"; JSON lines may hold `languages`, one for each of `captions`.
"""

import difflib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from limner.data.readers.parsing import ANOTHER_FORM, AnnotationEntry, one_of, parse_json, shown, split_name
from limner.data.records import Dataset, Record
from limner.data.splits import assign_splits
from limner.errors import DataError
from limner.names import OnDisk
from limner.text_files import read_text, table_rows

FILES = ("captions.csv", "captions.jsonl")
"""Names that are looked for when a folder is given."""

SPLIT_SEED = 0
"""Seed of the splits that a folder without any is given."""

_KNOWN = ("file", "caption", "captions", "language", "languages", "identity", "split", "labels")

_OPEN_CLIP = {"filepath": "file", "title": "caption"}
"""The columns that open_clip's training reads by default, by limner's names."""


def read_folder(path: Path, source: str) -> Dataset:
    """Read a folder's captions file, or the captions file given.

    With identities, a group is an identity, and every row must name one; else each picture is its own
    group, named by its path. Rows of one file must agree in identity, split, labels and metadata. When no row names
    a split, `assign_splits` gives 10% of the groups each to val and test. Raises `DataError` naming file
    and line.
    """
    file = one_of(path, FILES, "captions file") if path.is_dir() else path
    if file.suffix.lower() not in (".csv", ".jsonl"):
        raise DataError(
            f"{file}: a captions file ending in .csv (parted by commas, semicolons or tabs) or .jsonl was expected; "
            f"{ANOTHER_FORM}"
        )
    rows = list(_csv_rows(file) if file.suffix.lower() == ".csv" else _json_rows(file))
    if not rows:
        raise DataError(f"{file}: no row with a picture was found")
    # By the cells, not the header: a table's column may be there and empty.
    with_identity = any(_given(row, "identity") for row in rows)
    pictures: dict[str, list[AnnotationEntry]] = {}
    disk = OnDisk()
    for row in rows:
        if with_identity and not _given(row, "identity"):
            row.fail("'identity' is missing, other rows have one; name it in every row or in none")
        # `path` makes one name of "a//1.jpg" and "./a/1.jpg", the disk one of both ways to write an accent.
        name = disk.find(file.parent / row.path("file")).relative_to(file.parent).as_posix()
        pictures.setdefault(name, []).append(row)
    records = tuple(_record(file.parent / name, name, group) for name, group in pictures.items())
    dataset = Dataset(source, "identity" if with_identity else "image", records)
    # One row with a split is enough to leave the others out on purpose.
    if all(record.split is None for record in records):
        return assign_splits(dataset, SPLIT_SEED)
    return dataset


def _record(image: Path, name: str, rows: list[AnnotationEntry]) -> Record:
    first = rows[0]
    identity = first.name("identity") if _given(first, "identity") else None
    labels = first.labels()
    split, metadata, sentences = split_name(first), _metadata(first), list(_sentences(first))
    languages = list(_languages(first, len(sentences)))
    for row in rows[1:]:
        where = f"{shown(name)} at {first.place}"
        if identity is not None and row.name("identity") != identity:
            row.fail(f"identity {shown(row.name('identity'))} contradicts {shown(identity)} of {where}")
        if split_name(row) != split:
            row.fail(f"split {split_name(row) or 'none'} contradicts {split or 'none'} of {where}")
        if row.labels() != labels:
            row.fail(
                f"labels {shown(';'.join(row.labels()))} contradict {shown(';'.join(labels))} of {where}"
            )
        other = _metadata(row)
        if other != metadata:
            # The first difference: a message with all of them would not fit a line.
            key = next(key for key in {**metadata, **other} if metadata.get(key) != other.get(key))
            row.fail(f"{shown(key)} differs from that of {where}; a picture has one value a column")
        more = _sentences(row)
        sentences += more
        languages += _languages(row, len(more))
    # A CSV file has no other way to name a picture that nobody described.
    if sentences == [""] and "captions" not in first.values:
        sentences, languages = [], []
    return Record(
        *(image, tuple(sentences), identity or name, split, metadata, labels),
        languages=tuple(languages) if any(languages) else (),
    )


def _sentences(row: AnnotationEntry) -> tuple[str, ...]:
    if "captions" in row.values:
        if "caption" in row.values:
            row.fail("'caption' or 'captions' was expected, got both")
        return row.texts("captions")
    return (row.text("caption"),) if row.values.get("caption") is not None else ()


def _languages(row: AnnotationEntry, sentences: int) -> tuple[str | None, ...]:
    if "languages" not in row.values:
        return (row.language(),) * sentences
    if "language" in row.values:
        row.fail("'language' or 'languages' was expected, got both")
    found = row.languages()
    if len(found) != sentences:
        row.fail(f"'languages' must have one for each caption, got {len(found)} for {sentences}")
    return found


def _metadata(row: AnnotationEntry) -> dict[str, Any]:
    return {key: value for key, value in row.values.items() if key not in _KNOWN and value not in (None, "")}


def _given(row: AnnotationEntry, key: str) -> bool:
    value = row.values.get(key)
    return not (value is None or (isinstance(value, str) and not value.strip()))


def _json_rows(file: Path) -> Iterator[AnnotationEntry]:
    # Not splitlines(), which also breaks at characters that may stand inside a JSON string.
    for number, line in enumerate(read_text(file).split("\n"), start=1):
        if line.strip():
            place = f"line {number}"
            yield AnnotationEntry.of(file, place, parse_json(line, file, place))


def _csv_rows(file: Path) -> Iterator[AnnotationEntry]:
    header: list[str] = []
    for line, cells in table_rows(file, (*_KNOWN, *_OPEN_CLIP)):
        entry = AnnotationEntry(file, f"line {line}", {})
        if not header:
            header = _header(entry, cells)
            continue
        if len(cells) != len(header):
            entry.fail(
                f"{len(header)} cells were expected as in the header, got {len(cells)}; "
                "put quotes around a caption that holds what parts the cells, such as a comma"
            )
        # An empty cell is kept here; `_given` and `_metadata` take it for none.
        values = {name: cell for name, cell in zip(header, cells, strict=True) if name}
        yield AnnotationEntry(file, entry.place, values)


def _header(entry: AnnotationEntry, cells: list[str]) -> list[str]:
    # A column without a name is the row number that pandas writes; it is left out.
    names = [cell.strip() for cell in cells]
    # Only our own names ignore case: a column of the user's may be "ID" beside "id".
    names = [name.lower() if name.lower() in _KNOWN else name for name in names]
    if not {"file", "caption"} & set(names):
        names = [_OPEN_CLIP.get(name, name) for name in names]
    # counted in one walk: a count for each name would be quadratic
    for name, count in Counter(names).items():
        if name and count > 1:
            entry.fail(f"the column {shown(name)} stands twice in the header")
    if "captions" in names:
        entry.fail("the column 'caption' was expected, with one sentence a row, got 'captions'")
    if "languages" in names:
        entry.fail("the column 'language' was expected, with that of the row's sentence, got 'languages'")
    for name in ("file", "caption"):
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = (
                f"is it {shown(near[0])}?"
                if near
                else "name the columns in the first line, e.g. file,caption"
            )
            entry.fail(
                f"the column '{name}' was expected in the header, got {shown(', '.join(names))}; {hint}"
            )
    return names
