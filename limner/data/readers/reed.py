"""CUB-200-2011 and Oxford Flowers-102 with Reed's ten sentences a picture, split by class.

    text_c10/001.Black_footed_Albatross/Black_Footed_Albatross_0001_796111.txt     ten lines
    trainclasses.txt, valclasses.txt, testclasses.txt                              names of classes
    CUB_200_2011/images/001.Black_footed_Albatross/Black_Footed_Albatross_0001_796111.jpg

Sentences and lists are those of the archives `cvpr2016_cub` and `cvpr2016_flowers` (Reed et al., CVPR 2016), which may
be unpacked into the dataset's folder or be it; the pictures are those of the two sets. A flower's pictures lie together
(`jpg/image_00001.jpg`); their class is the folder of their sentences.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from limner.data.readers.annotations import read_text
from limner.data.readers.layout import is_there, locate
from limner.data.records import SPLITS, Dataset, Record
from limner.errors import DataError

FORMS: Mapping[str, str] = {"cub": "cvpr2016_cub", "flowers": "cvpr2016_flowers"}
"""Format → name of the archive with the sentences."""

_TEXTS = ("text_c10", "text")


@dataclass(frozen=True)
class _Tree:
    """Where the parts lie."""

    texts: Path
    lists: Path


def looks_like(folder: Path) -> str | None:
    """The format of a folder that holds such sentences; None of any other."""
    for name, archive in FORMS.items():
        if (folder / archive / "text_c10").is_dir():
            return name
    if (folder / "text_c10").is_dir():
        return "flowers" if any((folder / "text_c10").glob("class_*")) else "cub"
    return None


def read_reed(path: Path, source: str, *, format_name: str) -> Dataset:
    """Read a folder. A group is a class, all whose pictures and sentences match.

    A class that is in none of the lists has no split. Raises `DataError` for a path that is no folder, parts that
    are missing, a class in two lists, and sentences that are not UTF-8.
    """
    if not path.is_dir():
        raise DataError(f"{path}: a folder was expected, with text_c10/ and the pictures in it")
    tree = _find(path, FORMS[format_name])
    splits = _class_splits(tree.lists)
    texts = [
        (file.relative_to(tree.texts).with_suffix(".jpg"), file)
        for folder in sorted(tree.texts.iterdir())
        if folder.is_dir()
        for file in sorted(folder.glob("*.txt"))
    ]
    if not texts:
        raise DataError(f"{tree.texts}: no CLASS/PICTURE.txt was found")
    paths = [PurePosixPath(picture.as_posix()) for picture, _ in texts]
    picture = locate(tree.texts, paths, root=path)
    records = tuple(
        Record(picture(name), _sentences(file), file.parent.name, splits.get(file.parent.name))
        for name, (_, file) in zip(paths, texts, strict=True)
    )
    return Dataset(source, "identity", records)


def _find(folder: Path, archive: str) -> _Tree:
    for place in (folder, folder / archive):
        for name in _TEXTS:
            if (place / name).is_dir():
                return _Tree(place / name, place)
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
            if name and splits.setdefault(name, split) != split:
                raise DataError(f"{file}: line {number}: class '{name}' is also in {splits[name]}classes.txt")
    return splits


def _sentences(file: Path) -> tuple[str, ...]:
    if not file.stat().st_size:
        return ()
    return tuple(line.strip() for line in read_text(file).split("\n") if line.strip())
