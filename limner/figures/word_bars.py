"""Words as a model sees them: the nearest ones of each, and those that decide a match.

Sources: dual-path arXiv 1711.05535, Figure 11 (discriminative words: how the similarity falls without a word). MNiL (MM
2017), Table 3 (nearest words by the outputs of the second LSTM layer).
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from limner.errors import DataError, SettingsError
from limner.figures.style import BLUE, FAINT, GREEN, INK, RED, panels, styled
from limner.inference.trained import TrainedModel
from limner.inference.word_effects import DEFAULT, METHODS, joined, known_to, within_noise
from limner.wire import Phrase

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BAR = 0.24
"""Inches a bar takes."""

_WITHIN = "#c9ced5"
"""Bars within noise."""


@dataclass(frozen=True)
class NamedValue:
    """A word, and a number that goes with it."""

    word: str
    value: float


def nearest_words(run: TrainedModel, word: str, count: int = 8) -> list[NamedValue]:
    """The words whose vectors have the highest cosines with that of a word, best first.

    Vectors are those of `TextEncoder.word_vectors`: an LSTM's output for the word alone, of other text encoders the
    rows of the word table. Raises `DataError` for an unknown word, `SettingsError` for a count below 1.
    """
    if count < 1:
        raise SettingsError(f"expected at least one neighbour of each word, got {count}")
    # By the tokenizer, since it decides what one word is: "T-shirt" is two.
    (read,) = run.tokenizer.tokenize([word], run.model.settings.text.words)
    if len(read.token_ids) != 1 or not run.tokenizer.known_words(word):
        raise DataError(f"'{word}' is no word that the model knows; it has learnt {run.tokenizer.size}")
    with torch.inference_mode():
        table = run.model.text.word_vectors().float().cpu().numpy()
    # A row may be 0: its cosines are 0 then, and not NaN.
    unit = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    # Token ids count from 1; 0 is padding, which has no row here.
    row = read.token_ids[0] - 1
    cosines = unit @ unit[row]
    # The word itself would always come first, with 1.
    cosines[row] = -np.inf
    best = np.argsort(-cosines, kind="stable")[: min(count, len(table) - 1)]
    return [NamedValue(run.tokenizer.entries[place], float(cosines[place])) for place in best]


def word_weights(
    run: TrainedModel, image: Path, sentence: str, method: str = DEFAULT, *, each_word: bool = False
) -> list[Phrase]:
    """How far the cosine of a picture and a sentence falls without each phrase, in the order of the words.

    `method` is one of `limner.inference.word_effects`, whose default is that of search. With `each_word` words are not
    joined to phrases; with the method "leave-one-out" these are the discriminative words of Figure 11. Words that the
    model does not know make no difference and are left out of the list. Raises `DataError` for a sentence with fewer
    than two known words, `SettingsError` for an unknown method, `ImageError`.
    """
    if method not in METHODS:
        raise SettingsError(f"method: expected {', '.join(METHODS)}, got {method[:40]!r}")
    # The known words alone: the rest of the sentence would stand in one variant and not in the others.
    known = tuple(run.known_words(sentence))
    if len(known) < 2:
        raise DataError(f"two words that the model knows are needed to leave one out, got {sentence!r}")
    design = METHODS[method].design(known, known_to(run))
    # By the encoder for queries, whose rows do not depend on their neighbours: a difference of two scores is the
    # word's.
    variants = run.encode_queries([" ".join(variant) for variant in design.variants])
    _, phrases = joined(design, variants @ run.encode_images([image])[0], each_word=each_word)
    return list(phrases)


@styled
def nearest_figure(found: Sequence[tuple[str, Sequence[NamedValue]]]) -> "Figure":
    """A panel a word, with a bar for each of its nearest words."""
    columns = min(3, len(found))
    most = max(len(values) for _, values in found)
    figure, drawn = panels(
        columns, -(-len(found) // columns), width=2.5, height=_BAR * most + 0.6, grid=False
    )
    for axes, (word, values) in zip(drawn, found, strict=False):
        _bars(axes, values, [BLUE] * len(values))
        # From 0, or the lowest cosine below it, to 1 in all panels: lengths of bars compare.
        axes.set_xlim(min([0.0, *(item.value for item in values)]), 1)
        axes.set_title(word, loc="left", fontweight="bold")
        axes.set_xlabel("cosine", fontsize=8)
    # The last row may have cells to spare.
    for axes in drawn[len(found) :]:
        axes.set_visible(False)
    return figure


_LOSES = {
    "leave-one-out": "fall of the cosine without the words",
    "masked-regression": "mean fall of the cosine without the words",
    "substitution": "mean fall of the cosine with others of their kind",
}
"""The axis by method."""


@styled
def weights_figure(values: Sequence[Phrase], sentence: str, method: str = DEFAULT) -> "Figure":
    """A bar a phrase in the order of the sentence: green where the match falls without it, red where it rises.

    What lies within noise is grey.
    """
    figure, (axes,) = panels(width=6.0, height=_BAR * len(values) + 1.1, grid=False)
    grey = [within_noise(item) for item in values]
    colours = [
        _WITHIN if faint else GREEN if item.weight > 0 else RED
        for item, faint in zip(values, grey, strict=True)
    ]
    _bars(axes, [NamedValue(item.text, item.weight) for item in values], colours)
    for label, faint in zip(axes.get_yticklabels(), grey, strict=True):
        if faint:
            label.set_color(FAINT)
    axes.margins(y=0.5 / len(values))
    axes.axvline(0, color=FAINT, linewidth=0.8)
    axes.set_xlabel(_LOSES[method] + ("\ngrey: within noise" if any(grey) else ""))
    axes.set_title(textwrap.fill(" ".join(sentence.split()), 56, max_lines=3), loc="left")
    return figure


def _bars(axes: "Axes", values: Sequence[NamedValue], colours: Sequence[str]) -> None:
    places = range(len(values))
    axes.barh(places, [item.value for item in values], color=list(colours), height=0.7)
    axes.set_yticks(places, [item.word for item in values])
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    # Bars count from below, and a sentence reads from above.
    axes.invert_yaxis()
