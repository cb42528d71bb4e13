"""An ablation table as changes against a baseline row: ours with intervals, the paper's beside them.

Two intervals answer two questions. The one over seeds says how far a change would move with other trainings: it is
Student's t of the differences of equal seeds. The one over queries says how far it would move with other queries of the
same kind: it is a bootstrap of the differences of equal queries, means over the seeds, with whole clusters drawn.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from limner.durable import read_json
from limner.errors import DataError, SettingsError
from limner.evaluation.intervals import Interval, difference
from limner.evaluation.measures import Measure
from limner.evaluation.names import parse_measure
from limner.evaluation.per_query import NamedValues, expect_same, mean_of
from limner.figures.style import BLUE, DIRECTIONS, FAINT, INK, SKY, panels, styled

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
        table = read_json(file)
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


@dataclass(frozen=True)
class _Change:
    """The change of a measure by a row, in points of percent, with its intervals where they are known.

    - `over_seeds`: half of the interval; 0 for a single seed.
    - `over_queries`: lower and upper end.
    """

    points: float
    over_seeds: float = 0.0
    over_queries: Interval | None = None


@styled
def ablation_figure(
    table: Mapping[str, Any], baseline: str | None = None, folder: Path | None = None
) -> "Figure":
    """A column a measure: above what each row changes against the baseline here, below what it changes in the paper,
    where the table is one's.

    `table` is that of `read_table`; `baseline` is the key of a row, by default the first. The two have axes of their
    own, since the paper's figures are of another dataset and network. Ours are means of the differences of equal seeds
    and draws. A line is their 95 % interval (Student's t), which a single seed does not have. A band is the 95 %
    interval over queries, where `folder`, that of `limner ablate`, has the values of each query of both rows. Each draw
    of the splits has other queries, so draws have lines alone. Values are points of percent.

    Raises `SettingsError` for a baseline that is no row, `DataError` for damaged values of queries.
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
    queries = [None if row is base or folder is None else _queries(row, base, folder) for row in rows]
    drawn_over = _intervals(base, any(pair is not None for pair in queries))
    figure, drawn = panels(
        len(names),
        1 if table["published_on"] is None else 2,
        width=2.3,
        # the lines below the panels would leave two rows of a table no height
        height=0.3 * len(rows) + 1.1 + 0.25 * len(drawn_over),
        grid=False,
    )
    for place, name in enumerate(names):
        direction, measure = name.split(" ", 1)
        title = f"{DIRECTIONS[direction]} {measure}"
        here = [_change(row, base, name, pair) for row, pair in zip(rows, queries, strict=True)]
        _draw(drawn[place], here, rows, f"{title}\nfrom {base['mean'][name]:.1f}", BLUE)
        if table["published_on"] is None:
            continue
        origin = base["paper"].get(name, math.nan)
        # NaN draws no point; a 0 would look like a result of the paper.
        paper = [_Change(row["paper"].get(name, math.nan) - origin) for row in rows]
        of = "\n" if math.isnan(origin) else f"\nfrom {origin:.1f}"
        _draw(drawn[len(names) + place], paper, rows, f"{title}{of}", FAINT)
    seeds = _seeds(base) if drawn_over else f"{_seeds(base)}, no interval"
    captions = {0: f"here: {table['data'].partition(':')[0]} {table['split']}, {seeds}"}
    if table["published_on"] is not None:
        captions[len(names)] = f"the paper: {table['published_on']}"
    for first, text in captions.items():
        drawn[first].set_yticks(range(len(rows)), [f"{row['label']}, {row['stage']}" for row in rows])
        drawn[first].tick_params(axis="y", length=0)
        # Above the title of two lines; out of the layout, which would make the column as wide as the text.
        drawn[first].annotate(
            text, (0, 1), (0, 34), xycoords="axes fraction", textcoords="offset points", fontsize=9
        ).set_in_layout(False)
    # Below and not in the captions: a table of two measures is too narrow for them.
    against = f"points against “{base['label']}, {base['stage']}”"
    figure.supxlabel("\n".join([against, *drawn_over]), fontsize=9)
    # Room for what stands above the titles.
    figure.set_layout_engine("constrained", rect=(0, 0, 1, 0.95), h_pad=0.16)
    return figure


def _draw(
    axes: "Axes", changes: list[_Change], rows: list[Mapping[str, Any]], title: str, colour: str
) -> None:
    places = range(len(rows))
    axes.axvline(0, color="#c4c8ce", linewidth=0.8)
    axes.errorbar(
        [change.points for change in changes],
        list(places),
        xerr=[change.over_seeds for change in changes],
        fmt="o",
        markersize=4,
        color=colour,
        ecolor=INK,
        elinewidth=1,
        # Above the bands.
        zorder=3,
    )
    for place, change in enumerate(changes):
        if change.over_queries is not None:
            axes.hlines(place, *change.over_queries, color=SKY, linewidth=6, alpha=0.6)
    axes.set_yticks([])
    # A single row, the baseline alone, has no extent of its own.
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_title(title, loc="left", fontsize=8.5)
    axes.spines["left"].set_visible(False)


def _values(row: Mapping[str, Any], name: str) -> dict[tuple[int, int | None], float]:
    """The measure of each run of a row, by seed and draw."""
    direction, measure = name.split(" ", 1)
    return {(run["seed"], run.get("draw")): float(run[direction][measure]) for run in row["runs"]}


_Pair = tuple[Mapping[str, NamedValues], Mapping[str, NamedValues]]
"""The values of each query of the baseline and of a row, by direction: means over the seeds that both have."""


def _queries(row: Mapping[str, Any], base: Mapping[str, Any], folder: Path) -> _Pair | None:
    """The values of both rows' queries; None where any of them is missing, and for draws of the splits."""
    ours, theirs = (
        {run["seed"]: folder / f"{run['folder']}.csv" for run in one["runs"] if "draw" not in run}
        for one in (row, base)
    )
    seeds = [seed for seed in ours if seed in theirs]
    if not seeds or not all(files[seed].is_file() for files in (ours, theirs) for seed in seeds):
        return None
    first, second = (mean_of([files[seed] for seed in seeds]) for files in (theirs, ours))
    for direction, values in first.items():
        if direction in second:
            expect_same(values, second[direction], theirs[seeds[0]], ours[seeds[0]])
    return first, second


def _change(row: Mapping[str, Any], base: Mapping[str, Any], name: str, pair: _Pair | None) -> _Change:
    """Mean of the differences of equal seeds and draws, with its intervals."""
    ours, theirs = _values(row, name), _values(base, name)
    pairs = [ours[run] - theirs[run] for run in ours if run in theirs]
    if not pairs:
        # Rows of unlike seeds have no pairs, so the means alone are compared.
        return _Change(row["mean"][name] - base["mean"][name])
    over_queries = None if pair is None else _over_queries(*pair, *name.split(" ", 1))
    if len(pairs) == 1 or row is base:
        return _Change(fmean(pairs), over_queries=over_queries)
    # It comes with scikit-learn, of the same extra.
    from scipy.stats import t

    quantile = float(t.ppf((1 + _LEVEL) / 2, len(pairs) - 1))
    return _Change(fmean(pairs), quantile * stdev(pairs) / math.sqrt(len(pairs)), over_queries)


def _over_queries(
    first: Mapping[str, NamedValues], second: Mapping[str, NamedValues], direction: str, name: str
) -> Interval | None:
    measure = parse_measure(name)
    known = all(direction in side and name in side[direction].values for side in (first, second))
    # Figures over both directions or over classes are not made of queries.
    if not known or not isinstance(measure, Measure):
        return None
    before, after = first[direction], second[direction]
    return difference(
        before.values[name], after.values[name], before.clusters, measure, level=_LEVEL
    ).interval


def _seeds(base: Mapping[str, Any]) -> str:
    count = len(base["runs"])
    return "one seed" if count == 1 else f"{count} {_runs(base)}"


def _runs(base: Mapping[str, Any]) -> str:
    return "seeds and draws" if any("draw" in run for run in base["runs"]) else "seeds"


def _intervals(base: Mapping[str, Any], queries: bool) -> list[str]:
    """Say what the intervals are over, a line each."""
    lines = f"lines: {_LEVEL:.0%} over {_runs(base)} (Student's t)"
    bands = f"bands: {_LEVEL:.0%} over queries (bootstrap, paired)"
    return [lines] * (len(base["runs"]) > 1) + [bands] * queries
