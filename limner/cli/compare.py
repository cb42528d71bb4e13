"""`limner compare`: test whether two systems differ on the same queries."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from limner.cli.console import err, out
from limner.cli.contract import command, group
from limner.counted import counted
from limner.documented import Result
from limner.errors import SettingsError

if TYPE_CHECKING:
    from limner.evaluation.measures import Measure
    from limner.evaluation.per_query import NamedValues

app = group("Compare.")


class Comparison(Result):
    """One measure of two systems on the same queries."""

    direction: str
    """"image_to_text", "text_to_image", or "as given" of a file without directions."""
    measure: str
    """A column of the files."""
    first: str
    """The system that the other is compared with: its files."""
    second: str
    """The other system."""
    values: tuple[float, float]
    """Values of both, in the measure's unit."""
    difference: float
    """Second minus first."""
    interval: tuple[float, float] | None
    """95 % interval of the difference over clusters of queries; null below two clusters."""
    p: float
    """Two-sided p-value of a randomisation test that exchanges whole clusters."""
    p_holm: float
    """The same adjusted for the number of comparisons of this call (Holm)."""
    queries: int
    """Queries that both have."""
    clusters: int
    """Clusters of them."""
    precisions: tuple[str, str]
    """Arithmetic of both: "fp32", "bf16", "unknown" if a file does not say, with " and " between those of several
    files."""


@command(app, "compare")
def compare_command(
    systems: Annotated[
        list[str],
        "Files of `limner evaluate --per-query`, or tables of others (docs/measures.md), two or more; the "
        "first is compared with each other. Seeds of one system: files with commas between them.",
        "FILE…",
    ],
    measures: Annotated[
        str | None, "Columns to compare, e.g. 'R@1 mAP' (default: all that the files share)."
    ] = None,
) -> list[Comparison]:
    """Test whether systems differ on the same queries."""
    from rich.table import Table

    from limner.evaluation.intervals import difference, holm
    from limner.evaluation.per_query import expect_same, mean_of
    from limner.evaluation.report import shown

    if len(systems) < 2:
        raise SettingsError("compare takes two or more files; one alone has intervals in its report")
    files = [[Path(name) for name in system.split(",")] for system in systems]
    read = [mean_of(paths) for paths in files]
    precisions = dict(zip(systems, map(_precisions, read), strict=True))
    found = []
    for other, paths, name in zip(read[1:], files[1:], systems[1:], strict=True):
        for direction in (way for way in read[0] if way in other):
            first, second = read[0][direction], other[direction]
            expect_same(first, second, files[0][0], paths[0])
            for column in _columns(first.values, second.values, measures):
                measure = _measure(column)
                tested = difference(first.values[column], second.values[column], first.clusters, measure)
                found.append((direction, column, name, tested))
    if not found:
        raise SettingsError(f"{systems[0]} and {systems[1]} have no direction with a measure in common")
    adjusted = holm(np.array([tested.p for *_, tested in found]))
    table = Table(title=f"second minus first, first: {_short(systems[0])}", caption_justify="left")
    # without this remark a reader would take the first p below 0.05 of twenty for a finding
    table.caption = (
        "p by exchanging both systems' values in whole clusters; Holm: adjusted for "
        f"{counted(len(found), 'tests')}"
    )
    for head in ("second", "direction", "measure"):
        table.add_column(head)
    for head in ("values", "difference", "95 %", "p", "p (Holm)"):
        table.add_column(head, justify="right")
    rows = []
    for (direction, column, name, tested), p in zip(found, adjusted.tolist(), strict=True):
        ends = tested.interval
        table.add_row(
            _short(name),
            direction.replace("_to_", "→"),
            column,
            f"{shown(column, tested.first)} {shown(column, tested.second)}",
            f"{tested.difference:+.2f}",
            "–" if ends is None else f"{ends[0]:+.2f} {ends[1]:+.2f}",
            *(f"{value:.4f}" if value >= 0.0001 else "<0.0001" for value in (tested.p, p)),
        )
        rows.append(
            Comparison(
                direction=direction,
                measure=column,
                first=systems[0],
                second=name,
                values=(tested.first, tested.second),
                difference=tested.difference,
                interval=ends,
                p=tested.p,
                p_holm=p,
                precisions=(precisions[systems[0]], precisions[name]),
                queries=tested.queries,
                clusters=tested.clusters,
            )
        )
    out.print(table)
    _say_precisions(precisions)
    return rows


def _precisions(directions: "Mapping[str, NamedValues]") -> str:
    found = {name for values in directions.values() for name in values.precisions}
    return " and ".join(sorted(found))


def _say_precisions(by_system: "Mapping[str, str]") -> None:
    """Warn where the arithmetic differs: a model differs from itself then."""
    found = set(by_system.values())
    if len(found) > 1 or any(" and " in one for one in found):
        told = "; ".join(f"{_short(system)}: {one}" for system, one in by_system.items())
        err.print(
            f"the arithmetic differs ({told}), which alone changes ranks; evaluate with one --precision to compare the "
            "systems"
        )


def _columns(first: Collection[str], second: Collection[str], measures: str | None) -> list[str]:
    shared = [name for name in first if name in second]
    if measures is None:
        return shared
    wanted = measures.replace(",", " ").split()
    for name in wanted:
        if name not in shared:
            raise SettingsError(
                f"measures: the files do not both have '{name}'; they share {', '.join(shared)}"
            )
    return wanted


def _measure(column: str) -> "Measure | None":
    """The measure of a column; None for one of others, whose plain mean is compared."""
    from limner.evaluation.measures import Measure
    from limner.evaluation.names import parse_measure

    try:
        measure = parse_measure(column)
    except SettingsError:
        return None
    return measure if isinstance(measure, Measure) else None


def _short(system: str) -> str:
    names = [Path(name).stem for name in system.split(",")]
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
