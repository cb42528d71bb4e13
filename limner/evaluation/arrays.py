"""Results as arrays in one `.npz` file: what `limner evaluate --save` writes and `limner score` reads, whoever made it.

images (n, d), sentences (m, d)     embeddings, a row each, compared by dot product; or
scores (n, m)                       similarities, higher is a better match
image_groups (n,)                   integers or text; images and sentences of one group match
sentence_groups (m,)
image_labels (n, l), sentence_labels (m, l)  0 and 1, where a protocol matches by shared labels
image_names (n,), sentence_names (m,)        text, where there is any: names for TREC files
sentence_languages (m,)             text, where there is any: tags of languages, "" where one is not known
"""

import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Integer, Shaped

from limner.errors import DataError
from limner.evaluation.relevance import Relevance
from limner.evaluation.reranking import Reranking

_NAMES = (
    *("images", "sentences", "scores", "image_groups", "sentence_groups"),
    *("image_labels", "sentence_labels", "image_names", "sentence_names", "sentence_languages"),
)


@dataclass(frozen=True, eq=False)
class Results:
    """Embeddings or scores with the true matches; `scores` are None if there are embeddings.

    `reranking` orders the first of what embeddings find; it is not saved. `sentence_languages` are tags such as "de",
    None or "" where one is not known, and empty where none is.
    """

    image_groups: Integer[np.ndarray, " images"]
    sentence_groups: Integer[np.ndarray, " sentences"]
    images: Float[np.ndarray, "images dim"] | None = None
    sentences: Float[np.ndarray, "sentences dim"] | None = None
    scores: Float[np.ndarray, "images sentences"] | None = None
    image_labels: Shaped[np.ndarray, "images labels"] | None = None
    sentence_labels: Shaped[np.ndarray, "sentences labels"] | None = None
    image_names: Sequence[str] = ()
    sentence_names: Sequence[str] = ()
    sentence_languages: Sequence[str | None] = ()
    reranking: Reranking | None = None

    def save(self, path: Path) -> None:
        """Write the file, uncompressed. Raises `OSError` where the system refuses."""
        given = {name: getattr(self, name) for name in _NAMES}
        # Text throughout: an array with None in it would be pickled.
        given["sentence_languages"] = [tag or "" for tag in self.sentence_languages]
        # Without empty ones: missing names are an empty tuple, whose array would be refused on reading.
        arrays: dict[str, Any] = {
            name: np.asarray(value) for name, value in given.items() if value is not None and len(value)
        }
        # An open file: given a path, numpy appends ".npz" and the user's file is not there.
        with path.open("wb") as file:
            np.savez(file, **arrays)

    def unit(self) -> "Results":
        """L2-normalise the embeddings, so that their dot products are cosines.

        Raises `DataError` for scores, which are compared as they are, and for a row of zeros, which has no direction.
        """
        if self.images is None or self.sentences is None:
            raise DataError("scores are compared as they are; only embeddings can be normalised")
        images, sentences = unit_rows(self.images, "images"), unit_rows(self.sentences, "sentences")
        return replace(self, images=images, sentences=sentences)

    @property
    def languages(self) -> dict[str, Int[np.ndarray, " chosen"]]:
        """The positions of the sentences of each language, by its tag in the order of the alphabet."""
        tags = sorted({tag for tag in self.sentence_languages if tag})
        return {
            tag: np.flatnonzero([own == tag for own in self.sentence_languages]).astype(np.int64)
            for tag in tags
        }

    @property
    def labels(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Labels of the images and of the sentences, where they are what items match by."""
        if self.image_labels is None or self.sentence_labels is None:
            return None
        return self.image_labels, self.sentence_labels

    def relevance(self) -> tuple[Relevance, Relevance]:
        """The true matches of images among sentences, and of sentences among images."""
        if self.labels is not None:
            images, sentences = self.labels
            return Relevance.from_labels(images, sentences), Relevance.from_labels(sentences, images)
        groups = self.image_groups, self.sentence_groups
        return Relevance.from_groups(*groups), Relevance.from_groups(*groups[::-1])

    def with_sentences(self, chosen: Int[np.ndarray, " chosen"]) -> "Results":
        """Keep some of the sentences, by position."""
        return replace(
            self,
            sentence_groups=self.sentence_groups[chosen],
            sentences=None if self.sentences is None else self.sentences[chosen],
            scores=None if self.scores is None else self.scores[:, chosen],
            sentence_names=[self.sentence_names[place] for place in chosen] if self.sentence_names else (),
            sentence_languages=[self.sentence_languages[place] for place in chosen]
            if self.sentence_languages
            else (),
            sentence_labels=None if self.sentence_labels is None else self.sentence_labels[chosen],
            reranking=None if self.reranking is None else self.reranking.of_sentences(chosen),
        )


def read_results(path: Path) -> Results:
    """Read such a file; arrays of other names are left alone. Groups in text are numbered.

    Nothing in it is unpickled. Raises `DataError` for a file that is no `.npz`, lacks an array, or whose arrays do not
    fit each other; it names the array.
    """
    arrays, there = read_arrays(path, _NAMES)
    return results_of(path, arrays, there)


def checked_arrays(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """Read some of a file's arrays, by the names and kinds above, each with at least one row; text as a list of texts.

    Those that are not there are left out, all others left alone. Raises `DataError` as `read_results` does.
    """
    arrays, _ = read_arrays(path, names)
    for name, array in arrays.items():
        _check_array(path, name, array)
        if not array.size:
            raise DataError(f"{path}: '{name}' is empty, of shape {array.shape}")
        if array.dtype.kind in "US":
            arrays[name] = _texts(path, name, array)
        elif array.ndim > 1:
            _check_finite(path, name, array)
    return arrays


def read_arrays(path: Path, names: Sequence[str]) -> tuple[dict[str, Any], str]:
    """The arrays of these names that an `.npz` file has, and what there is in it, for messages.

    Nothing in it is unpickled. Raises `DataError` for a file that is no `.npz` or damaged.
    """
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


def results_of(path: Path, arrays: dict[str, Any], there: str) -> Results:
    """Check the arrays that were read from a file, by name; `there` lists what the file has. Raises `DataError`."""
    for needed in ("image_groups", "sentence_groups"):
        if needed not in arrays:
            raise DataError(
                f"{path}: lacks the array '{needed}'; images and sentences of one group match; there: {there}"
            )
    for name, array in arrays.items():
        _check_array(path, name, array)
    has_scores, has_rows = "scores" in arrays, {"images", "sentences"} <= arrays.keys()
    # Both would have to agree, and no rule says which to believe.
    if has_scores == has_rows:
        raise DataError(f"{path}: expected either 'scores' or both 'images' and 'sentences'; there: {there}")
    images, sentences = len(arrays["image_groups"]), len(arrays["sentence_groups"])
    expected: dict[str, tuple[int, ...]] = {
        "scores": (images, sentences),
        "images": (images,),
        "sentences": (sentences,),
        # Only the rows: the number of labels is the file's own, and compared when they are matched.
        "image_labels": (images,),
        "sentence_labels": (sentences,),
        "image_names": (images,),
        "sentence_names": (sentences,),
        "sentence_languages": (sentences,),
    }
    if ("image_labels" in arrays) != ("sentence_labels" in arrays):
        raise DataError(f"{path}: expected both 'image_labels' and 'sentence_labels', or neither")
    for name, shape in expected.items():
        if name in arrays and arrays[name].shape[: len(shape)] != shape:
            raise DataError(f"{path}: '{name}' has shape {arrays[name].shape}, the groups say {shape}")
    for name, array in arrays.items():
        if not array.size:
            raise DataError(f"{path}: '{name}' is empty, of shape {array.shape}")
    for first, second in (("images", "sentences"), ("image_labels", "sentence_labels")):
        if first in arrays and arrays[first].shape[1] != arrays[second].shape[1]:
            columns = arrays[first].shape[1], arrays[second].shape[1]
            raise DataError(f"{path}: '{first}' has {columns[0]} columns, '{second}' {columns[1]}")
    for side in ("image_names", "sentence_names", "sentence_languages"):
        if side in arrays:
            arrays[side] = _texts(path, side, arrays[side])
    for name in ("images", "sentences", "scores"):
        # Votes and negative distances may be whole numbers, and some machines have longer floats.
        if name in arrays and (arrays[name].dtype.kind != "f" or arrays[name].dtype.itemsize > 8):
            arrays[name] = arrays[name].astype(np.float64)
        if name in arrays:
            _check_finite(path, name, arrays[name])
    _number_groups(path, arrays)
    return Results(**arrays)


def _check_finite(path: Path, name: str, array: np.ndarray) -> None:
    # In chunks, since a mask of a matrix of scores may be gigabytes.
    step = max(1, _CHUNK // array.shape[1])
    for start in range(0, len(array), step):
        good = np.isfinite(array[start : start + step]).all(axis=1)
        if not good.all():
            raise DataError(
                f"{path}: '{name}': row {start + int((~good).argmax())} holds NaN or infinite values"
            )


def _number_groups(path: Path, arrays: dict[str, Any]) -> None:
    """Replace groups in text by numbers, one for each text. Raises `DataError` where one side alone is text."""
    names = "image_groups", "sentence_groups"
    texts = [arrays[name].dtype.kind in "US" for name in names]
    if not any(texts):
        return
    # Refused: whether 7 and "07" are one group is not ours to decide.
    if not all(texts):
        kinds = " and ".join(f"'{name}' {arrays[name].dtype}" for name in names)
        raise DataError(f"{path}: groups must be text on both sides or integers on both, got {kinds}")
    read = [_texts(path, name, arrays[name]) for name in names]
    numbers = np.unique(read[0] + read[1], return_inverse=True)[1].astype(np.int64)
    arrays[names[0]], arrays[names[1]] = np.split(numbers, [len(read[0])])


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


def _check_array(path: Path, name: str, array: Any) -> None:
    # numpy returns a member that does not begin as an array as it stands: bytes
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path}: '{name}' is no array; the file is damaged")
    axes, kinds, called = _KINDS[name]
    if array.ndim != axes or array.dtype.kind not in kinds:
        raise DataError(
            f"{path}: '{name}' must have {'one axis' if axes == 1 else 'two axes'} of {called}, got {array.dtype} "
            f"of shape {array.shape}"
        )


def _texts(path: Path, name: str, array: np.ndarray) -> list[str]:
    try:
        texts: list[str] = (np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array).tolist()
    except UnicodeDecodeError:
        raise DataError(f"{path}: '{name}' is not text in UTF-8") from None
    return texts


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
