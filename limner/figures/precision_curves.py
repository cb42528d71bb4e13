"""Precision over recall and precision over scope, of one or several reports.

Source: MNiL (MM 2017), section 4.1 and Figure 3.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limner.errors import DataError
from limner.evaluation.curves import CURVES
from limner.figures.style import DIRECTIONS, LINES, legend, panels, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def read_curves(file: Path) -> Mapping[str, Any]:
    """The curves of a JSON report, by direction and name. Raises `DataError` where it has none."""
    try:
        report = json.loads(file.read_text(encoding="utf-8"))
        curves: Mapping[str, Any] = report["curves"]
        found = [curves[direction] for direction in DIRECTIONS]
    except OSError as error:
        raise DataError(f"{file}: no report ({error.strerror})") from None
    except (ValueError, TypeError, KeyError):
        raise DataError(
            f"{file}: no curves are in it; evaluate with --measures 'PR-curve scope-curve' --json {file.name}"
        ) from None
    if not all(found):
        raise DataError(f"{file}: no curves are in it")
    return curves


@styled
def precision_figure(reports: Sequence[Mapping[str, Any]], titles: Sequence[str]) -> "Figure":
    """A row a direction, a column a kind of curve, a line a report; precision is a share, 0 to 1."""
    kinds = [curve for curve in CURVES if all(str(curve) in report["image_to_text"] for report in reports)]
    if not kinds:
        raise DataError("the reports have no kind of curve in common")
    figure, drawn = panels(len(kinds), 2)
    places = [(direction, kind) for direction in DIRECTIONS for kind in kinds]
    for axes, (direction, kind) in zip(drawn, places, strict=True):
        for report, title, colour in zip(reports, titles, LINES * len(reports), strict=False):
            curve = report[direction][str(kind)]
            # a single place would be a line that nobody sees
            marker = "o" if len(curve[kind.x]) == 1 else None
            axes.plot(curve[kind.x], curve["precision"], color=colour, label=title, marker=marker)
        axes.set_title(DIRECTIONS[direction], loc="left")
        axes.set_xlabel("recall" if kind.x == "recall" else "items looked at")
        axes.set_ylabel("precision")
        if kind.x != "recall":
            axes.set_xscale("log")
            # the labels of a logarithmic axis are TeX by default, which our style does not read
            axes.xaxis.set_major_formatter("{x:g}")
        axes.set_ylim(bottom=0)
    legend(drawn[0])
    return figure
