import json
from pathlib import Path
from typing import Any

import pytest

from limner.errors import DataError, SettingsError
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
