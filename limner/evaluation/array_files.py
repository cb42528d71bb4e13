"""Arrays of an `.npz` file that anybody may have written: read without pickles, checked, brought to unit length.

It needs no torch, which a search by an export does without.
"""

import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from limner.errors import DataError


def checked_arrays(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """Read some of a file's arrays, each with at least one row; text as a list of texts.

    Their names and kinds are those of `limner.evaluation.arrays`.
    Those that are not there are left out, all others left alone. Raises `DataError`, which names the array.
    """
    arrays, _ = read_arrays(path, names)
    for name, array in arrays.items():
        check_array(path, name, array)
        if not array.size:
            raise DataError(f"{path}: '{name}' is empty, of shape {array.shape}")
        if array.dtype.kind in "US":
            arrays[name] = texts(path, name, array)
        elif array.ndim > 1:
            check_finite(path, name, array)
    return arrays


def expect_no_folder(path: Path, expected: str) -> None:
    """Raise `DataError` for a folder, which may be a run's."""
    if path.is_dir():
        raise DataError(
            f"{path}: {expected} was expected, this is a folder; `limner evaluate RUN --data FORMAT:PATH` measures a "
            "run, and writes files for `limner compare` with --per-query"
        )


def read_arrays(path: Path, names: Sequence[str]) -> tuple[dict[str, Any], str]:
    """The arrays of these names that an `.npz` file has, and what there is in it, for messages.

    Nothing in it is unpickled. Raises `DataError` for a file that is no `.npz` or damaged.
    """
    expect_no_folder(path, "an .npz file")
    try:
        with path.open("rb") as opened:
            # numpy tries anything else as a pickle, and its message tells the user to allow pickles.
            if opened.read(2) != b"PK":
                raise DataError(f"{path}: not an .npz file; a TREC run is read with --qrels")
        # A pickle runs code of whoever made the file. Names are text arrays, which need none.
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            # By our names only: numpy decompresses an array when it is asked for.
            there = ", ".join(f"'{name}'" for name in file.files[:12]) or "none"
            arrays: dict[str, Any] = {name: file[name] for name in names if name in file.files}
            return arrays, there
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except _DAMAGED as error:
        raise DataError(f"{path}: not an .npz file of plain arrays, or damaged ({error})") from None


_DAMAGED = (
    *(ValueError, TypeError, KeyError, EOFError, OSError, NotImplementedError, SyntaxError),
    # the last for a header that names a shape of petabytes, and for results that are larger than this machine
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError, MemoryError),
)
"""The errors of numpy and the standard library for archives that are broken in one way or another."""

_KINDS = {
    **dict.fromkeys(("images", "sentences"), (2, "f", "floats")),
    "scores": (2, "fiu", "numbers"),
    **dict.fromkeys(("image_groups", "sentence_groups"), (1, "iuUS", "integers or text")),
    **dict.fromkeys(("image_labels", "sentence_labels"), (2, "biu", "0 and 1")),
    **dict.fromkeys(("image_names", "sentence_names", "sentence_languages"), (1, "US", "text")),
}
"""Number of axes, numpy's kinds, and how they are called."""


def check_finite(path: Path, name: str, array: np.ndarray) -> None:
    """Raise `DataError` for a row of a matrix with NaN or infinite values."""
    # In chunks, since a mask of a matrix of scores may be gigabytes.
    step = max(1, _CHUNK // array.shape[1])
    for start in range(0, len(array), step):
        good = np.isfinite(array[start : start + step]).all(axis=1)
        if not good.all():
            raise DataError(
                f"{path}: '{name}': row {start + int((~good).argmax())} holds NaN or infinite values"
            )


def check_array(path: Path | str, name: str, array: Any) -> None:
    """Raise `DataError` for an array that has not the axes and the kind of its name."""
    # numpy returns a member that does not begin as an array as it stands: bytes
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path}: '{name}' is no array; the file is damaged")
    axes, kinds, called = _KINDS[name]
    if array.ndim != axes or array.dtype.kind not in kinds:
        raise DataError(
            f"{path}: '{name}' must have {'one axis' if axes == 1 else 'two axes'} of {called}, got {array.dtype} "
            f"of shape {array.shape}"
        )


def texts(path: Path | str, name: str, array: np.ndarray) -> list[str]:
    """An array of text or of bytes in UTF-8 as a list. Raises `DataError`."""
    try:
        found: list[str] = (np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array).tolist()
    except UnicodeDecodeError:
        raise DataError(f"{path}: '{name}' is not text in UTF-8") from None
    return found


def unit_rows(rows: Float[np.ndarray, "items dim"], name: str) -> Float[np.ndarray, "items dim"]:
    """Rows at unit length; `name` is told in errors. Raises `DataError` for a row of zeros, NaN or infinite values."""
    # By each row's largest value first, in float64: squares leave float32 from 1e19 on and below 1e-23, half precision
    # from 256 on, and rows of float64 may leave even that. A row would silently become zero, or tie with all others.
    peaks = np.abs(rows).max(axis=1, keepdims=True).astype(np.float64)
    if not np.isfinite(peaks).all():
        bad = int((~np.isfinite(peaks)).argmax())
        raise DataError(f"{name}: row {bad} holds NaN or infinite values; the model has diverged")
    if not peaks.all():
        raise DataError(f"{name}: row {int((peaks == 0).argmax())} is zero and has no cosine with anything")
    found = np.empty(rows.shape, np.promote_types(rows.dtype, np.float32))
    step = max(1, _CHUNK // rows.shape[1])
    for start in range(0, len(rows), step):
        scaled = rows[start : start + step] / peaks[start : start + step]
        found[start : start + step] = scaled / np.linalg.norm(scaled, axis=1, keepdims=True)
    return found


_CHUNK = 1 << 20
"""Values that are normalised at once, 8 MiB in float64."""
