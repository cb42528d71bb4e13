"""Precision over recall and precision over scope, of one or several reports.

Source: MNiL (MM 2017), section 4.1 and Figure 3.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limner.durable import read_json
from limner.errors import DataError
from limner.evaluation.curves import CURVES
from limner.figures.style import DIRECTIONS, LINES, legend, panels, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_KINDS = {str(curve): curve for curve in CURVES}


def read_curves(file: Path) -> Mapping[str, Any]:
    """The curves of a JSON report, by direction and name; those of a TREC run, which has one, by "".

    Raises `DataError` where it has none.
    """
    try:
        report = read_json(file)
        curves: dict[str, Any] = report["curves"]
        # A TREC run has one direction and does not know which.
        if not curves.keys() & DIRECTIONS.keys():
            curves = {"": curves}
        found = {
            direction: {name: _points(drawn[name], kind.x) for name, kind in _KINDS.items() if name in drawn}
            for direction, drawn in curves.items()
        }
    except OSError as error:
        raise DataError(f"{file}: no report ({error.strerror})") from None
    # Any other JSON: a list, a number, a report of another program.
    except (ValueError, TypeError, KeyError, AttributeError):
        found = {}
    if not found or not all(found.values()):
        raise DataError(
            f"{file}: no curves are in it; evaluate with --measures 'PR-curve scope-curve' --report {file.name}"
        )
    return found


def _points(curve: Mapping[str, Any], x: str) -> dict[str, list[float]]:
    """A curve's numbers. Raises what Python raises for anything else."""
    places, precisions = ([float(number) for number in curve[name]] for name in (x, "precision"))
    if len(places) != len(precisions) or not places:
        raise ValueError
    return {x: places, "precision": precisions}


@styled
def precision_figure(reports: Sequence[Mapping[str, Any]], titles: Sequence[str]) -> "Figure":
    """A row a direction, a column a kind of curve, a line a report; precision is a share, 0 to 1."""
    # Only what all reports have: a panel with a line missing would look like a result of 0.
    directions = [way for way in ("", *DIRECTIONS) if all(way in report for report in reports)]
    kinds = [
        curve
        for name, curve in _KINDS.items()
        if directions and all(name in report[direction] for report in reports for direction in directions)
    ]
    if not kinds:
        raise DataError("the reports have no kind of curve of one direction in common")
    figure, drawn = panels(len(kinds), len(directions))
    places = [(direction, kind) for direction in directions for kind in kinds]
    for axes, (direction, kind) in zip(drawn, places, strict=True):
        # Not strict: there are more colours than reports.
        for report, title, colour in zip(reports, titles, LINES * len(reports), strict=False):
            curve = report[direction][str(kind)]
            # A line through a single place would not be seen.
            marker = "o" if len(curve[kind.x]) == 1 else None
            axes.plot(curve[kind.x], curve["precision"], color=colour, label=title, marker=marker)
        axes.set_title(DIRECTIONS.get(direction, ""), loc="left")
        axes.set_xlabel("recall" if kind.x == "recall" else "items looked at")
        axes.set_ylabel("precision")
        if kind.x != "recall":
            # Scopes go from 1 to 1,000; on an even axis the first ten places would be one.
            axes.set_xscale("log")
            # The labels of a logarithmic axis are TeX by default, which our style does not read.
            axes.xaxis.set_major_formatter("{x:g}")
        # From 0, so that a small lead is not drawn as a large one.
        axes.set_ylim(bottom=0)
    legend(drawn[0])
    return figure
