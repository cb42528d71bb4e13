"""CUHK-PEDES, ICFG-PEDES and RSTPReid: one list of pictures with an identity each, beside `imgs/`.

    [{"split": "train", "captions": ["A pedestrian with …", …], "file_path": "CUHK01/0363004.png", "id": 1,
      "processed_tokens": […]}, …]

Ours of generated people have `labels` too, what can be seen on a picture, and `languages`, one for each of `captions`,
if any is not English. RSTPReid has `img_path` in place of
`file_path`. The first release of CUHK-PEDES, `caption_all.json`, has no `split`. Which identities are for testing is
known from `reid_raw.json` alone, so its records get none: training and evaluation then refuse the set and say so.
ICFG-PEDES is published without a validation split, see `hold_out`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from limner.data.readers.parsing import (
    ANNOTATIONS,
    AnnotationEntry,
    is_there,
    locate,
    parse_json,
    read_text,
    roots_of,
    shown,
    split_name,
)
from limner.data.records import Dataset, Record
from limner.data.splits import hold_out
from limner.errors import DataError


@dataclass(frozen=True)
class Form:
    """How one of these sets is published: names of its file, the one with splits first, and of the picture's key."""

    files: tuple[str, ...]
    picture: str = "file_path"


FORMS: Mapping[str, Form] = {
    # In this order: `caption_all.json` has no splits, so it is read only where the other is missing.
    "cuhk-pedes": Form(("reid_raw.json", "caption_all.json")),
    # Copies of the set go round with a hyphen and with an underscore.
    "icfg-pedes": Form(("ICFG-PEDES.json", "ICFG_PEDES.json")),
    "rstpreid": Form(("data_captions.json",), "img_path"),
}

_READ = {"split", "captions", "id", "processed_tokens", "labels", "languages"}


def read_pedestrians(path: Path, source: str, *, format_name: str) -> Dataset:
    """Read a folder or an annotation file; pictures lie in `imgs/` beside it, or where else they are found.

    The file may lie in `annotations/`. A group is "id-" and the identity. Metadata holds `folder`, the part of the set
    that a picture comes from (a source dataset or a camera), and every key beyond the published ones. Raises
    `DataError` naming the file and the entry.
    """
    form = FORMS[format_name]
    file = _find(path, form) if path.is_dir() else path
    top = parse_json(read_text(file), file)
    # Elsewhere the top level is an object, so that another set's file is recognised here.
    if not isinstance(top, list):
        raise DataError(f"{file}: a list of entries was expected at the top level, got {shown(top)}")
    if not top:
        raise DataError(f"{file}: the list holds no picture")
    entries = [AnnotationEntry.of(file, f"[{index}]", item) for index, item in enumerate(top)]
    paths = [entry.path(form.picture) for entry in entries]
    picture = locate(file, paths, roots=roots_of(file))
    records = []
    for entry, relative in zip(entries, paths, strict=True):
        # Keys beyond the published ones are somebody's own and must not be lost.
        metadata = {key: value for key, value in entry.values.items() if key not in {*_READ, form.picture}}
        if len(relative.parts) > 1:
            # In front, so that a key of the file itself wins.
            metadata = {"folder": str(relative.parent), **metadata}
        group, sentences = f"id-{entry.name('id')}", entry.texts("captions")
        records.append(
            Record(
                *(picture(relative), sentences, group, split_name(entry), metadata, entry.labels()),
                languages=_languages(entry, len(sentences)),
            )
        )
    dataset = Dataset(source, "identity", tuple(records))
    # Only here: the others publish a validation split, and a missing one is a fault to report.
    return hold_out(dataset) if format_name == "icfg-pedes" else dataset


def _languages(entry: AnnotationEntry, sentences: int) -> tuple[str | None, ...]:
    if entry.values.get("languages") is None:
        return ()
    found = entry.languages()
    if len(found) != sentences:
        entry.fail(f"'languages' must have one for each caption, got {len(found)} for {sentences}")
    return found if any(found) else ()


def _find(folder: Path, form: Form) -> Path:
    for name in form.files:
        # Both places of one name before the next name: the form with splits wins wherever it lies.
        for file in (folder / name, folder / ANNOTATIONS / name):
            if is_there(file):
                return file
    raise DataError(
        f"{folder}: {form.files[0]} was expected here or in {ANNOTATIONS}/, found none of {', '.join(form.files)}"
    )
