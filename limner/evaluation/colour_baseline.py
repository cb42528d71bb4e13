"""The bag of colours: a search that only compares colour words with colours in the image.

It knows no shapes, no places and no grammar: a sentence is the set of its colour words, a picture the share of its
pixels nearest to each colour, with the middle of the picture counting more than its edges. A set of pictures on
which this does well is too easy; a trained model's score is reported beside it.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Float
from PIL import Image

COLOUR_WORDS: Final[dict[str, tuple[int, int, int]]] = {
    "black": (25, 25, 28),
    "white": (238, 238, 236),
    "grey": (130, 132, 136),
    "red": (195, 35, 40),
    "orange": (238, 125, 30),
    "yellow": (240, 212, 60),
    "green": (45, 135, 65),
    "turquoise": (60, 190, 188),
    "blue": (40, 90, 190),
    "purple": (132, 48, 142),
    "pink": (242, 150, 188),
    "brown": (108, 68, 40),
    "beige": (214, 194, 155),
}
"""The colour words that it knows, with their sRGB colours."""

_SYNONYMS: Final = {"gray": "grey", "blond": "yellow", "blonde": "yellow"}
_SIDE: Final = (96, 48)
_SPREAD_X, _SPREAD_Y = 0.22, 0.40
_EXPECTED: Final = 0.05


def colour_similarity(
    sentences: Sequence[str], images: Sequence[str | Path]
) -> Float[np.ndarray, "sentences images"]:
    """Score of every sentence with every picture; higher is a better match.

    The cosine between the sentence's colour words (1 each, rare colours weigh more than common ones) and the
    picture's colour shares, both centred over the set, so that a colour that every street has says nothing. A
    sentence without a colour word scores 0 everywhere.
    """
    sentence_colours = (
        np.stack([_words(sentence) for sentence in sentences])
        if sentences
        else np.zeros((0, len(COLOUR_WORDS)))
    )
    image_colours = (
        np.stack([_shares(path) for path in images]) if images else np.zeros((0, len(COLOUR_WORDS)))
    )
    # The logarithm keeps a large wall from outweighing a shirt.
    image_colours = np.log1p(image_colours / _EXPECTED)
    if len(images):
        image_colours = (image_colours - image_colours.mean(axis=0)) / (image_colours.std(axis=0) + 1e-6)
    if len(sentences):
        known = sentence_colours.any(axis=1, keepdims=True)
        sentence_colours = (sentence_colours - sentence_colours.mean(axis=0)) * known
    return np.asarray(_unit(sentence_colours) @ _unit(image_colours).T)


def _words(sentence: str) -> Float[np.ndarray, " colours"]:
    words = [_SYNONYMS.get(word, word) for word in re.findall(r"[a-z]+", sentence.lower())]
    return np.array([float(colour in words) for colour in COLOUR_WORDS])


def _shares(path: str | Path) -> Float[np.ndarray, " colours"]:
    """Weighted share of the pixels nearest to each colour in CIELAB."""
    with Image.open(path) as image:
        image.draft("RGB", (_SIDE[1], _SIDE[0]))
        pixels = np.asarray(
            image.convert("RGB").resize((_SIDE[1], _SIDE[0]), Image.Resampling.BOX), dtype=np.float64
        )
    reference = _to_lab(np.array(list(COLOUR_WORDS.values()), dtype=np.float64))
    distance = ((_to_lab(pixels.reshape(-1, 3))[:, None] - reference[None]) ** 2).sum(axis=2)
    rows, columns = np.mgrid[0 : _SIDE[0], 0 : _SIDE[1]]
    x, y = (columns + 0.5) / _SIDE[1] - 0.5, (rows + 0.5) / _SIDE[0] - 0.5
    weight = np.exp(-0.5 * ((x / _SPREAD_X) ** 2 + (y / _SPREAD_Y) ** 2)).ravel()
    shares = np.bincount(distance.argmin(axis=1), weights=weight, minlength=len(COLOUR_WORDS))
    return np.asarray(shares / weight.sum())


def _to_lab(rgb: Float[np.ndarray, "colours 3"]) -> Float[np.ndarray, "colours 3"]:
    scaled = rgb / 255
    linear = np.where(scaled > 0.04045, ((scaled + 0.055) / 1.055) ** 2.4, scaled / 12.92)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = linear @ to_xyz.T / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1)


def _unit(rows: Float[np.ndarray, "rows colours"]) -> Float[np.ndarray, "rows colours"]:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))
