import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limner.errors import DataError, SettingsError
from limner.evaluation.per_query import QueryValues, write_queries
from limner.figures.ablation_changes import ablation_figure, read_table

NAME = "text_to_image R@1"


def row(key: str, paper: float | None, *values: float) -> dict[str, Any]:
    runs = [{"seed": seed, "text_to_image": {"R@1": value}} for seed, value in enumerate(values)]
    mean = sum(values) / len(values)
    figures = {} if paper is None else {NAME: paper}
    return {
        "key": key,
        "label": f"row {key}",
        "stage": "I",
        "mean": {NAME: mean},
        "paper": figures,
        "runs": runs,
    }


def table(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"data": "flickr8k:x", "split": "val", "published_on": "Flickr30k", "rows": list(rows)}


def points(axes: Any) -> list[float]:
    return [float(x) for x in axes.lines[1].get_xdata()]


def half_widths(axes: Any) -> list[float]:
    segments = axes.collections[0].get_segments()
    return [float(segment[1][0] - segment[0][0]) / 2 for segment in segments]


def bands(axes: Any) -> dict[int, tuple[float, float]]:
    """Lower and upper end of the intervals over queries, by the row's number from the top."""
    ends = [drawn.get_segments()[0] for drawn in axes.collections[1:]]
    return {int(of[0][1]): (float(of[0][0]), float(of[1][0])) for of in ends}


def captions(axes: Any) -> str:
    """The line above the panels, and those below the figure."""
    return " ".join([*(text.get_text() for text in axes.texts), axes.figure.get_supxlabel()])


def write_values(folder: Path, of_row: dict[str, Any], *seeds: list[float]) -> None:
    """Write R@1 of each query of a row, a list a seed; every two queries are a cluster."""
    for run, values in zip(of_row["runs"], seeds, strict=True):
        run["folder"] = f"{of_row['key']}/seed-{run['seed']}"
        (folder / of_row["key"]).mkdir(exist_ok=True)
        places = np.arange(len(values))
        queries = QueryValues(places, places // 2, 0 * places, 1 + places, {"R@1": np.array(values, float)})
        write_queries(folder / f"{run['folder']}.csv", {"text_to_image": queries})


def test_changes_stand_on_axes_of_their_own_with_intervals(tmp_path: Path) -> None:
    rows = row("a", 24.1, 10, 20, 30), row("b", 30.0, 13, 22, 34), row("c", None, 9, 19, 29)
    (tmp_path / "table.json").write_text(json.dumps(table(*rows)))
    here, paper = ablation_figure(read_table(tmp_path)).axes
    assert points(here) == pytest.approx([0, 3, -1])
    # differences of equal seeds are 3, 2 and 4: deviation 1, Student's t of two degrees of freedom 4.303
    assert half_widths(here) == pytest.approx([0, 4.303 / 3**0.5, 0], abs=1e-3)
    assert points(paper)[:2] == pytest.approx([0, 5.9])
    assert str(points(paper)[2]) == "nan"  # the paper has no such figure
    assert [label.get_text() for label in here.get_yticklabels()] == ["row a, I", "row b, I", "row c, I"]


def test_any_row_is_the_baseline() -> None:
    figure = ablation_figure(table(row("a", 24.0, 10), row("b", 30.0, 13)), "b")
    assert [points(axes) for axes in figure.axes] == [[-3, 0], [-6, 0]]
    with pytest.raises(SettingsError, match="no row 'x'; its rows are a, b"):
        ablation_figure(table(row("a", None, 1), row("b", None, 2)), "x")


def test_a_table_of_no_paper_has_no_panel_of_one() -> None:
    rows = row("a", None, 10, 20, 30), row("b", None, 13, 22, 34)
    (here,) = ablation_figure({**table(*rows), "published_on": None}).axes
    assert points(here) == pytest.approx([0, 3])


def test_seeds_that_the_baseline_has_not_are_left_out() -> None:
    long = row("b", None, 13, 22, 34)
    assert points(ablation_figure(table(row("a", None, 10, 20), long)).axes[0]) == pytest.approx([0, 2.5])
    for run in long["runs"]:
        run["seed"] += 7
    # none in common: the means
    assert points(ablation_figure(table(row("a", None, 10, 20), long)).axes[0]) == pytest.approx([0, 8])


@pytest.mark.parametrize(
    ("content", "says"),
    [("{}", "not a table"), (json.dumps(table()), "no row"), ("x", "not a table"), ("[]", "not a table")],
)
def test_other_files_are_refused(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "table.json").write_text(content)
    with pytest.raises(DataError, match=says):
        read_table(tmp_path / "table.json")


def test_one_seed_has_the_interval_over_paired_queries(tmp_path: Path) -> None:
    first, better, same = row("a", 24.1, 50), row("b", 30.0, 75), row("c", 28.0, 50)
    write_values(tmp_path, first, [0, 0, 1, 1])
    write_values(tmp_path, better, [1, 0, 1, 1])
    write_values(tmp_path, same, [0, 0, 1, 1])
    here, paper = ablation_figure(table(first, better, same), folder=tmp_path).axes
    # Of two clusters one gains half of its queries: both drawn from it +50 points, neither +0.
    assert bands(here) == {1: (0, 50), 2: (0, 0)}
    assert half_widths(here) == [0, 0, 0]
    assert "one seed points against “row a, I”\nbands: 95% over queries (bootstrap, paired)" in captions(here)
    assert bands(paper) == {}


def test_several_seeds_have_lines_and_bands(tmp_path: Path) -> None:
    first, better = row("a", None, 50, 50), row("b", None, 75, 50)
    write_values(tmp_path, first, [0, 0, 1, 1], [0, 0, 1, 1])
    write_values(tmp_path, better, [1, 0, 1, 1], [0, 0, 1, 1])
    (here,) = ablation_figure({**table(first, better), "published_on": None}, folder=tmp_path).axes
    assert half_widths(here)[1] == pytest.approx(12.706 * 12.5, rel=1e-3)
    # The mean of the two seeds: a quarter of the queries of one cluster.
    assert bands(here) == {1: (0, 25)}
    assert "2 seeds points" in captions(here)
    assert "\nlines: 95% over seeds (Student's t)\nbands: 95% over queries" in captions(here)


def test_values_that_are_missing_or_of_draws_make_no_band(tmp_path: Path) -> None:
    first, better = row("a", None, 50), row("b", None, 75)
    write_values(tmp_path, first, [0, 0, 1, 1])
    better["runs"][0]["folder"] = "b/seed-0"
    whole = {**table(first, better), "published_on": None}
    (here,) = ablation_figure(whole, folder=tmp_path).axes
    assert bands(here) == {}
    assert captions(here).endswith("one seed, no interval points against “row a, I”")
    write_values(tmp_path, better, [1, 0, 1, 1])
    assert bands(ablation_figure(whole, folder=tmp_path).axes[0]) == {1: (0, 50)}
    for of_row in (first, better):
        # Each draw has queries of its own, and a file of the same name below another folder.
        of_row["runs"] = [{**of_row["runs"][0], "draw": draw} for draw in (0, 1)]
    (here,) = ablation_figure(whole, folder=tmp_path).axes
    assert bands(here) == {}
    assert "lines: 95% over seeds and draws" in captions(here)


def test_values_of_other_queries_are_refused(tmp_path: Path) -> None:
    first, better = row("a", None, 50), row("b", None, 75)
    write_values(tmp_path, first, [0, 0, 1, 1])
    write_values(tmp_path, better, [1, 0, 1])
    with pytest.raises(DataError, match="of different queries"):
        ablation_figure(table(first, better), folder=tmp_path)
