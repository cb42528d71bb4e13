"""Measures of explanations: planted words, deletion and insertion curves, and the pointing game.

Sources: deletion and insertion, Petsiuk, Das and Saenko, "RISE", BMVC 2018 (there of pixels, here of words); pointing
game, Zhang et al., "Top-down Neural Attention by Excitation Backprop", ECCV 2016; planted words are the sanity check of
an explanation against a truth that was put there, e.g. Yang and Kim, "Benchmarking Attribution Methods", 2019.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from pydantic import Field
from rich.console import Group
from rich.table import Table

from limner.documented import Result
from limner.evaluation.intervals import Interval, auc_interval, ratio_interval
from limner.evaluation.report import said_of_precision


@dataclass(frozen=True, eq=False)
class Explained:
    """One method's answers for one pair.

    - `planted`: effects of all words of a text with a planted word, at `place`; `rivals`: places of its true colour
      words. None where no word could be planted.
    - `effects`, `noise`: of the words of the true text, `noise` None where the method has none; `colours` are
      the places of its colour words.
    - `deletion`, `insertion`: scores of the true text without its first k words in the order of their effects, and with
      these alone, k = 1 … words − 1; `score` is that of the whole.
    - `passes`: texts that one explanation scores.
    """

    effects: Float[np.ndarray, " words"]
    noise: Float[np.ndarray, " words"] | None
    colours: Sequence[int]
    score: float
    deletion: Float[np.ndarray, " steps"]
    insertion: Float[np.ndarray, " steps"]
    passes: int
    planted: Float[np.ndarray, " planted_words"] | None = None
    place: int = 0
    rivals: Sequence[int] = ()


class Figure(Result):
    """A figure of explanations."""

    value: float
    """The figure: a percentage, a ROC AUC, or a share of the score."""
    interval: Interval | None
    """95 % interval over identities; null below two of them, and for chance."""
    count: int
    """Cases that it is of: texts, words or pairs."""


class ExplanationReport(Result):
    """Measures of a run's explanations on pictures of which it is known what they show."""

    split: str
    """The split that was measured."""
    counts: dict[str, int]
    """Pictures, identities, and texts with a planted word."""
    methods: dict[str, dict[str, Figure]]
    """Figures by the method that gives words their effects and by name; "random" is an order by chance."""
    passes: dict[str, float]
    """Texts that one explanation scores, by method, in the mean."""
    attention: dict[str, dict[str, Figure]] = Field(default={})
    """The pointing game by part of a person, "all" for all, in percent; empty without attention over regions."""
    provenance: dict[str, Any] = Field(default={})
    """Fingerprints of the split and the model, seeds, versions, and the split that chose the checkpoint."""


MEANINGS = {
    "planted_lowest": "planted word lowest of all, %",
    "planted_lowest_colour": "planted word lowest colour, %",
    "planted_auc": "planted against true, AUC",
    "deletion": "deletion, lower is better",
    "insertion": "insertion, higher is better",
    "true_negative": "true colours below zero, %",
    "true_against": "… and beyond noise, %",
    "true_hidden": "true colours within noise, %",
}
"""Figure of a method → what the table calls it; docs/measures.md defines them."""


def method_figures(
    answers: Sequence[Explained], clusters: Int[np.ndarray, " pairs"]
) -> tuple[dict[str, Figure], float]:
    """The figures of one method over pairs, and its passes; `clusters` say which identity a pair shows."""
    found: dict[str, Figure] = {}
    asked = [
        (one, cluster)
        for one, cluster in zip(answers, clusters.tolist(), strict=True)
        if one.planted is not None
    ]
    lies, truths, of_lies, of_truths, lowest, lowest_colour = [], [], [], [], [], []
    for one, cluster in asked:
        assert one.planted is not None
        lie, rivals = one.planted[one.place], one.planted[list(one.rivals)]
        # strictly: a method that gives all words the same finds nothing
        lowest.append(100.0 * bool((lie < np.delete(one.planted, one.place)).all()))
        if len(rivals):
            lowest_colour.append((100.0 * bool((lie < rivals).all()), cluster))
        lies.append(lie)
        of_lies.append(cluster)
        truths += rivals.tolist()
        of_truths += [cluster] * len(rivals)
    if lies:
        found["planted_lowest"] = _mean(lowest, of_lies)
    if lowest_colour:
        found["planted_lowest_colour"] = _mean(*map(list, zip(*lowest_colour, strict=True)))
        area, ends = auc_interval(np.array(lies), np.array(truths), np.array(of_lies), np.array(of_truths))
        found["planted_auc"] = Figure(value=area, interval=ends, count=len(lies))
    for name in ("deletion", "insertion"):
        found[name] = _area([(getattr(one, name), one.score) for one in answers], clusters)
    found |= _signs(answers, clusters)
    return found, float(np.mean([one.passes for one in answers]))


def _signs(answers: Sequence[Explained], clusters: Int[np.ndarray, " pairs"]) -> dict[str, Figure]:
    """Signs of true colour words, and what lies within noise."""
    columns: dict[str, tuple[list[float], list[int]]] = {}

    def add(
        name: str, values: Float[np.ndarray, " places"] | Bool[np.ndarray, " places"], cluster: int
    ) -> None:
        rows, of = columns.setdefault(name, ([], []))
        rows += (100.0 * values).tolist()
        of += [cluster] * len(values)

    for one, cluster in zip(answers, clusters.tolist(), strict=True):
        colours = list(one.colours)
        add("true_negative", one.effects[colours] < 0, cluster)
        if one.noise is not None:
            hidden = np.abs(one.effects) <= one.noise
            add("true_against", (one.effects < 0)[colours] & ~hidden[colours], cluster)
            add("true_hidden", hidden[colours], cluster)
    return {name: _mean(rows, of) for name, (rows, of) in columns.items() if rows}


def random_figures(
    sizes: Sequence[int],
    curves: Sequence[tuple[Float[np.ndarray, " _steps"], Float[np.ndarray, " _steps"], float]],
    clusters: Int[np.ndarray, " pairs"],
) -> dict[str, Figure]:
    """The figures of a random order: `sizes` are the words of planted texts, `curves` deletion, insertion and score."""
    found = {}
    if sizes:
        chance = float(np.mean([100 / size for size in sizes]))
        found["planted_lowest"] = Figure(value=chance, interval=None, count=len(sizes))
        found["planted_auc"] = Figure(value=0.5, interval=None, count=len(sizes))
    found["deletion"] = _area([(one[0], one[2]) for one in curves], clusters)
    found["insertion"] = _area([(one[1], one[2]) for one in curves], clusters)
    return found


def pointing_figures(
    points: Sequence[tuple[str, float, float, float, int]],
) -> dict[str, dict[str, Figure]]:
    """Figures of the pointing game, by part and for "all".

    Each point is the part, its share of the strongest region, its share of the picture, its share of the region that
    has most of it, and the cluster. `pointing` is how often a point that is drawn in the strongest region shows the
    part, `chance` how often one that is drawn in the picture does, `best` what no region exceeds; all in percent.
    """
    found = {}
    for part in ("all", *sorted({point[0] for point in points})):
        chosen = [point for point in points if part in ("all", point[0])]
        clusters = [point[4] for point in chosen]
        found[part] = {
            name: _mean([100 * float(point[column]) for point in chosen], clusters)
            for column, name in ((1, "pointing"), (2, "chance"), (3, "best"))
            if chosen
        }
    return {part: figures for part, figures in found.items() if figures}


def shares_of_regions(
    mask: Bool[np.ndarray, "height width"], grid: tuple[int, int], crop: tuple[float, float, float, float]
) -> Float[np.ndarray, "rows columns"]:
    """The share of each region's pixels that a mask has; `grid` divides `crop` evenly, as the page shows it."""
    height, width = mask.shape
    left, top, right, bottom = crop
    # edges in whole pixels: a pixel belongs to one region
    across = np.rint(np.linspace(left * width, right * width, grid[1] + 1)).astype(int)
    down = np.rint(np.linspace(top * height, bottom * height, grid[0] + 1)).astype(int)
    return np.array(
        [
            [
                mask[down[row] : down[row + 1], across[column] : across[column + 1]].mean()
                for column in range(grid[1])
            ]
            for row in range(grid[0])
        ]
    )


def _area(
    curves: Sequence[tuple[Float[np.ndarray, " _steps"], float]], clusters: Int[np.ndarray, " pairs"]
) -> Figure:
    """Mean height of the curves over the mean score: sums are divided, since a single score may be near zero."""
    used = [place for place, (curve, _) in enumerate(curves) if len(curve)]
    areas = np.array([curves[place][0].mean() for place in used])
    scores = np.array([curves[place][1] for place in used])
    ends = ratio_interval(areas, scores, clusters[used])
    return Figure(value=float(areas.sum() / scores.sum()), interval=ends, count=len(used))


def _mean(values: Sequence[float], clusters: Sequence[int]) -> Figure:
    rows = np.array(values, dtype=np.float64)
    ends = ratio_interval(rows, np.ones(len(rows)), np.array(clusters))
    return Figure(value=float(rows.mean()), interval=ends, count=len(rows))


def render(report: ExplanationReport) -> Group:
    """The report as tables for the terminal: a row a figure, a column a method; a second one for attention."""
    names = list(report.methods)
    table = Table(title=f"explanations · {report.split}", title_justify="left")
    table.add_column("figure ± half of its 95 % interval")
    for name in names:
        # a hyphen is where a name may break: four columns of figures do not fit a terminal of 80 otherwise
        table.add_column(name.replace("-", "-\n"), justify="right", no_wrap=True)
    for key in MEANINGS:
        if any(key in own for own in report.methods.values()):
            table.add_row(MEANINGS[key], *(_shown(key, own.get(key)) for own in report.methods.values()))
    table.add_row(
        "texts scored", *(f"{report.passes[name]:.0f}" if name in report.passes else "" for name in names)
    )
    counts = ", ".join(f"{count:,} {what}" for what, count in report.counts.items())
    table.caption = counts + said_of_precision(report.provenance)
    table.caption_justify = "left"
    if not report.attention:
        return Group(table)
    points = Table(title="attention: points in the strongest region that show the part", title_justify="left")
    for heading in ("part", "words", "pointing", "chance", "best"):
        points.add_column(heading, justify="left" if heading == "part" else "right")
    for part, own in report.attention.items():
        points.add_row(
            part,
            f"{own['pointing'].count:,}",
            *(_shown(key, own[key]) for key in ("pointing", "chance", "best")),
        )
    return Group(table, points)


def _shown(key: str, figure: Figure | None) -> str:
    if figure is None:
        return ""
    digits = 2 if key in ("planted_auc", "deletion", "insertion") else 1
    half = "" if figure.interval is None else f" ± {(figure.interval[1] - figure.interval[0]) / 2:.{digits}f}"
    return f"{figure.value:.{digits}f}{half}"
