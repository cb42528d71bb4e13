"""An ablation table as changes against a baseline row: ours with intervals over seeds, the paper's beside them."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from limner.errors import DataError, SettingsError
from limner.figures.style import BLUE, DIRECTIONS, FAINT, INK, panels, styled

# matplotlib belongs to an extra: this module is imported without it, and says so when a figure is drawn.
if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEVEL = 0.95
"""Share of the intervals."""


def read_table(path: Path) -> Mapping[str, Any]:
    """The `table.json` of `limner ablate`, or of its folder. Raises `DataError` for anything else."""
    file = path / "table.json" if path.is_dir() else path
    try:
        table = json.loads(file.read_text(encoding="utf-8"))
        # Read for the KeyError alone: a table that lacks a key is refused here, not halfway through drawing.
        rows = [
            (row["key"], row["label"], row["stage"], row["paper"], _values(row, name))
            for row in table["rows"]
            for name in row["mean"]
        ]
    except OSError as error:
        raise DataError(f"{file}: no table of an ablation ({error.strerror})") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise DataError(f"{file}: not a table of `limner ablate`") from None
    if not rows:
        raise DataError(f"{file}: the table has no row")
    found: Mapping[str, Any] = table
    return found


@styled
def ablation_figure(table: Mapping[str, Any], baseline: str | None = None) -> "Figure":
    """A column a measure: above what each row changes against the baseline here, below what it changes in the paper,
    where the table is one's.

    `table` is that of `read_table`; `baseline` is the key of a row, by default the first. The two have axes of their
    own, since the paper's figures are of another dataset and network. Ours are means of the differences of equal seeds
    and draws with their 95 % interval (Student's t); a single seed has none. Values are points of percent.

    Raises `SettingsError` for a baseline that is no row.
    """
    rows = table["rows"]
    keys = [row["key"] for row in rows]
    if baseline is not None and baseline not in keys:
        raise SettingsError(
            f"baseline: the table has no row {baseline[:40]!r}; its rows are {', '.join(keys)}"
        )
    base = rows[keys.index(baseline or keys[0])]
    # Every row is measured by the same names, those of the ablation's protocol.
    names = list(base["mean"])
    figure, drawn = panels(len(names), 1 if table["published_on"] is None else 2, width=2.3, height=0.26 * len(rows) + 0.9, grid=False)
    for place, name in enumerate(names):
        direction, measure = name.split(" ", 1)
        title = f"{DIRECTIONS[direction]} {measure}"
        here = [_change(row, base, name) for row in rows]
        _draw(drawn[place], here, rows, f"{title}\nfrom {base['mean'][name]:.1f}", BLUE)
        if table["published_on"] is None:
            continue
        origin = base["paper"].get(name, math.nan)
        # NaN draws no point; a 0 would look like a result of the paper.
        paper = [(row["paper"].get(name, math.nan) - origin, 0.0) for row in rows]
        of = "\n" if math.isnan(origin) else f"\nfrom {origin:.1f}"
        _draw(drawn[len(names) + place], paper, rows, f"{title}{of}", FAINT)
    of_data = f"here: {table['data'].partition(':')[0]} {table['split']}, {_seeds(base)}"
    captions = {0: of_data}
    if table["published_on"] is not None:
        captions[len(names)] = f"the paper: {table['published_on']}"
    for first, text in captions.items():
        drawn[first].set_yticks(range(len(rows)), [f"{row['label']}, {row['stage']}" for row in rows])
        drawn[first].tick_params(axis="y", length=0)
        # Above the title of two lines; out of the layout, which would make the column as wide as the text.
        drawn[first].annotate(
            text, (0, 1), (0, 34), xycoords="axes fraction", textcoords="offset points", fontsize=9
        ).set_in_layout(False)
    figure.supxlabel(f"points against “{base['label']}, {base['stage']}”", fontsize=9)
    # Room for what stands above the titles.
    figure.set_layout_engine("constrained", rect=(0, 0, 1, 0.95), h_pad=0.16)
    return figure


def _draw(
    axes: "Axes", changes: list[tuple[float, float]], rows: list[Mapping[str, Any]], title: str, colour: str
) -> None:
    places = range(len(rows))
    axes.axvline(0, color="#c4c8ce", linewidth=0.8)
    axes.errorbar(
        [change for change, _ in changes],
        list(places),
        xerr=[half for _, half in changes],
        fmt="o",
        markersize=4,
        color=colour,
        ecolor=INK,
        elinewidth=1,
    )
    axes.set_yticks([])
    # A single row, the baseline alone, has no extent of its own.
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_title(title, loc="left", fontsize=8.5)
    axes.spines["left"].set_visible(False)


def _values(row: Mapping[str, Any], name: str) -> dict[tuple[int, int | None], float]:
    """The measure of each run of a row, by seed and draw."""
    direction, measure = name.split(" ", 1)
    return {(run["seed"], run.get("draw")): float(run[direction][measure]) for run in row["runs"]}


def _change(row: Mapping[str, Any], base: Mapping[str, Any], name: str) -> tuple[float, float]:
    """Mean of the differences of equal seeds and draws, and half of its interval; 0 for a single one."""
    ours, theirs = _values(row, name), _values(base, name)
    pairs = [ours[run] - theirs[run] for run in ours if run in theirs]
    if not pairs:
        # Rows of unlike seeds have no pairs, so the means alone are compared.
        return row["mean"][name] - base["mean"][name], 0.0
    if len(pairs) == 1 or row is base:
        return fmean(pairs), 0.0
    # It comes with scikit-learn, of the same extra.
    from scipy.stats import t

    quantile = float(t.ppf((1 + _LEVEL) / 2, len(pairs) - 1))
    return fmean(pairs), quantile * stdev(pairs) / math.sqrt(len(pairs))


def _seeds(base: Mapping[str, Any]) -> str:
    count = len(base["runs"])
    return "one seed, no interval" if count == 1 else f"{count} seeds, intervals of {_LEVEL:.0%}"
