"""Flickr8k and Flickr30k as their authors publish them: one file of sentences, and a list of names a split.

    17273391_55cfc7d3d4.jpg#0	A goat looks over a wall .

Flickr8k has `Flickr8k.token.txt` and `Flickr_8k.{train,dev,test}Images.txt`. Some ninety of its pictures are in none of
the lists and get no split. One of their names, ending in ".jpg.1", is a slip of the original: there is no such picture.

Flickr30k has `results_20130124.token`; the lists `{train,val,test}.txt`, names without their ending, are those of
Flickr30k Entities: the split of 29,783 / 1,000 / 1,000 pictures, where Karpathy's file has 29,000 / 1,014 / 1,000.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from limner.data.readers.karpathy import image_groups
from limner.data.readers.parsing import AnnotationEntry, is_there, locate, roots_of, shown
from limner.data.records import Dataset, Record
from limner.errors import DataError
from limner.text_files import read_text


@dataclass(frozen=True)
class Form:
    """The file of sentences, the lists by split, and the folders that either may lie in."""

    tokens: str
    lists: Mapping[str, str]
    folder: str
    """The archive's own folder of the file of sentences."""
    split_folder: str = "."


FORMS: Mapping[str, Form] = {
    "flickr8k": Form(
        "Flickr8k.token.txt",
        {
            "train": "Flickr_8k.trainImages.txt",
            "val": "Flickr_8k.devImages.txt",
            "test": "Flickr_8k.testImages.txt",
        },
        "Flickr8k_text",
    ),
    "flickr30k": Form(
        "results_20130124.token",
        {"train": "train.txt", "val": "val.txt", "test": "test.txt"},
        "flickr30k",
        "flickr30k_entities",
    ),
}


def find(folder: Path, format_name: str) -> Path | None:
    """The file of sentences in a folder or in that of its archive; None if neither has one."""
    form = FORMS[format_name]
    for file in (folder / form.tokens, folder / form.folder / form.tokens):
        if is_there(file):
            return file
    return None


def read_tokens(file: Path, source: str, *, format_name: str) -> Dataset:
    """Read the file of sentences and the three lists, beside it or in the folder of their own archive.

    Pictures come in the order of their sentences, groups are named as in the Karpathy form. A picture that
    is listed for a split but has no caption follows at the end, without sentences, for the doctor to
    report. Raises `DataError` naming the file and the line.
    """
    form = FORMS[format_name]
    captions = _captions(file)
    splits: dict[PurePosixPath, str] = {}
    for split, name in form.lists.items():
        for entry, line in _lines(_list(file, form, name)):
            bare = line.strip()
            # The lists of Flickr30k Entities leave the ending out; those of Flickr8k never do.
            path = _path(entry, bare if "." in bare or format_name == "flickr8k" else f"{bare}.jpg")
            if splits.setdefault(path, split) != split:
                entry.fail(
                    f"{shown(str(path))} is also in {form.lists[splits[path]]}; a picture has one split"
                )
            # A listed picture without a caption must not vanish: the doctor counts it.
            captions.setdefault(path, [])
    paths = list(captions)
    picture = locate(file, paths, roots=roots_of(file, form.folder))
    records = tuple(
        Record(picture(path), tuple(captions[path]), group, splits.get(path))
        for path, group in zip(paths, image_groups(paths), strict=True)
    )
    return Dataset(source, "image", records)


def _captions(file: Path) -> dict[PurePosixPath, list[str]]:
    captions: dict[PurePosixPath, list[str]] = {}
    last: str | None = None
    path = PurePosixPath()
    for entry, line in _lines(file):
        key, tab, sentence = line.partition("\t")
        # From the right: a file name may hold '#' itself.
        name, mark, number = key.rpartition("#")
        if not (tab and mark and number.isdecimal()):
            entry.fail(f"NAME#NUMBER, a tab and a sentence were expected, got {shown(line)}")
        if name != last:  # Five lines in a row are of one picture.
            last, path = name, _path(entry, name)
        captions.setdefault(path, []).append(sentence)
    return captions


def _list(file: Path, form: Form, name: str) -> Path:
    # Sentences and lists come in two archives, so the lists may lie in a folder of their own.
    for root in roots_of(file, form.folder):
        for place in (root, root / form.split_folder):
            if is_there(place / name):
                return place / name
    # Where it should be: the caller's message names this path.
    return file.parent / name


def _lines(file: Path) -> list[tuple[AnnotationEntry, str]]:
    if not is_there(file):
        raise DataError(f"{file}: this list of the dataset is missing; put it beside the others")
    # Not splitlines(), which also breaks at characters that may stand in a sentence.
    lines = (line.rstrip("\r") for line in read_text(file).split("\n"))
    return [
        (AnnotationEntry(file, f"line {n}", {}), line)
        for n, line in enumerate(lines, start=1)
        if line.strip()
    ]


def _path(entry: AnnotationEntry, name: str) -> PurePosixPath:
    return AnnotationEntry(entry.file, entry.place, {"name": name}).path("name")
