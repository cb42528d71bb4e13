"""FORMAT:PATH → dataset."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from limner.data.noise import add_noise
from limner.data.published import edition_of
from limner.data.readers import (
    coco,
    flickr_tokens,
    folder,
    karpathy,
    machine_captions,
    parquet,
    pedestrians,
    reed,
    webdataset,
)
from limner.data.readers.parsing import ANNOTATIONS, is_there, shown
from limner.data.readers.shards import is_pattern
from limner.data.readers.stated_terms import terms_of
from limner.data.records import Dataset
from limner.data.splits import draw_splits, split_source
from limner.errors import DataError, SettingsError
from limner.plugins import find_plugin, nearest

Reader = Callable[[Path, str], Dataset]
"""Takes an existing folder or annotation file and the source as typed."""


def open_dataset(source: str | Dataset) -> Dataset:
    """Read a dataset from `FORMAT:PATH`; PATH is its folder or the annotation file itself. A `Dataset` is returned.

    `#seed=S`, `#fold=K/N` or `#draw=S/VAL/TEST` behind it replaces the splits, see `draw_splits`; `#noise=SHARE` or
    `#noise=SHARE/SEED` behind that makes so many training sentences wrong, see `add_noise`. Raises `DataError`
    for an unknown format (with the nearest name), a bare path (with the format that its files suggest), a path that
    does not exist, whatever the format's reader refuses, and what is neither a text nor a `Dataset` of limner's.
    """
    if isinstance(source, Dataset):
        return source
    if not isinstance(source, str):
        kind = f"{type(source).__module__}.{type(source).__qualname__}"
        raise DataError(
            f"a dataset as FORMAT:PATH or limner.Dataset was expected, got {kind}; a datasets.Dataset is read from "
            "its to_parquet(FILE), as parquet:FILE, pictures in memory when they are saved (docs/data-formats.md)"
        )
    name, colon, rest = source.partition(":")
    # A single letter before the colon is a Windows drive.
    if not colon or len(name) < 2 or "/" in name or "\\" in name:
        raise DataError(f"FORMAT:PATH was expected, got {source!r}; {_advice(source)}")
    reader = reader_of(name)
    if not rest.strip():
        raise DataError(f"a path was expected after '{name}:', e.g. {name}:data/{name}")
    # The reader sees the whole source, the file system the path without the drawn splits.
    bare, _ = split_source(rest)
    path = _existing(bare) or (_pattern(bare) if name in _SHARDS else None)
    if path is None:
        raise DataError(f"{shown(rest)}: there is no such folder or file (from {source!r})")
    with _collector_paused():
        dataset = reader(path, source)
    if not isinstance(dataset, Dataset):  # only another package's reader can
        raise DataError(
            f"the reader of '{name}' gave a {type(dataset).__name__}, not a limner Dataset; mend it"
        )
    # After the reader: drawn splits also replace the one that ICFG-PEDES's reader holds out.
    dataset = draw_splits(dataset)
    # Of the splits as they are then: validation and test keep their sentences.
    dataset = add_noise(dataset)
    # Last, since a set with drawn splits is no published edition.
    return replace(dataset, edition=edition_of(dataset), terms=terms_of(name, path))


def reader_of(name: str) -> Reader:
    """The reader of a format, ours or another package's. Raises `DataError` with the nearest known name."""
    if name in FORMATS:
        return FORMATS[name]
    try:
        plugin = find_plugin("limner.readers", name)
        if plugin is None:
            raise DataError(f"unknown dataset format '{name}'; {nearest('limner.readers', name, FORMATS)}")
        reader: Reader = plugin.load()
    except SettingsError as error:  # of a package that is broken
        raise DataError(str(error)) from None
    return reader


def _read_captions(path: Path, source: str, *, format_name: str) -> Dataset:
    """One of the three caption sets: Karpathy's file where there is one, else the form of its authors."""
    if not path.is_dir():
        if path.suffix == ".json":
            # Both forms are .json files; only their names tell them apart before they are read.
            official = format_name == "mscoco" and path.name.startswith("captions_")
            return coco.read_coco([path], source) if official else karpathy.read_karpathy(path, source)
        if format_name in flickr_tokens.FORMS:
            return flickr_tokens.read_tokens(path, source, format_name=format_name)
        return karpathy.read_karpathy(path, source)
    # Karpathy's file first: papers report its split, and a folder may hold both forms.
    file = karpathy.find(path, format_name)
    if file is not None:
        return karpathy.read_karpathy(file, source)
    if format_name == "mscoco":
        if files := coco.find(path):
            return coco.read_coco(files, source)
    elif tokens := flickr_tokens.find(path, format_name):
        return flickr_tokens.read_tokens(tokens, source, format_name=format_name)
    others = {"mscoco": "annotations/captions_train2014.json"}
    other = others.get(format_name) or flickr_tokens.FORMS[format_name].tokens
    raise DataError(f"{path}: {karpathy.OWN_FILE[format_name]} or {other} was expected here, found neither")


FORMATS: dict[str, Reader] = {
    **{name: partial(_read_captions, format_name=name) for name in karpathy.OWN_FILE},
    "mscoco-labels": coco.read_coco_labels,
    **{name: partial(pedestrians.read_pedestrians, format_name=name) for name in pedestrians.FORMS},
    **{name: partial(reed.read_reed, format_name=name) for name in reed.FORMS},
    "mals": machine_captions.read_mals,
    "luperson-mllm": machine_captions.read_luperson,
    "webperson": machine_captions.read_webperson,
    "folder": folder.read_folder,
    "parquet": parquet.read_parquet,
    "webdataset": webdataset.read_webdataset,
}
"""Format → reader; the names that stand before the colon."""

_SHARDS = ("webperson", "parquet", "webdataset")
"""Formats whose path may be a pattern of file names."""


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Do without garbage collection while a reader builds millions of small objects, none of them garbage.

    The collector walks through all of them again and again: MSCOCO takes 11 s with it and 4 s without.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def _existing(text: str) -> Path | None:
    try:
        path = Path(text).expanduser()
        return path if path.exists() else None
    except (OSError, ValueError, RuntimeError):  # A name too long, with a NUL, or of an unknown user.
        return None


def _pattern(text: str) -> Path | None:
    """The path of a pattern of file names in a folder that is there."""
    path = Path(text)
    parent = _existing(str(path.parent))
    return parent / path.name if parent is not None and is_pattern(path.name) else None


def _advice(text: str) -> str:
    path = _existing(text)
    guess = path and (_guess(path.name) or _guess_inside(path))
    if guess:
        return f"its files suggest {guess}:{text}"
    return f"put one of {', '.join(FORMATS)} and a colon before the path"


_FILES: dict[str, str] = {
    **{file: name for name, file in karpathy.OWN_FILE.items()},
    # Of two sets with a file of one name the first one counts: `data_captions.json` is RSTPReid's.
    **{file: name for name, form in reversed([*pedestrians.FORMS.items()]) for file in form.files},
    machine_captions.WEBPERSON_FILE: "webperson",
    **{form.tokens: name for name, form in flickr_tokens.FORMS.items()},
    **dict.fromkeys(folder.FILES, "folder"),
}
"""Name of an annotation file → its format."""


def _guess(name: str) -> str | None:
    if name.endswith(parquet.ENDINGS):
        return "parquet"
    return "webdataset" if name.endswith(webdataset.ENDINGS) else _FILES.get(name)


def _guess_inside(path: Path) -> str | None:
    if not path.is_dir():
        return None
    # Files' names are certain, so they come before layouts that other sets may share.
    for name in _FILES:
        if is_there(path / name) or is_there(path / ANNOTATIONS / name):
            return _FILES[name]
    for name in flickr_tokens.FORMS:
        if flickr_tokens.find(path, name):
            return name
    if coco.find(path):
        return "mscoco"
    # Shards come last: they may hold any set.
    inside = (_guess(file.name) for folder in (path, path / "data") for file in sorted(folder.glob("*.*")))
    return reed.looks_like(path) or machine_captions.looks_like(path) or next(filter(None, inside), None)
