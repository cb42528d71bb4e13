"""The result of one evaluation: what was measured, on what, by which model; as JSON and as a table."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field
from rich.console import Group
from rich.table import Table
from rich.text import Text

from limner.counted import counted
from limner.documented import Result
from limner.evaluation.curves import Curve
from limner.evaluation.ties import TiedFigure
from limner.one_line import one_line

_RANKS = {"MedR", "MeanR"}
"""Measures that are ranks; most of these are whole numbers."""

_COLUMNS = 8
"""More measures than these stand below each other."""

_SHARES = {"overlap-S"}
"""Measures from 0 to 1."""


Directions = TypeVar("Directions", bound=Mapping[str, Any])

_Named = Annotated[Directions, Field(exclude_if=lambda by_direction: not any(by_direction.values()))]
"""Values by direction that are left out of JSON where no direction has any."""


class LanguageReport(Result):
    """Measures of the sentences of one language, with all images of the split.

    These are the figures of the split with all other sentences left out.
    """

    counts: dict[str, int]
    """Images, sentences of the language, groups, and queries without a match."""
    image_to_text: dict[str, float] = Field(default={})
    """Value by measure; each image ranks the sentences of this language alone. Images without one are not scored."""
    text_to_image: dict[str, float] = Field(default={})
    """Value by measure; each sentence of this language ranks all images."""
    problem: str = Field(default="", exclude_if=lambda problem: not problem)
    """Why there are no values, e.g. that a fold has no sentence of the language; absent if there are."""


class Report(Result):
    """Measures of both directions with everything that a reader needs to trust or repeat them."""

    protocol: str
    """The rules, e.g. "flickr8k, same image"."""
    split: str
    """The split that was ranked."""
    counts: dict[str, int]
    """Images, sentences, groups, and the queries of each direction that have no match in the gallery."""
    image_to_text: dict[str, float]
    """Value by measure: recalls and precisions in percent, ranks from 1; under some protocols each direction has its
    own."""
    text_to_image: dict[str, float]
    """As `image_to_text`."""
    intervals: _Named[dict[str, dict[str, tuple[float, float]]]] = Field(default={})
    """95 % interval by direction and measure, over clusters of queries; absent for fewer than two clusters."""
    chance: _Named[dict[str, dict[str, float]]] = Field(default={})
    """R@K of a random ranking by direction and measure, in percent; 100 in a gallery of K items or fewer."""
    ties: _Named[dict[str, dict[str, TiedFigure]]] = Field(default={})
    """By direction and measure, each R@K that ties decide for some queries, tied wrong items being first in the values
    above; absent if they decide no R@K."""
    curves: dict[str, dict[str, Curve]] = Field(default={}, exclude_if=lambda curves: not curves)
    """Curves by direction and name; absent if none was asked for."""
    languages: dict[str, LanguageReport] = Field(default={}, exclude_if=lambda languages: not languages)
    """Measures by the language of the sentences, without curves; absent if the sentences have none."""
    provenance: dict[str, Any] = Field(default={})
    """Fingerprints of the split and the model, seed, versions, the split that chose the checkpoint, and all else that
    the caller knows."""
    queries: Any = Field(default={}, exclude=True, repr=False)
    """The values of each query (`QueryValues`) by direction."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Report) and self.model_dump() == other.model_dump()


class TransferReport(Result):
    """Measures of a run on several datasets."""

    run: Path
    """The run."""
    trained_on: str
    """Source of the dataset that it was trained on, or of its weights."""
    datasets: dict[str, Report]
    """By dataset, in the order in which they were given."""


def render(report: Report) -> Group:
    """The report as a table for the terminal: a row a direction, a column a measure, or the other way round if many.

    Percentages have one decimal. Under a direction stand half the widths of its 95 % intervals, and its recalls with
    ties broken at random where they differ from the figures above; under the table the counts, the arithmetic of the
    model, R@K by chance, and, if any, queries without a match, images that the model learnt from, and what its towers
    had seen before. Curves are left out; a dash stands where a measure is of the other direction only. A second table
    has the languages, if any.
    """
    names = list(dict.fromkeys([*report.image_to_text, *report.text_to_image]))
    rows = _turned([["direction", "queries", *names], *_rows(report, names)], len(names))
    title = f"{report.protocol} · {report.split}"
    learnt = _learnt(report.provenance.get("learnt_from") or {})
    chance = f"; {said}" if (said := _of_chance(report)) else ""
    parts = [_caption(report.counts), said_of_precision(report.provenance), learnt, chance, _of_ties(report)]
    if "rsum" in report.image_to_text and "rsum" in report.text_to_image:
        # the figure that papers print
        parts.append(
            f"; rsum of both directions: {report.image_to_text['rsum'] + report.text_to_image['rsum']:,.1f}"
        )
    caption = "".join([*parts, _seen(report)])
    tables = [_table(title, caption, rows)]
    if report.languages:
        tables.append(_languages(report.languages, names))
    return Group(*tables)


def render_transfer(reports: Mapping[str, Report], title: str) -> Table:
    """Reports of one model by the dataset that it was measured on: R@1, R@5, R@10 and mAP, a row for each direction.

    Below the table stand the arithmetic of the model and R@K by chance on each set.
    """
    names = ("R@1", "R@5", "R@10", "mAP")
    rows = [["measured on", "queries", *names]]
    for source, report in reports.items():
        for direction, kind, values in (
            ("text → image", "sentences", report.text_to_image),
            ("image → text", "images", report.image_to_text),
        ):
            measured = (shown(name, values[name]) if name in values else "–" for name in names)
            first = source if kind == "sentences" else ""
            rows.append([first, f"{report.counts[kind]:,} {direction}", *measured])
    # A line a set: galleries differ in size, so a high recall on one may be less than a low one on another.
    chances = [f"{source}: {said}" for source, report in reports.items() if (said := _of_chance(report))]
    seen = [f"{source}{said}" for source, report in reports.items() if (said := _seen(report))]
    # one model is loaded once
    said = next((said_of_precision(report.provenance) for report in reports.values()), "")
    return _table(title, "\n".join([f"recalls and mAP in percent{said}", *chances, *seen]), rows)


def said_of_precision(provenance: Mapping[str, Any]) -> str:
    """The arithmetic of the model, behind a semicolon; "" for embeddings of others, which do not say.

    >>> said_of_precision({"precision": "fp32"})
    '; computed in fp32'
    """
    return f"; computed in {found}" if (found := provenance.get("precision")) else ""


def _rows(measured: Report | LanguageReport, names: Sequence[str]) -> list[list[str]]:
    """Direction, queries and values of both directions."""
    counts, rows = measured.counts, []
    for direction, key, kind, values in (
        ("image → text", "image_to_text", "images", measured.image_to_text),
        ("text → image", "text_to_image", "sentences", measured.text_to_image),
    ):
        # Those that are measured: the ones without a match are named below the table.
        queries = counts.get(kind, 0) - counts.get(f"{kind}_without_match", 0)
        shown_values = (shown(name, values[name]) if name in values else "–" for name in names)
        rows.append([direction, f"{queries:,}", *shown_values])
        ends = {} if isinstance(measured, LanguageReport) else measured.intervals.get(key, {})
        if ends:
            # Half the width: both ends of six measures do not fit a terminal of 80; the JSON has them.
            rows.append(["± 95 %", "", *(_half(name, ends.get(name)) for name in names)])
        if not isinstance(measured, LanguageReport) and _visible(tied := measured.ties.get(key, {})):
            expected = (shown(name, tied[name].expected) if name in tied else "" for name in names)
            rows.append(["ties at random", "", *expected])
    return rows


def _visible(tied: Mapping[str, TiedFigure]) -> bool:
    # Of tens of thousands of queries one or two tie by chance; a row of the same figures again would only distract.
    return any(shown(name, of.expected) != shown(name, of.pessimistic) for name, of in tied.items())


def _of_chance(report: Report) -> str:
    return said_of_chance(
        {
            way: report.chance.get(key, {})
            for key, way in (("image_to_text", "image → text"), ("text_to_image", "text → image"))
        }
    )


def said_of_chance(chance: Mapping[str, Mapping[str, float]]) -> str:
    """R@K of a random ranking, of the smallest K that is reported; and each R@K that no ranking can miss.

    `chance` is by direction ("" if there is one alone) and name; "" without any.

    >>> said_of_chance({"": {"R@1": 20.0, "R@5": 100.0}})
    'chance: R@1 20.0; 100 whatever the model, the gallery being so small: R@5'
    """
    levels, sure = [], []
    for way, named in chance.items():
        levels += [f"{way} {name} {shown(name, level)}".strip() for name, level in list(named.items())[:1]]
        sure += [f"{way} {name}".strip() for name, level in named.items() if level == 100]
    said = [f"chance: {', '.join(levels)}"] if levels else []
    said += [f"100 whatever the model, the gallery being so small: {', '.join(sure)}"] if sure else []
    return "; ".join(said)


def _of_ties(report: Report) -> str:
    """How many queries ties decide, for each recall whose row the table has."""
    said = [
        f"{name} of {counted(of.queries, kind)}"
        for key, kind in (("image_to_text", "images"), ("text_to_image", "sentences"))
        if _visible(tied := report.ties.get(key, {}))
        for name, of in tied.items()
    ]
    return f"; ties decide {', '.join(said)}, and count against the model" if said else ""


def _half(name: str, ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f"±{shown(name, (ends[1] - ends[0]) / 2)}"


def _turned(rows: list[list[str]], measures: int) -> list[list[str]]:
    # Turned round: nine columns of figures do not fit a terminal of 80.
    return [list(column) for column in zip(*rows, strict=True)] if measures > _COLUMNS else rows


def _languages(languages: Mapping[str, LanguageReport], names: Sequence[str]) -> Table:
    rows: list[list[str]] = []
    for tag, own in languages.items():
        head, *values = _turned([["direction", "queries", *names], *_rows(own, names)], len(names))
        # In one column with the direction or measure: with one more, seven measures do not fit 80 characters.
        rows = rows or [head]
        rows += [[f"{tag} {row[0]}", *row[1:]] for row in values]
    problems = [f"{tag}: {own.problem}" for tag, own in languages.items() if own.problem]
    # Said here: in image→text the gallery is another one in each row, so rows are no parts of the whole.
    caption = "; ".join(["of images, the sentences of one language are ranked", *problems])
    return _table("by language", caption, rows)


def _table(title: str, caption: str, rows: Sequence[Sequence[str]]) -> Table:
    """A table whose first row is its head."""
    # Texts: rich would take "[…]" in plain ones for markup.
    table = Table(title=Text(one_line(title)), caption=Text(caption), caption_justify="left")
    for number, head in enumerate(rows[0]):
        # Folded, not cut off: the end of a path says which set it is.
        table.add_column(Text(head), justify="right" if number else "left", overflow="fold")
    for row in rows[1:]:
        table.add_row(*map(Text, row))
    return table


def shown(name: str, value: float) -> str:
    """A measure's value as tables have it."""
    if name in _SHARES:
        return f"{value:.3f}"
    # Halves stay: the median of an even number of ranks has them.
    return f"{value:,.0f}" if name in _RANKS and not value % 1 else f"{value:,.1f}"


def _learnt(counts: Mapping[str, Any]) -> str:
    # Of the training split all of them are, which is as well a thing to be reminded of.
    named = (("trained_on", "the model was trained on"), ("selected_on", "the model was selected on"))
    return "".join(f"; {what} {counts[kind]:,} of the images" for kind, what in named if counts.get(kind))


def _seen(report: Report) -> str:
    """A line for each tower that had, or may have, learnt of the set before."""
    return "".join(f"\nseen before by {line}" for line in report.provenance.get("seen_before") or ())


def _caption(counts: Mapping[str, int]) -> str:
    text = ", ".join(counted(counts[name], name) for name in ("images", "sentences", "groups"))
    if folds := counts.get("folds"):
        text += f"; each value is the mean over {folds} folds"
    for kind in ("images", "sentences"):
        if missing := counts[f"{kind}_without_match"]:
            text += f"; {counted(missing, kind)} without a true match, not scored"
    return text
