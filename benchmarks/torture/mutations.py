"""Random mutations of files: of their bytes, of JSON's values, and of the arrays in an `.npz` or Parquet file."""

import contextlib
import io
import json
import random
import warnings
import zipfile
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

_TOKENS = (
    *(
        b"NaN",
        b"Infinity",
        b"-1",
        b"1e999",
        b"null",
        b"true",
        b"{}",
        b"[]",
        b'""',
        b"\x00",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
    ),
    *(
        b"\\ud800",
        b"\r",
        b"\n\n",
        b",",
        b'"',
        b"\t",
        b"9" * 400,
        b"[" * 3000,
        b'{"a":' * 3000,
        b"a" * 200_000,
    ),
)
_VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        -1,
        0,
        2**63,
        2**200,
        1e308,
        float("nan"),
        float("inf"),
        "",
        "x" * 5000,
        "\ud800",
        "\0",
        "../x",
    ),
    *([], {}, [None], [[]], {"a": {}}, [1, "a"], {"": ""}),
)


def of_bytes(content: bytes, rng: random.Random) -> bytes:
    """Change a few places: flip bits, cut, repeat, drop, or put something odd there."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(changed) + 1)
        to = min(len(changed), at + rng.choice((1, 2, 8, 64, 1024)))
        kind = rng.randrange(6)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del changed[at:]
        elif kind == 2:
            changed[at:at] = changed[at:to]
        elif kind == 3:
            del changed[at:to]
        elif kind == 4:
            changed[at:at] = rng.choice(_TOKENS)
        else:
            changed[at:to] = rng.randbytes(to - at)
    return bytes(changed)


def of_json(content: bytes, rng: random.Random) -> bytes:
    """Put an odd value in the place of one, drop a key, or add one; in a random line of JSON Lines."""
    lines = content.decode().splitlines()
    at = rng.randrange(len(lines))
    try:
        value = json.loads(lines[at])
    except ValueError:
        # one JSON value over several lines
        return json.dumps(_changed(json.loads(content), rng)).encode("utf-8", "surrogatepass")
    lines[at] = json.dumps(_changed(value, rng), ensure_ascii=rng.random() < 0.5)
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _changed(value: Any, rng: random.Random) -> Any:
    inner = (
        list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    )
    if not inner or rng.random() < 0.2:
        return rng.choice(_VALUES)
    key, kind = rng.choice(inner), rng.random()
    if kind < 0.2:
        del value[key]
    elif kind < 0.3 and isinstance(value, dict):
        value[rng.choice(("file", "path", "", "extra", "identity"))] = rng.choice(_VALUES)
    else:
        value[key] = _changed(value[key], rng)
    return value


def of_arrays(content: bytes, rng: random.Random) -> bytes:
    """Change one array of an `.npz` file, drop it, or write its file inside the archive with another header."""
    with np.load(io.BytesIO(content)) as file:
        arrays = {name: file[name] for name in file.files}
    name = rng.choice(sorted(arrays))
    change = rng.choice(_ARRAYS)
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for one, array in arrays.items():
            inner = io.BytesIO()
            if one != name:
                np.save(inner, array, allow_pickle=False)
            elif (made := change(array)) is None:
                continue
            elif isinstance(made, bytes):
                inner.write(made)
            else:
                np.save(inner, made, allow_pickle=True)
            archive.writestr(f"{one}.npy", inner.getvalue())
            # twice in one archive: which one counts is the reader's choice, but not whether it falls over
            if rng.random() < 0.02:
                with warnings.catch_warnings(action="ignore"):
                    archive.writestr(f"{one}.npy", inner.getvalue())
    return written.getvalue()


def of_columns(content: bytes, rng: random.Random) -> bytes:
    """Change one column of a Parquet file, drop it, or give it another name; a few rows may go, too."""
    table = pq.read_table(io.BytesIO(content))
    at = rng.randrange(table.num_columns)
    name, kind = table.column_names[at], rng.random()
    if kind < 0.1:
        table = table.remove_column(at)
    elif kind < 0.25:
        names = list(table.column_names)
        names[at] = rng.choice((*_NAMES, *names))
        table = table.rename_columns(names)
    elif kind < 0.35:
        table = table.slice(0, rng.randrange(4))
    else:
        # what one Arrow type cannot hold stays as it is
        with contextlib.suppress(pa.ArrowException, OverflowError):
            table = table.set_column(at, name, rng.choice(_COLUMNS)(table.column(at).to_pylist()))
    written = io.BytesIO()
    pq.write_table(table, written, compression=rng.choice(("none", "snappy")))
    return written.getvalue()


_NAMES = ("", "side", "group", "name", "embedding", "x0", "x00", "x1", "x\u0663", "x" * 5000, "path", "\0")

_COLUMNS: tuple[Callable[[list[Any]], pa.Array], ...] = (
    lambda values: pa.nulls(len(values)),
    lambda values: pa.array([None, *values[1:]]),
    lambda values: pa.array([str(one) for one in values]),
    lambda values: pa.array([str(one).encode() for one in values]),
    lambda values: pa.array([b"\xff\xfe"] * len(values)),
    lambda values: pa.array([[one] * (place % 3) for place, one in enumerate(values)]),
    lambda values: pa.array([[[one]] for one in values]),
    lambda values: pa.array([[None, one] for one in values]),
    lambda values: pa.array([{"a": one} for one in values]),
    lambda values: pa.array([True] * len(values)),
    lambda values: pa.array([float("nan")] * len(values)),
    lambda values: pa.array([float("inf")] * len(values)),
    lambda values: pa.array([1e300] * len(values)),
    lambda values: pa.array([-(2**63)] * len(values)),
    lambda values: pa.array([2**64 - 1] * len(values), pa.uint64()),
    lambda values: pa.array(np.zeros(len(values), np.float16)),
    lambda values: pa.array(np.zeros(len(values), "datetime64[s]")),
    lambda values: pa.array([Decimal(10) ** 30] * len(values)),
    lambda values: pa.array(values).dictionary_encode(),
    lambda values: pa.array(["a" * 5000] * len(values)),
    lambda values: pa.array(values[::-1]),
)


def _header(shape: str, kind: str = "<f4") -> bytes:
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    padded = text + " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded.encode() + b"\0" * 64


def _with(value: object) -> Callable[[npt.NDArray[Any]], npt.NDArray[Any]]:
    def changed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        copy = np.array(array, copy=True)
        if copy.size and copy.dtype.kind in "fiu":
            with np.errstate(all="ignore"):
                copy.flat[copy.size // 2] = np.array(value).astype(copy.dtype)
        return copy

    return changed


_ARRAYS: tuple[Callable[[npt.NDArray[Any]], npt.NDArray[Any] | bytes | None], ...] = (
    lambda array: None,
    lambda array: array[:-1],
    lambda array: array[:0],
    lambda array: array[None],
    lambda array: array.reshape(-1),
    lambda array: np.asfortranarray(array),
    lambda array: array.astype(">f8") if array.dtype.kind in "fiu" else array.astype("S"),
    lambda array: array.astype(np.complex64) if array.dtype.kind in "fiu" else array.astype(object),
    lambda array: array.astype(np.float16) if array.dtype.kind in "fiu" else array[::-1],
    lambda array: array.astype(object),
    lambda array: array.astype(bool) if array.dtype.kind in "fiu" else array,
    lambda array: array.astype(str),
    lambda array: np.zeros(array.shape, "datetime64[s]"),
    lambda array: np.zeros(array.shape, [("a", "i4"), ("b", "f4")]),
    lambda array: np.float32(3.0) * np.ones(()),
    _with(float("nan")),
    _with(float("inf")),
    _with(-1),
    _with(2**62),
    _with(1e38),
    lambda array: np.zeros_like(array),
    lambda array: _header("(1000000000000, 1000)"),
    lambda array: _header("(-1,)"),
    lambda array: _header("(4,)", "|O"),
    lambda array: _header("(4, 4)", "<f4"),
    lambda array: _header("(True,)"),
    lambda array: b"",
    lambda array: b"\x93NUMPY\x09\x00" + b"\0" * 20,
)
