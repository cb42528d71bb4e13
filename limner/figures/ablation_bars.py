"""An ablation table as bars: our means with their deviations beside the paper's figures."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limner.errors import DataError
from limner.figures.style import BLUE, DIRECTIONS, FAINT, INK, panels, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def read_table(path: Path) -> Mapping[str, Any]:
    """The `table.json` of `limner ablate`, or of its folder. Raises `DataError` for anything else."""
    file = path / "table.json" if path.is_dir() else path
    try:
        table = json.loads(file.read_text(encoding="utf-8"))
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
    names = list(rows[0]["mean"])
    figure, drawn = panels(len(names), width=2.3, height=0.5 * len(rows) + 1.1, grid=False)
    places = range(len(rows))
    for axes, name in zip(drawn, names, strict=True):
        direction, measure = name.split(" ", 1)
        axes.barh(
            [place - 0.18 for place in places],
            [row["mean"][name] for row in rows],
            xerr=[row["deviation"].get(name) or 0.0 for row in rows],
            height=0.34,
            color=BLUE,
            ecolor=INK,
            label=f"ours, {table['data'].partition(':')[0]} {table['split']}",
        )
        axes.barh(
            [place + 0.18 for place in places],
            [row["paper"].get(name, math.nan) for row in rows],
            height=0.34,
            color="#c4c8ce",
            label=f"paper, {table['published_on']}",
        )
        axes.set_yticks(list(places), [f"{row['label']}, {row['stage']}" for row in rows])
        axes.tick_params(axis="y", length=0, labelleft=axes is drawn[0])
        axes.invert_yaxis()
        axes.set_title(f"{DIRECTIONS[direction]} {measure}", loc="left", fontsize=8.5)
        axes.set_xlabel("percent")
        axes.spines["left"].set_color(FAINT)
    figure.legend(*drawn[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    return figure
