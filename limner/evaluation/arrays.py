"""Results as arrays in one `.npz` file: what `limner evaluate --save` writes and `limner score` reads, whoever made it.

images (n, d), sentences (m, d)     embeddings, a row each, compared by dot product; or
scores (n, m)                       similarities, higher is a better match
image_groups (n,)                   integers or text; images and sentences of one group match
sentence_groups (m,)
image_labels (n, l), sentence_labels (m, l)  0 and 1, where a protocol matches by shared labels
image_names (n,), sentence_names (m,)        text, where there is any: names for TREC files
sentence_languages (m,)             text, where there is any: tags of languages, "" where one is not known
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped

from limner.arguments import several
from limner.errors import DataError
from limner.evaluation.array_files import check_array, check_finite, read_arrays, texts, unit_rows
from limner.evaluation.relevance import Relevance
from limner.evaluation.reranking import Reranking

_GROUPS = "image_groups", "sentence_groups"

_TEXTS = "image_names", "sentence_names", "sentence_languages"
_NAMES = (
    *("images", "sentences", "scores", "image_groups", "sentence_groups", "image_labels", "sentence_labels"),
    *_TEXTS,
)


@dataclass(frozen=True, eq=False)
class Results:
    """Embeddings or scores with the true matches; `scores` are None if there are embeddings.

    `reranking` orders the first of what embeddings find; it is not saved. `sentence_languages` are tags such as "de",
    None or "" where one is not known, and empty where none is. Groups are integers, or text on both sides, which is
    numbered. Lists and tensors are welcome; other kinds and numbers than a file may have raise `DataError`, as there.
    """

    # lists and tensors are welcome: what they hold is checked where they enter
    image_groups: Any
    sentence_groups: Any
    images: Float[np.ndarray, "images dim"] | None = None
    sentences: Float[np.ndarray, "sentences dim"] | None = None
    scores: Float[np.ndarray, "images sentences"] | None = None
    image_labels: Shaped[np.ndarray, "images labels"] | None = None
    sentence_labels: Shaped[np.ndarray, "sentences labels"] | None = None
    image_names: Sequence[str] = ()
    sentence_names: Sequence[str] = ()
    sentence_languages: Sequence[str | None] = ()
    reranking: Reranking | None = None

    def __post_init__(self) -> None:
        arrays: dict[str, Any] = {}
        for name in _NAMES:
            value = getattr(self, name)
            if name in _TEXTS:
                value = several(value, (str, NoneType), f"Results: '{name}': text") or None
            elif value is not None:
                value = as_array("Results", name, value)
                check_array("Results", name, value)
                value = _as_floats(value) if name == "scores" else value
            if value is not None:
                arrays[name] = value
        _expect_fit("Results", arrays, ", ".join(f"'{name}'" for name in arrays))
        _number_groups("Results", arrays)
        for name, array in arrays.items():
            object.__setattr__(self, name, array)

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

    def with_images(self, chosen: Int[np.ndarray, " chosen"]) -> "Results":
        """Keep some of the images of embeddings, by position."""
        return replace(
            self,
            image_groups=self.image_groups[chosen],
            images=None if self.images is None else self.images[chosen],
            image_labels=None if self.image_labels is None else self.image_labels[chosen],
        )

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


def results_of(path: Path, arrays: dict[str, Any], there: str) -> Results:
    """Check the arrays that were read from a file, by name; `there` lists what the file has. Raises `DataError`."""
    for needed in _GROUPS:
        if needed not in arrays:
            raise DataError(
                f"{path}: lacks the array '{needed}'; images and sentences of one group match; there: {there}"
            )
    for name, array in arrays.items():
        check_array(path, name, array)
    _expect_fit(path, arrays, there)
    for name, array in arrays.items():
        if not array.size:
            raise DataError(f"{path}: '{name}' is empty, of shape {array.shape}")
    for side in _TEXTS:
        if side in arrays:
            arrays[side] = texts(path, side, arrays[side])
    for name in ("images", "sentences", "scores"):
        if name in arrays:
            arrays[name] = _as_floats(arrays[name])
            check_finite(path, name, arrays[name])
    _number_groups(path, arrays)
    return Results(**arrays)


def _expect_fit(path: Path | str, arrays: dict[str, Any], there: str) -> None:
    """Raise `DataError` for arrays too many or too few, and for numbers of rows and columns that differ."""
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
        if name in arrays and (found := np.shape(arrays[name]))[: len(shape)] != shape:
            raise DataError(f"{path}: '{name}' has shape {found}, the groups say {shape}")
    for first, second in (("images", "sentences"), ("image_labels", "sentence_labels")):
        if first in arrays and arrays[first].shape[1] != arrays[second].shape[1]:
            columns = arrays[first].shape[1], arrays[second].shape[1]
            raise DataError(f"{path}: '{first}' has {columns[0]} columns, '{second}' {columns[1]}")


def _as_floats(array: np.ndarray) -> np.ndarray:
    # votes and negative distances may be whole numbers, and some machines have longer floats
    return array.astype(np.float64) if array.dtype.kind != "f" or array.dtype.itemsize > 8 else array


def as_array(whose: str, name: str, given: Any) -> np.ndarray:
    """A list or a tensor as an array, also one with a gradient. Raises `DataError` for what is none."""
    try:
        # a tensor on an accelerator, or in bf16, is on no account numpy's
        if hasattr(given, "detach"):
            given = given.detach().cpu()
            given = given.float() if str(given.dtype) == "torch.bfloat16" else given
        return np.asarray(given)
    except (TypeError, ValueError) as error:
        raise DataError(f"{whose}: '{name}' is no array ({error})") from None


def _number_groups(path: Path | str, arrays: dict[str, Any]) -> None:
    """Replace groups in text by numbers, one for each text. Raises `DataError` where one side alone is text."""
    names = _GROUPS
    are_text = [arrays[name].dtype.kind in "US" for name in names]
    if not any(are_text):
        return
    # Refused: whether 7 and "07" are one group is not ours to decide.
    if not all(are_text):
        kinds = " and ".join(f"'{name}' {arrays[name].dtype}" for name in names)
        raise DataError(f"{path}: groups must be text on both sides or integers on both, got {kinds}")
    read = [texts(path, name, arrays[name]) for name in names]
    numbers = np.unique(read[0] + read[1], return_inverse=True)[1].astype(np.int64)
    arrays[names[0]], arrays[names[1]] = np.split(numbers, [len(read[0])])
