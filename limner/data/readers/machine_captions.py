"""Large sets for training in which machines wrote the captions and nobody named identities: MALS, LUPerson-MLLM,
WebPerson as JSON.

    MALS           gene_attrs/g_*_attrs.json    [{"image": "gene_crop/c_g_a_0/0.jpg", "caption": …, "image_id":
                                                "c_g_a_0_0", "label": [1, 0, …]}, …]
    LUPerson-MLLM  caption/Ts-qwen.json, …      {"a/name.jpg": "The person …", …}, four files, a sentence each
    WebPerson      100w.json                    [{"name.jpg": {"caption1": …, "caption2": …}}, …]

Each picture is a group. No file names a split: all is for training, and a twentieth is held out for validation
(`hold_out`), because limner chooses checkpoints by it. WebPerson is published as Parquet shards (see `parquet`); the
JSON form is the one that its authors' training code reads.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from limner.data.readers.karpathy import image_groups
from limner.data.readers.parquet import read_parquet
from limner.data.readers.parsing import (
    ANOTHER_FORM,
    AnnotationEntry,
    is_there,
    locate,
    parse_json,
    roots_of,
    shown,
)
from limner.data.records import Dataset, Record
from limner.data.splits import hold_out
from limner.errors import DataError
from limner.text_files import read_text

LUPERSON_FILES = ("Ts-qwen.json", "Td-qwen.json", "Ts-shikra.json", "Td-shikra.json")
"""Static (s) and dynamic (d) instructions to two models; every picture has a sentence in most of the files."""

WEBPERSON_FILE = "100w.json"

_MALS_FOLDER, _MALS_FILES = "gene_attrs", "g_*_attrs.json"
_CAPTION_FOLDERS = ("", "caption", "captions")


@dataclass
class _Picture:
    """A picture with all that the annotation files say of it."""

    path: PurePosixPath
    sentences: list[str] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)


def looks_like(folder: Path) -> str | None:
    """The format of a folder that holds such files; None of any other."""
    if any(_mals_files(folder)):
        return "mals"
    return "luperson-mllm" if any(map(is_there, _luperson_files(folder))) else None


def read_mals(path: Path, source: str) -> Dataset:
    """Read all of `gene_attrs/` (or the `g_*_attrs.json` beside the pictures), or one of its files.

    Metadata holds `image_id`, `label` (27 attributes) and every key beyond the published ones. Raises `DataError`
    naming the file and the entry.
    """
    files = _mals_files(path) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path}: {_MALS_FILES} was expected here or in {_MALS_FOLDER}/, found none")
    pictures = []
    for file in files:
        for entry in _entries(file):
            metadata = {key: value for key, value in entry.values.items() if key not in ("image", "caption")}
            pictures.append(_Picture(entry.path("image"), [entry.text("caption")], metadata))
    roots = roots_of(files[0], _MALS_FOLDER)
    # APTM's readme has the annotations in data/ and the pictures in images/MALS/ beside it.
    return _for_training(files[0], pictures, source, (*roots, roots[-1].parent / "images" / "MALS"))


def read_luperson(path: Path, source: str) -> Dataset:
    """Read the four caption files of a folder (or of its `caption/` or `captions/`), or one of them.

    Files name a picture by a path of which only the last part counts, as in the authors' code: the pictures lie in one
    folder. A picture has the sentences of all files, in the order of `LUPERSON_FILES`. Raises `DataError` naming the
    file and the entry, or the files that are missing.
    """
    files = _luperson_files(path) if path.is_dir() else [path]
    missing = [file.name for file in files if not is_there(file)]
    if missing:
        raise DataError(
            f"{path}: {', '.join(LUPERSON_FILES)} were expected here or in caption/, {', '.join(missing)} "
            "not found; give the path of one of them to read it alone"
        )
    pictures: dict[str, _Picture] = {}
    for file in files:
        for name, caption in _mapping(file):
            entry = AnnotationEntry(file, shown(name), {"path": name, "caption": caption})
            picture = _Picture(PurePosixPath(entry.path("path").name))
            pictures.setdefault(picture.path.name, picture).sentences.append(entry.text("caption"))
    root = file.parent.parent if file.parent.name in _CAPTION_FOLDERS else file.parent
    own = (root / "LUPerson-MLLM", root / "LUPerson_images" / "LUPerson-MLLM")
    return _for_training(files[0], list(pictures.values()), source, (*own, root))


def read_webperson(path: Path, source: str) -> Dataset:
    """Read Parquet shards, or the JSON list that the authors' training code reads.

    Raises `DataError` naming the file and the entry.
    """
    file = path / WEBPERSON_FILE if path.is_dir() else path
    if file.suffix.lower() != ".json" or not is_there(file):
        return _all_for_training(read_parquet(path, source))
    pictures = []
    for entry in _entries(file):
        for name in entry.values:
            captions = AnnotationEntry.of(file, f"{entry.place}: {shown(name)}", entry.values[name])
            path_ = AnnotationEntry(file, entry.place, {"picture": name}).path("picture")
            pictures.append(_Picture(path_, [captions.text("caption1"), captions.text("caption2")]))
    return _for_training(file, pictures, source, (file.parent,))


def _for_training(file: Path, pictures: list[_Picture], source: str, roots: Sequence[Path]) -> Dataset:
    if not pictures:
        raise DataError(f"{file}: no picture is listed")
    paths = [picture.path for picture in pictures]
    image = locate(file, paths, roots=roots)
    records = tuple(
        Record(image(picture.path), tuple(picture.sentences), group, None, picture.metadata)
        for picture, group in zip(pictures, image_groups(paths), strict=True)
    )
    return _all_for_training(Dataset(source, "image", records))


def _all_for_training(dataset: Dataset) -> Dataset:
    records = tuple(replace(record, split=record.split or "train") for record in dataset.records)
    return hold_out(replace(dataset, records=records, drawn={}))


def _mals_files(folder: Path) -> list[Path]:
    # Sorted: a file system lists names in an order of its own, and records must not depend on it.
    return sorted((folder / _MALS_FOLDER).glob(_MALS_FILES)) or sorted(folder.glob(_MALS_FILES))


def _luperson_files(folder: Path) -> list[Path]:
    """The four files, each where it is, or where it would be in the folder that holds one of them."""
    places = [folder / name for name in _CAPTION_FOLDERS]
    place = next(
        (place for place in places if any(is_there(place / name) for name in LUPERSON_FILES)), folder
    )
    return [place / name for name in LUPERSON_FILES]


def _entries(file: Path) -> Iterator[AnnotationEntry]:
    top = parse_json(read_text(file), file)
    if not isinstance(top, list):
        raise DataError(
            f"{file}: a list of entries was expected at the top level, got {shown(top)}; {ANOTHER_FORM}"
        )
    for index, item in enumerate(top):
        yield AnnotationEntry.of(file, f"[{index}]", item)


def _mapping(file: Path) -> Iterator[tuple[str, Any]]:
    top = parse_json(read_text(file), file)
    if not isinstance(top, dict):
        raise DataError(
            f"{file}: an object from picture to caption was expected, got {shown(top)}; {ANOTHER_FORM}"
        )
    yield from top.items()
