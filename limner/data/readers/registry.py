"""FORMAT:PATH → dataset."""

import difflib
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from limner.data.readers import cuhk_pedes, flickr8k_text, folder, karpathy
from limner.data.readers.annotations import shown
from limner.data.readers.layout import is_there
from limner.data.records import Dataset
from limner.errors import DataError

Reader = Callable[[Path, str], Dataset]
"""Takes an existing folder or annotation file and the source as typed."""


def open_dataset(source: str) -> Dataset:
    """Read a dataset from `FORMAT:PATH`; PATH is its folder or the annotation file itself.

    Raises `DataError` for an unknown format (with the nearest name), a bare path (with the format that its
    files suggest), a path that does not exist, and whatever the format's reader refuses.
    """
    name, colon, rest = source.partition(":")
    # A single letter before the colon is a Windows drive.
    if not colon or len(name) < 2 or "/" in name or "\\" in name:
        raise DataError(f"FORMAT:PATH was expected, got {source!r}; {_advice(source)}")
    if name not in FORMATS:
        near = difflib.get_close_matches(name.lower(), FORMATS, n=1, cutoff=0.5)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise DataError(f"unknown dataset format '{name}'; {hint}known: {', '.join(FORMATS)}")
    if not rest.strip():
        raise DataError(f"a path was expected after '{name}:', e.g. {name}:data/{name}")
    path = _existing(rest)
    if path is None:
        raise DataError(f"{shown(rest)}: there is no such folder or file (from {source!r})")
    with _collector_paused():
        return FORMATS[name](path, source)


def _read_karpathy(path: Path, source: str, *, format_name: str) -> Dataset:
    if not path.is_dir():
        reader = (
            flickr8k_text.read_flickr8k_text if _is_token_file(path, format_name) else karpathy.read_karpathy
        )
        return reader(path, source)
    file = karpathy.find(path, format_name)
    if file is not None:
        return karpathy.read_karpathy(file, source)
    tokens = flickr8k_text.find(path) if format_name == "flickr8k" else None
    if tokens is None:
        raise DataError(
            f"{path}: {karpathy.OWN_FILE[format_name]} was expected here, found no dataset_*.json"
        )
    return flickr8k_text.read_flickr8k_text(tokens, source)


def _is_token_file(path: Path, format_name: str) -> bool:
    return format_name == "flickr8k" and path.suffix == ".txt"


FORMATS: dict[str, Reader] = {
    **{name: partial(_read_karpathy, format_name=name) for name in karpathy.OWN_FILE},
    "cuhk-pedes": cuhk_pedes.read_cuhk_pedes,
    "folder": folder.read_folder,
}
"""Format → reader; the names that stand before the colon."""


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


def _advice(text: str) -> str:
    path = _existing(text)
    guess = path and (_guess(path.name) or _guess_inside(path))
    if guess:
        return f"its files suggest {guess}:{text}"
    return f"put one of {', '.join(FORMATS)} and a colon before the path"


def _guess(name: str) -> str | None:
    for known, file in karpathy.OWN_FILE.items():
        if name == file:
            return known
    if name in cuhk_pedes.FILES:
        return "cuhk-pedes"
    return "folder" if name in folder.FILES else None


def _guess_inside(path: Path) -> str | None:
    if not path.is_dir():
        return None
    names = [*karpathy.OWN_FILE.values(), *cuhk_pedes.FILES, *folder.FILES]
    for name in names:
        if is_there(path / name):
            return _guess(name)
    return "flickr8k" if flickr8k_text.find(path) else None
