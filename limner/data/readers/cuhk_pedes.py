"""CUHK-PEDES and sets of its form: `reid_raw.json` (or `caption_all.json`) beside `imgs/`.

    [{"split": "train", "captions": ["A pedestrian with …", …], "file_path": "CUHK01/0363004.png", "id": 1,
      "processed_tokens": […]}, …]

The first release, `caption_all.json`, has no `split`. Which identities are for testing is known from
`reid_raw.json` alone, so its records get none: training and evaluation then refuse the set and say so.
"""

from pathlib import Path

from limner.data.readers.annotations import Entry, parse_json, read_text, shown
from limner.data.readers.layout import is_there, locate, one_of
from limner.data.readers.splits import split_name
from limner.data.records import Dataset, Record
from limner.errors import DataError

FILES = ("reid_raw.json", "caption_all.json")
"""Names of the annotation file, the one with splits first."""

_READ = {"split", "captions", "file_path", "id", "processed_tokens"}


def read_cuhk_pedes(path: Path, source: str) -> Dataset:
    """Read a folder or an annotation file; pictures lie in `imgs/` beside it, or where else they are found.

    A group is "id-" and the identity. Metadata holds `folder`, the part of the set that a picture comes
    from (a source dataset or a camera), and every key beyond the published ones. Raises `DataError` naming
    the file and the entry.
    """
    file = path
    if path.is_dir():
        own = path / FILES[0]
        file = own if is_there(own) else one_of(path, FILES, "annotation file")
    top = parse_json(read_text(file), file)
    if not isinstance(top, list):
        raise DataError(f"{file}: a list of entries was expected at the top level, got {shown(top)}")
    if not top:
        raise DataError(f"{file}: the list holds no picture")
    entries = [Entry.of(file, f"[{index}]", item) for index, item in enumerate(top)]
    paths = [entry.path("file_path") for entry in entries]
    picture = locate(file, paths)
    records = []
    for entry, relative in zip(entries, paths, strict=True):
        metadata = {key: value for key, value in entry.values.items() if key not in _READ}
        if len(relative.parts) > 1:
            metadata = {"folder": str(relative.parent), **metadata}
        group, sentences = f"id-{entry.name('id')}", entry.texts("captions")
        records.append(Record(picture(relative), sentences, group, split_name(entry), metadata))
    return Dataset(source, "identity", tuple(records))
