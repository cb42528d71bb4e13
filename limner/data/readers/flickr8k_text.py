"""Flickr8k as its authors publish it: `Flickr8k.token.txt` and three lists of file names.

    1000268201_693b08cb0e.jpg#0	A child in a pink dress is climbing up a set of stairs in an entry way .

Some ninety pictures with captions are in none of the lists `Flickr_8k.{train,dev,test}Images.txt` and get no
split. One of their names, ending in ".jpg.1", is a slip of the original: there is no such picture.
"""

from pathlib import Path, PurePosixPath

from limner.data.readers.annotations import Entry, read_text, shown
from limner.data.readers.karpathy import image_groups
from limner.data.readers.layout import is_there, locate
from limner.data.records import Dataset, Record
from limner.errors import DataError

_TOKENS = "Flickr8k.token.txt"
_LISTS = {
    "train": "Flickr_8k.trainImages.txt",
    "val": "Flickr_8k.devImages.txt",
    "test": "Flickr_8k.testImages.txt",
}


def find(folder: Path) -> Path | None:
    """The token file in a folder or in the `Flickr8k_text` of its archive; None when there is none."""
    for file in (folder / _TOKENS, folder / "Flickr8k_text" / _TOKENS):
        if is_there(file):
            return file
    return None


def read_flickr8k_text(file: Path, source: str) -> Dataset:
    """Read the token file and the three lists beside it.

    Pictures come in the order of the token file, groups are named as in the Karpathy form. A picture that
    is listed for a split but has no caption follows at the end, without sentences, for the doctor to
    report. Raises `DataError` naming the file and the line.
    """
    captions: dict[PurePosixPath, list[str]] = {}
    last: str | None = None
    path = PurePosixPath()
    for entry, line in _lines(file):
        key, tab, sentence = line.partition("\t")
        name, mark, number = key.rpartition("#")
        if not (tab and mark and number.isdecimal()):
            entry.fail(f"NAME#NUMBER, a tab and a sentence were expected, got {shown(line)}")
        if name != last:  # Five lines in a row are of one picture.
            last, path = name, _path(entry, name)
        captions.setdefault(path, []).append(sentence)
    splits: dict[PurePosixPath, str] = {}
    for split, name in _LISTS.items():
        for entry, line in _lines(file.parent / name):
            path = _path(entry, line.strip())
            if splits.setdefault(path, split) != split:
                entry.fail(f"{shown(str(path))} is also in {_LISTS[splits[path]]}; a picture has one split")
            captions.setdefault(path, [])
    root = file.parent if file.parent.name != "Flickr8k_text" else file.parent.parent
    paths = list(captions)
    picture = locate(root / file.name, paths)
    records = tuple(
        Record(picture(path), tuple(captions[path]), group, splits.get(path))
        for path, group in zip(paths, image_groups(paths), strict=True)
    )
    return Dataset(source, "image", records)


def _lines(file: Path) -> list[tuple[Entry, str]]:
    if not is_there(file):
        raise DataError(f"{file}: this file of Flickr8k is missing; put it beside the others")
    # Not splitlines(), which also breaks at characters that may stand in a sentence.
    lines = (line.rstrip("\r") for line in read_text(file).split("\n"))
    return [(Entry(file, f"line {n}", {}), line) for n, line in enumerate(lines, start=1) if line.strip()]


def _path(entry: Entry, name: str) -> PurePosixPath:
    return Entry(entry.file, entry.place, {"name": name}).path("name")
