"""Rankings of composed queries, by the rules of CIRR, FashionIQ and ITCPR.

- CIRR: the reference is taken out of its own ranking. R@1, 5, 10, 50, and R_subset@1, 2, 3 among the pictures of a
  query's `img_set` without the reference (Liu et al., ICCV 2021, section 5.1, cited from memory).
- FashionIQ: each category ranks its own pictures, the reference stays. R@10 and R@50 by category and their mean (Wu et
  al., CVPR 2021, cited from memory).
- ITCPR: the gallery is a set of its own. R@1, 5, 10 and mAP (Liu et al., arXiv 2311.16515, cited from memory).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from rich.console import Group
from rich.table import Table
from rich.text import Text

from limner.data.composed import ComposedGallery, ComposedProtocol
from limner.documented import Result
from limner.evaluation.intervals import Difference, Interval, difference, intervals
from limner.evaluation.measures import STANDARD, Matches, MeanAveragePrecision, Measure, RecallAt
from limner.evaluation.per_query import QueryValues
from limner.evaluation.report import said_of_precision

Vectors = Float[np.ndarray, "rows dim"]

_MEASURES: Mapping[ComposedProtocol, tuple[Measure, ...]] = {
    "cirr": (RecallAt(1), RecallAt(5), RecallAt(10), RecallAt(50)),
    "fashioniq": (RecallAt(10), RecallAt(50)),
    "itcpr": (*STANDARD[:3], MeanAveragePrecision()),
}

_SUBSET = (1, 2, 3)

_CHOOSING = (1, 5, 10)
"""K of the recalls whose mean chooses an epoch and a weight."""

_TOGETHER = 512
"""Queries that are ranked at once: of 20,000 pictures 40 MB of scores."""


@dataclass(frozen=True, eq=False)
class ComposedRanks:
    """The ranks of the queries of one gallery.

    - `matches`: of each query's targets among the gallery; for CIRR only the one it was written for counts.
    - `subset`: rank of the target among its `members`; 0 for a query without members.
    - `clusters`: row of the reference: queries of one reference are not independent of each other.
    """

    matches: Matches
    subset: Int[np.ndarray, " queries"]
    clusters: Int[np.ndarray, " queries"]

    @property
    def choosing(self) -> float:
        """The mean of R@1, R@5 and R@10, in percent."""
        first = self.matches.ranks[:, 0]
        return 100 * float(np.mean([np.mean(first <= k) for k in _CHOOSING]))


def rank_composed(
    queries: Float[np.ndarray, "queries dim"],
    images: Vectors,
    gallery: ComposedGallery,
    protocol: ComposedProtocol,
) -> ComposedRanks:
    """Rank a gallery's pictures for each of its queries, given as unit embeddings.

    `images` are all pictures of the gallery in their order, references alone as well. Ties count against the query.
    """
    found: list[list[int]] = []
    subset = np.zeros(len(gallery.triplets), np.int64)
    for start in range(0, len(gallery.triplets), _TOGETHER):
        part = gallery.triplets[start : start + _TOGETHER]
        scores = queries[start : start + _TOGETHER] @ images.T
        for place, triplet in enumerate(part):
            row = scores[place]
            ranked = np.arange(len(row)) < gallery.size
            if protocol == "cirr":
                ranked[triplet.reference] = False
            targets = triplet.targets[:1] if protocol == "cirr" else triplet.targets
            found.append(sorted(_ranks(row, ranked, targets)))
            if triplet.members:
                inside = np.zeros(len(row), bool)
                inside[list(triplet.members)] = True
                inside[triplet.targets[0]] = True
                subset[start + place] = _ranks(row, inside, triplet.targets[:1])[0]
    clusters = np.array([triplet.reference for triplet in gallery.triplets], np.int64)
    return ComposedRanks(Matches.of(found, gallery.size), subset, clusters)


def _ranks(
    scores: Float[np.ndarray, " images"], ranked: Bool[np.ndarray, " images"], targets: Sequence[int]
) -> list[int]:
    """Ranks of the targets, from 1, with tied others before them; two targets never share a rank."""
    wrong = ranked.copy()
    wrong[list(targets)] = False
    own = np.sort(scores[list(targets)])[::-1]
    return [place + 1 + int(np.count_nonzero(scores[wrong] >= score)) for place, score in enumerate(own)]


class ComposedRow(Result):
    """One way of making a query of a picture and a text, measured."""

    name: str
    """The way: picture alone, text alone, weighted sum, composed."""
    values: dict[str, float]
    """By measure, in percent; the mean over categories, where a set has several."""
    intervals: dict[str, Interval]
    """95 % intervals by measure, over references drawn with replacement; empty for fewer than two."""
    by_category: dict[str, dict[str, float]]
    """The values of each category, where a set has several."""


class ComposedReport(Result):
    """The measures of a set of composed queries."""

    protocol: ComposedProtocol
    """The rules: cirr, fashioniq or itcpr."""
    split: str
    """The split."""
    counts: dict[str, int]
    """Queries, and pictures that are ranked."""
    rows: tuple[ComposedRow, ...]
    """The ways of making a query; none with `--submission`."""
    text_weight: float | None
    """Weight of the text in the sum."""
    weight_chosen_on: str | None
    """The split that chose it."""
    against_sum: dict[str, Difference]
    """By measure, the composed query (second) against the sum (first); empty for a run that has learnt none."""
    reference: str
    """The rule about the reference in its own ranking, in words."""
    provenance: dict[str, Any]
    """Fingerprints of the split and the model, the file of `limner compose`, and versions."""


REFERENCE: Mapping[ComposedProtocol, str] = {
    "cirr": "taken out of its own ranking",
    "fashioniq": "kept in its own ranking",
    "itcpr": "not in the gallery",
}
"""The rule about the reference in its own ranking, in words."""


def measure_row(
    name: str, ranks: Sequence[tuple[str, ComposedRanks]], protocol: ComposedProtocol
) -> tuple[ComposedRow, QueryValues]:
    """Measure one way of making queries, of each category; also each query's values, with the categories as folds."""
    measures = {str(measure): measure for measure in _MEASURES[protocol]}
    # a query without members has no rank among them
    has_subsets = protocol == "cirr" and all(one.subset.all() for _, one in ranks)
    parts = [_values(one, measures, subsets=has_subsets) for _, one in ranks]
    if has_subsets:
        measures |= {f"R_subset@{k}": RecallAt(k) for k in _SUBSET}
    queries = QueryValues.joined(parts)
    by_category = {
        category: {name: measures[name].over(values) for name, values in part.values.items()}
        for (category, _), part in zip(ranks, parts, strict=True)
    }
    # the mean over categories, each with the same weight, as published
    values = {name: float(np.mean([one[name] for one in by_category.values()])) for name in measures}
    found = intervals(queries, measures)
    parted = by_category if len(ranks) > 1 else {}
    return ComposedRow(name=name, values=values, intervals=found, by_category=parted), queries


def _values(ranks: ComposedRanks, measures: Mapping[str, Measure], *, subsets: bool) -> QueryValues:
    count = len(ranks.clusters)
    values = {name: measure.each(ranks.matches) for name, measure in measures.items()}
    if subsets:
        values |= {f"R_subset@{k}": (ranks.subset <= k).astype(np.float64) for k in _SUBSET}
    return QueryValues(
        np.arange(count),
        ranks.clusters,
        np.zeros(count, np.int64),
        ranks.matches.ranks[:, 0],
        values,
    )


def against(first: QueryValues, second: QueryValues) -> dict[str, Difference]:
    """By measure, the second way of making queries minus the first, in percent, over all queries alike."""
    # clusters are numbered within a category, so that two of them are apart
    clusters = first.folds * (int(first.clusters.max(initial=0)) + 1) + first.clusters
    return {
        name: difference(values, second.values[name], clusters, RecallAt(1))
        for name, values in first.values.items()
    }


def render_composed(report: ComposedReport) -> Group:
    """The report as tables, values in percent."""
    queries, pictures = report.counts["queries"], report.counts["pictures"]
    title = f"composed queries · {report.split}: {queries:,} queries, {pictures:,} pictures"
    table = Table(title=Text(title), caption=Text(_caption(report)), caption_justify="left")
    table.add_column("")
    for row in report.rows:
        table.add_column(row.name, justify="right")
    # a row a measure: seven columns of measures are wider than a terminal
    for name in report.rows[0].values:
        table.add_row(name, *(_cell(row, name) for row in report.rows))
        for category in report.rows[0].by_category:
            table.add_row(f"  {category}", *(f"{row.by_category[category][name]:.1f}" for row in report.rows))
    return Group(table, Text(_against(report)))


def _cell(row: ComposedRow, name: str) -> str:
    ends = row.intervals.get(name)
    return f"{row.values[name]:.1f}" + (f" ({ends[0]:.0f}–{ends[1]:.0f})" if ends else "")


def _caption(report: ComposedReport) -> str:
    return (
        f"percent (95 % interval); the reference is {report.reference}; the sum weighs the text by "
        f"{report.text_weight:.2f}, chosen on {report.weight_chosen_on}"
        f"{said_of_precision(report.provenance)}"
    )


def _against(report: ComposedReport) -> str:
    lines = []
    for name, one in report.against_sum.items():
        ends = "" if one.interval is None else f" ({one.interval[0]:+.1f} to {one.interval[1]:+.1f})"
        lines.append(f"composed minus sum, {name}: {one.difference:+.1f}{ends}, p = {one.p:.3f}")
    return "\n".join(lines)
