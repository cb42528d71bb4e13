"""Attention of a reranker: each word's over the picture, each decoding step's or region's over the words.

Source: Li et al., ICCV 2017, Figure 3 and section 3.2 (Eq. 7 and 10); Zheng et al., MM 2020, Figure 4.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, UInt8

from limner.errors import DataError
from limner.figures.style import INK, panels, styled
from limner.inference.trained import TrainedModel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ACROSS = 8
"""Words in a row."""
_TALL = 1.25
"""Inches of a row of pictures."""


@dataclass(frozen=True, eq=False)
class Attended:
    """A picture as the network sees it (cropped), a sentence's words, and the attention between them.

    `of_regions` and `of_words` are None without such attention; `confidence` is in [0, 1].
    """

    pixels: UInt8[np.ndarray, "height width 3"]
    words: tuple[str, ...]
    of_regions: Float[np.ndarray, "words map_height map_width"] | None
    of_words: Float[np.ndarray, "readers words"] | None
    confidence: float
    reader: str = "step"


def attended(run: TrainedModel, image: Path, sentence: str) -> Attended:
    """Match one picture with one sentence.

    Raises `SettingsError` for a model without a reranker, `DataError` for a sentence without a known word, and
    `ImageError`.
    """
    reranker = run.expect_reranker()
    # Refused before the picture is opened and the network runs.
    run.check_query(sentence)
    pixels = run.prepare_image(image)
    found = reranker.rerank(sentence, reranker.region_features(pixels[None]))
    if found.of_regions is None and found.of_words is None:
        raise DataError(f"{run.path}: its reranker has no attention to draw")
    # Rows have unit length, so their product is the cosine.
    similarity = (run.encode_pixels(pixels[None]) * run.encode_texts([sentence])).sum(axis=1)
    # The reranker's own scale: HGAN adds the cosine, co-attention's logits stand alone.
    scores = reranker.scores(similarity, found.logits)
    return Attended(
        pixels,
        found.words,
        None if found.of_regions is None else found.of_regions[0],
        None if found.of_words is None else found.of_words[0],
        float(reranker.confidences(scores)[0]),
        found.reader,
    )


@styled
def attention_figure(found: Attended, *, bare: bool = False) -> "Figure":
    """The picture, and behind it a panel a word: the lighter a place, the more the word attends to it.

    Above each word is its greatest share. The last panel has each step's, or region's, attention over the words. `bare`
    leaves the picture itself out, for one that may not be shown.
    """
    height, width = found.pixels.shape[:2]
    count = 1 + (len(found.words) if found.of_regions is not None else 0)
    rows = -(-count // _ACROSS)
    steps = found.of_words is not None
    figure, drawn = panels(
        min(count, _ACROSS),
        rows + steps,
        width=max(0.75, _TALL * width / height) + 0.1,
        height=_TALL + 0.2,
        grid=False,
    )
    columns = min(count, _ACROSS)
    for axes in drawn:
        axes.set_axis_off()
    _show(drawn[0], found, None, bare)
    drawn[0].set_title(f"{found.confidence:.0%}", fontsize=7.5)
    if found.of_regions is not None:
        # Not strict: the last row has cells without a word.
        for axes, word, attention in zip(drawn[1:], found.words, found.of_regions, strict=False):
            _show(axes, found, attention, bare)
            axes.set_title(f"{word} {attention.max():.0%}", fontsize=7.5)
    if found.of_words is not None:
        # Panels of `subplots` cannot span a row, so this one is laid over its switched-off cells.
        whole = figure.add_subplot(drawn[rows * columns].get_subplotspec().get_gridspec()[rows, :])  # type: ignore[union-attr]
        _readers(whole, found.words, found.of_words, found.reader)
    return figure


def _show(
    axes: "Axes", found: Attended, attention: Float[np.ndarray, "map_height map_width"] | None, bare: bool
) -> None:
    height, width = found.pixels.shape[:2]
    # Grey below the map: the picture's own colours would mix with viridis.
    grey = found.pixels.astype(np.float32).mean(axis=2) / 255
    if attention is None:
        axes.imshow(np.full_like(found.pixels, 235) if bare else found.pixels, interpolation="bilinear")
        return
    if not bare:
        axes.imshow(grey, cmap="gray", vmin=0, vmax=1, interpolation="bilinear")
    axes.imshow(
        # From 0 to each word's own maximum, which its title gives: on one scale weak words would be black.
        attention,
        cmap="viridis",
        vmin=0,
        alpha=1.0 if bare else 0.6,
        # Pixels' centres lie at whole numbers, so a picture's edge lies at −0.5.
        extent=(-0.5, width - 0.5, height - 0.5, -0.5),
        interpolation="nearest" if bare else "bicubic",
    )


def _readers(
    axes: "Axes", words: tuple[str, ...], attention: Float[np.ndarray, "readers words"], reader: str
) -> None:
    axes.imshow(attention, cmap="viridis", vmin=0, aspect="auto", interpolation="nearest")
    axes.set_xticks(range(len(words)), words, rotation=60, ha="right", fontsize=6.5)
    axes.set_yticks(range(len(attention)), [str(step) for step in range(1, len(attention) + 1)], fontsize=6.5)
    axes.set_ylabel(reader, color=INK, fontsize=7.5)
