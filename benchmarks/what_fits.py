"""Is a hit that is called probable one that people say fits?

    python -m benchmarks.what_fits RUN FLICKR8K JUDGED [--figure FILE]

Both calibrations of a run are fitted on Flickr8k's validation, to the one picture that is described and to all that fit
by the other sentences (`limner.evaluation.fits`). Then the judgements of Hodosh, Young and Hockenmaier (JAIR 2013) are
asked: JUDGED is their `CrowdFlowerAnnotations.txt`, in which three people or more said of pairs of the test split
whether the caption describes the picture. A pair fits by the majority. Only captions with an even number of their
picture take part, since the bound of what fits was chosen by the others; and of the first ten hits of a caption those
that were judged. Printed, for the first hit and for ten: how many fit, the mean probability, the expected calibration
error and the Brier score. `--figure` draws shares that fit over probabilities.
"""

import argparse
import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import limner
from limner.evaluation.calibration import BINS, Calibration
from limner.figures.style import INK, LINES, legend, panels, styled, write_figure
from limner.inference.calibration import calibrate_run
from limner.inference.load import load_model
from limner.inference.trained import TrainedModel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LINE = re.compile(r"(\S+\.jpg)\t((\d+)_\S+\.jpg)#(\d)\t([\d.]+)\t\d+\t\d+\s*")

Judged = dict[tuple[str, int], dict[str, bool]]
"""For a picture and the number of one of its captions: whether it describes pictures, by their file names."""


def read(file: Path) -> Judged:
    """The judgements by majority of captions with an even number."""
    found: defaultdict[tuple[str, int], dict[str, bool]] = defaultdict(dict)
    for line in file.read_text(errors="replace").splitlines():
        if (parts := _LINE.fullmatch(line)) and int(parts[3]) % 2 == 0 and float(parts[5]) != 0.5:
            found[parts[2], int(parts[4])][parts[1]] = float(parts[5]) > 0.5
    return found


def held_out(
    run: TrainedModel, flickr8k: str, judged: Judged, fitted: dict[str, Calibration]
) -> dict[str, np.ndarray]:
    """For each calibration rows of (rank from 0, probability, whether it fits) of judged hits."""
    records = [one for one in limner.open_dataset(f"flickr8k:{flickr8k}").records if one.split == "test"]
    names = [Path(str(one.image)).name for one in records]
    places = {name: place for place, name in enumerate(names)}
    images = run.encode_images([one.image for one in records])
    asked = [(name, number) for name, number in judged if name in places]
    texts = run.encode_texts([records[places[name]].sentences[number] for name, number in asked], check=False)
    rows: defaultdict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for one, scores in zip(asked, texts @ images.T, strict=True):
        first = np.argsort(-scores, kind="stable")[:10]
        for name, calibration in fitted.items():
            likely = calibration.probability(scores[first], scores[first][:6])
            rows[name] += [
                (rank, float(likely[rank]), float(judged[one][names[place]]))
                for rank, place in enumerate(first.tolist())
                if names[place] in judged[one]
            ]
    return {name: np.array(found) for name, found in rows.items()}


def bins(rows: np.ndarray) -> list[tuple[int, float, float]]:
    """Of each bin of probabilities: hits, mean probability, and the share that fits."""
    which = np.minimum((rows[:, 1] * BINS).astype(int), BINS - 1)
    kept = [rows[which == one] for one in range(BINS) if (which == one).any()]
    return [(len(one), float(one[:, 1].mean()), float(one[:, 2].mean())) for one in kept]


@styled
def diagram(found: dict[str, np.ndarray]) -> "Figure":
    """The share of hits that fit over their probability, of bins with at least twenty hits."""
    figure, (axes,) = panels(width=4.2, height=3.4)
    axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=":")
    for (name, rows), colour in zip(found.items(), LINES, strict=False):
        points = [(likely, fits) for count, likely, fits in bins(rows) if count >= 20]
        axes.plot(*zip(*points, strict=True), color=colour, marker="o", label=name)
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="probability", ylabel="share that people say fits")
    legend(axes)
    return figure


def main() -> None:
    """Measure a run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run")
    parser.add_argument("flickr8k")
    parser.add_argument("judged", type=Path)
    parser.add_argument("--figure", type=Path)
    asked = parser.parse_args()
    run = load_model(asked.run)
    val = limner.open_dataset(f"flickr8k:{asked.flickr8k}").split("val")
    fitted: dict[str, Calibration] = {}
    for question in ("described", "fits"):
        made = calibrate_run(run, val, "val", rerank=0, question=question)
        fitted[question] = made.embedding
        worth = made.reliability["embedding"]
        print(
            f"{question:10} validation: {worth.right:.1%} right, mean probability {worth.probability:.1%}, "
            f"ECE {worth.ece:.3f}, Brier {worth.brier:.3f}"
        )
    found = held_out(run, asked.flickr8k, read(asked.judged), fitted)
    for name, rows in found.items():
        for which, some in (("first hits", rows[rows[:, 0] == 0]), ("ten hits", rows)):
            ece = sum(count * abs(fits - likely) for count, likely, fits in bins(some)) / len(some)
            print(
                f"{name:10} {which:10}: {len(some):5} judged, {some[:, 2].mean():.1%} fit, mean probability "
                f"{some[:, 1].mean():.1%}, ECE {ece:.3f}, Brier {np.square(some[:, 2] - some[:, 1]).mean():.3f}"
            )
    if asked.figure is not None:
        write_figure(diagram(found), asked.figure)


if __name__ == "__main__":
    main()
