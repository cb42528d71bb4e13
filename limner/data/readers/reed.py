"""CUB-200-2011 and Oxford Flowers-102 with Reed's ten sentences a picture, split by class.

    text_c10/001.Black_footed_Albatross/Black_Footed_Albatross_0001_796111.txt     ten lines
    trainclasses.txt, valclasses.txt, testclasses.txt                              names of classes
    CUB_200_2011/images/001.Black_footed_Albatross/Black_Footed_Albatross_0001_796111.jpg

Sentences and lists are those of the archives `cvpr2016_cub` and `cvpr2016_flowers` (Reed et al., CVPR 2016), which may
be unpacked into the dataset's folder or be it; the pictures are those of the two sets. A flower's pictures lie together
(`jpg/image_00001.jpg`); their class is the folder of their sentences.
"""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from limner.data.readers.parsing import is_there, locate
from limner.data.records import SPLITS, Dataset, Record
from limner.errors import DataError
from limner.text_files import read_text

FORMS: Mapping[str, str] = {"cub": "cvpr2016_cub", "flowers": "cvpr2016_flowers"}
"""Format → name of the archive with the sentences."""

_TEXTS = "text_c10"


def looks_like(folder: Path) -> str | None:
    """The format of a folder that holds such sentences; None of any other."""
    for name, archive in FORMS.items():
        if (folder / archive / _TEXTS).is_dir():
            return name
    if (folder / _TEXTS).is_dir():
        # Flowers' classes are called class_00001 …, birds' have names.
        return "flowers" if any((folder / _TEXTS).glob("class_*")) else "cub"
    return None


def read_reed(path: Path, source: str, *, format_name: str) -> Dataset:
    """Read a folder. A group is a class, all whose pictures and sentences match.

    A class that is in none of the lists has no split. Raises `DataError` for a path that is no folder, parts that
    are missing, a class in two lists, and sentences that are not UTF-8.
    """
    if not path.is_dir():
        raise DataError(f"{path}: a folder was expected, with text_c10/ and the pictures in it")
    texts = _find(path, FORMS[format_name])
    splits = _class_splits(texts.parent)
    files = [
        file
        # A file system lists names in an order of its own; records and group numbers must not depend on it.
        for folder in sorted(texts.iterdir())
        if folder.is_dir()
        for file in sorted(folder.glob("*.txt"))
        if not file.name.startswith(".")  # macOS leaves "._name.txt" beside each
    ]
    if not files:
        raise DataError(f"{texts}: no CLASS/PICTURE.txt was found")
    paths = [PurePosixPath(file.parent.name, f"{file.stem}.jpg") for file in files]
    # From the dataset's folder: the sentences' archive holds no picture.
    picture = locate(texts, paths, roots=(path,))
    records = tuple(
        Record(picture(name), _sentences(file), file.parent.name, splits.get(file.parent.name))
        for name, file in zip(paths, files, strict=True)
    )
    return Dataset(source, "identity", records)


def _find(folder: Path, archive: str) -> Path:
    for place in (folder / _TEXTS, folder / archive / _TEXTS):
        if place.is_dir():
            return place
    raise DataError(
        f"{folder}: text_c10/ with a folder of sentences a class was expected here or in {archive}/"
    )


def _class_splits(folder: Path) -> dict[str, str]:
    splits: dict[str, str] = {}
    for split in SPLITS:
        file = folder / f"{split}classes.txt"
        if not is_there(file):
            raise DataError(f"{file}: this list of classes is missing; it comes with the sentences")
        for number, line in enumerate(read_text(file).splitlines(), start=1):
            name = line.strip()
            # Classes never share splits here: testing is on classes that training has not seen.
            if name and splits.setdefault(name, split) != split:
                raise DataError(f"{file}: line {number}: class '{name}' is also in {splits[name]}classes.txt")
    return splits


def _sentences(file: Path) -> tuple[str, ...]:
    """A line each; the doctor finds the empty ones. A file without a letter has no sentence."""
    # The line break at the end would be an eleventh, empty sentence.
    text = read_text(file, may_be_empty=True).rstrip()
    return tuple(line.strip() for line in text.split("\n")) if text else ()
