"""An ablation table as bars: our means with their deviations beside the paper's figures."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limner.errors import DataError
from limner.figures.style import BLUE, DIRECTIONS, FAINT, INK, panels, styled

# matplotlib belongs to an extra: this module is imported without it, and says so when a figure is drawn.
if TYPE_CHECKING:
    from matplotlib.figure import Figure


def read_table(path: Path) -> Mapping[str, Any]:
    """The `table.json` of `limner ablate`, or of its folder. Raises `DataError` for anything else."""
    file = path / "table.json" if path.is_dir() else path
    try:
        table = json.loads(file.read_text(encoding="utf-8"))
        # Read for the KeyError alone: a table that lacks a key is refused here, not halfway through drawing.
        rows = [
            (row["label"], row["stage"], row["mean"], row["deviation"], row["paper"]) for row in table["rows"]
        ]
    except OSError as error:
        raise DataError(f"{file}: no table of an ablation ({error.strerror})") from None
    except (ValueError, TypeError, KeyError):
        raise DataError(f"{file}: not a table of `limner ablate`") from None
    if not rows:
        raise DataError(f"{file}: the table has no row")
    found: Mapping[str, Any] = table
    return found


@styled
def ablation_figure(table: Mapping[str, Any]) -> "Figure":
    """A panel a measure, a pair of bars a row: ours with the sample deviation over seeds, and the paper's.

    `table` is that of `read_table`; values are in percent.
    """
    rows = table["rows"]
    # Every row is measured by the same names, those of the ablation's protocol.
    names = list(rows[0]["mean"])
    figure, drawn = panels(len(names), width=2.3, height=0.5 * len(rows) + 1.1, grid=False)
    places = range(len(rows))
    for axes, name in zip(drawn, names, strict=True):
        direction, measure = name.split(" ", 1)
        axes.barh(
            # Two bars of 0.34 with a small gap fill 0.7 of a row, so that pairs stand apart.
            [place - 0.18 for place in places],
            [row["mean"][name] for row in rows],
            # A single seed has no deviation, which is null in the file.
            xerr=[row["deviation"].get(name) or 0.0 for row in rows],
            height=0.34,
            color=BLUE,
            ecolor=INK,
            label=f"ours, {table['data'].partition(':')[0]} {table['split']}",
        )
        axes.barh(
            [place + 0.18 for place in places],
            # NaN draws no bar; a 0 would look like a result of the paper.
            [row["paper"].get(name, math.nan) for row in rows],
            height=0.34,
            color="#c4c8ce",
            label=f"paper, {table['published_on']}",
        )
        axes.set_yticks(list(places), [f"{row['label']}, {row['stage']}" for row in rows])
        # Rows are the same in all panels, so their labels stand once.
        axes.tick_params(axis="y", length=0, labelleft=axes is drawn[0])
        # Bars count from below, and a table reads from above.
        axes.invert_yaxis()
        axes.set_title(f"{DIRECTIONS[direction]} {measure}", loc="left", fontsize=8.5)
        axes.set_xlabel("percent")
        axes.spines["left"].set_color(FAINT)
    figure.legend(*drawn[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    return figure
