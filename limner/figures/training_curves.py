"""Training curves: the losses, the errors in training, and what validation made of them.

Source: dual-path TOMM 2020, Figure 8, which draws the classification error.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limner.durable import from_json
from limner.errors import DataError
from limner.figures.style import DIRECTIONS, FAINT, LINES, legend, panels, styled
from limner.training.log import LOG_FILE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEARNT = {
    "loss": {
        "visual": "instance loss, pictures",
        "textual": "instance loss, sentences",
        "joint": "instance loss, sums",
        "ranking": "ranking loss",
        "cmce": "CMCE loss",
        "sextuple": "sextuple loss",
        "pair": "pair loss",
        "word": "hinges, words",
        "phrase": "hinges, phrases",
        "sdm": "SDM",
        "contrastive": "contrastive loss",
        "siglip": "sigmoid loss",
        "tal": "triplet alignment loss",
        "circle": "circle loss",
    },
    "learnt scale": {"contrastive_scale": "1/τ, contrastive loss", "siglip_scale": "t, sigmoid loss"},
    "classification error, percent": {
        "visual_error": "pictures",
        "textual_error": "sentences",
        "joint_error": "sums",
    },
    "violating samples, percent": {"violating": "of what is irrelevant"},
    "matching loss": {"matching": "binary cross-entropy"},
    "matching error, percent": {"matching_error": "pairs of picture and sentence"},
}
"""Panels of what is learnt: by title, columns of the log and what they are called."""


def read_log(run: Path) -> list[dict[str, Any]]:
    """The rows of a run's log, an epoch each. Raises `DataError` if the run has none."""
    file = run / LOG_FILE if run.is_dir() else run
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
        rows = [from_json(line) for line in lines if line.strip()]
    except OSError as error:
        raise DataError(f"{file}: no log of a training run ({error.strerror})") from None
    except ValueError:
        raise DataError(f"{file}: not a log of a training run") from None
    # Any file of JSON lines would pass until here, a captions file as well.
    if not rows or not all(isinstance(row, dict) and {"stage", "epoch"} <= row.keys() for row in rows):
        raise DataError(f"{file}: no epoch of a training run is in it")
    return rows


@styled
def training_curves(rows: Sequence[Mapping[str, Any]]) -> "Figure":
    """Losses and errors in training, and R@1 of both directions on the validation split.

    `rows` are those of `read_log`; epochs are counted over all stages, and a line marks each new one. What no stage
    has, e.g. a classification error without an instance loss, has no panel.
    """
    epochs = list(range(1, len(rows) + 1))
    # A panel without a line would look like a loss of 0.
    titles = [title for title, names in _LEARNT.items() if any(name in row for row in rows for name in names)]
    figure, (*learnt, scores) = panels(len(titles) + 1)
    for axes, title in zip(learnt, titles, strict=True):
        names = [name for name in _LEARNT[title] if any(name in row for row in rows)]
        # A cycle, because the first panel knows more losses than the palette has colours.
        for name, colour in zip(names, itertools.cycle(LINES), strict=False):
            # NaN leaves a gap where a stage has not this loss; 0 would draw a fall.
            found = [row.get(name, math.nan) for row in rows]
            axes.plot(epochs, found, color=colour, label=_LEARNT[title][name])
    # With `validate_every` not every epoch is validated.
    validated = [(epoch, row) for epoch, row in zip(epochs, rows, strict=True) if "image_to_text" in row]
    for (direction, title), colour in zip(DIRECTIONS.items(), LINES, strict=False):
        scores.plot(
            [epoch for epoch, _ in validated],
            [row[direction]["R@1"] for _, row in validated],
            color=colour,
            label=title,
        )
    starts = [
        epochs[place] for place in range(1, len(rows)) if rows[place]["stage"] != rows[place - 1]["stage"]
    ]
    for axes, title in zip((*learnt, scores), (*titles, "R@1 on validation, percent"), strict=True):
        _finish(axes, title, starts)
    return figure


def _finish(axes: "Axes", title: str, starts: Sequence[int]) -> None:
    for start in starts:
        # Between two epochs, which lie at whole numbers.
        axes.axvline(start - 0.5, color=FAINT, linewidth=0.8, linestyle=":")
    axes.set_xlabel("epoch")
    axes.set_title(title, loc="left")
    # From 0, so that a small change is not drawn as a large one.
    axes.set_ylim(bottom=0)
    if axes.lines:
        legend(axes)
