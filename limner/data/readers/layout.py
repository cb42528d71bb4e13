"""Where a dataset's files lie: the annotation file in its folder, the pictures beside it."""

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path, PurePosixPath

from limner.data.readers.annotations import shown
from limner.errors import DataError

PICTURE_FOLDERS = (
    "images",
    "imgs",
    "Images",
    "flickr30k-images",
    "flickr30k_images",
    "Flicker8k_Dataset",
    "Flickr8k_Dataset",
    "Flicker8k_Dataset/Flicker8k_Dataset",
    "train2014",
    "val2014",
    "train2017",
    "val2017",
    "jpg",
    "CUB_200_2011/images",
    "102flowers/jpg",
    ".",
)
"""Where pictures are looked for, beside the annotations. "Flicker8k" is the archive's own spelling, and
unpacking it into a folder of its name makes two of them."""

ANNOTATIONS = "annotations"
"""The folder of a dataset that its annotation files may lie in."""

_SAMPLE = 16


class PicturesMissingError(DataError):
    """None of a set's pictures is where it could be."""


def is_there(path: Path) -> bool:
    """Whether it is a readable file's path; also False for names that no file can have."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def one_of(folder: Path, names: Iterable[str], what: str) -> Path:
    """The one file of these names in a folder. Raises `DataError` when there is none or more than one."""
    names = list(names)
    there = [folder / name for name in names if is_there(folder / name)]
    if not there:
        raise DataError(f"{folder}: {what} was expected here, found none of {', '.join(names)}")
    if len(there) > 1:
        found = ", ".join(file.name for file in there)
        raise DataError(f"{folder}: one {what} was expected, found {found}; give the path of the one to use")
    return there[0]


def roots_of(file: Path, inner: str = ANNOTATIONS) -> tuple[Path, ...]:
    """Where a dataset's folder may be: that of the annotation file and, where that is called `inner`, the one above."""
    return (file.parent, file.parent.parent) if file.parent.name == inner else (file.parent,)


def locate(
    file: Path,
    paths: Sequence[PurePosixPath],
    *,
    roots: Sequence[Path] = (),
    folders: Sequence[str] = PICTURE_FOLDERS,
) -> Callable[[PurePosixPath], Path]:
    """Find out in which folder of `roots` (default: that of the annotation file) the pictures lie.

    Sixteen of the paths, spread evenly, are tried in each of `folders`, as they are and by their bare name; the folder
    with most of them wins, the earlier at a tie. Returns what turns a path of the file into the path of the
    picture. Raises `PicturesMissingError` when none of them is anywhere.
    """
    roots = roots or (file.parent,)
    count = min(_SAMPLE, len(paths))
    sample = [paths[index * len(paths) // count] for index in range(count)]
    best, best_hits, best_bare = roots[0], 0, False
    for root, bare, name in product(roots, (False, True), folders):
        folder = root / name
        hits = sum(is_there(folder / (path.name if bare else path)) for path in sample)
        if hits > best_hits:
            best, best_hits, best_bare = folder, hits, bare
    if best_hits == 0:
        looked = ", ".join("beside it" if name == "." else f"{name}/" for name in folders)
        example = shown(str(sample[0]))
        raise PicturesMissingError(
            f"{file}: none of its pictures was found, e.g. {example}; looked in {looked}"
        )

    if best_bare:
        return lambda path: best / path.name
    return lambda path: best / path
