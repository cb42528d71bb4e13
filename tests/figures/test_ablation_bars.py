import json
import math
from pathlib import Path

import pytest

from limner.errors import DataError
from limner.figures.ablation_bars import ablation_figure, read_table


def test_ablations_stand_beside_the_paper(tmp_path: Path) -> None:
    name = "text_to_image R@1"
    rows = [
        {
            "label": "both",
            "stage": "I",
            "mean": {name: 30.0},
            "deviation": {name: 1.5},
            "paper": {name: 24.1},
        },
        {"label": "one", "stage": "I", "mean": {name: 20.0}, "deviation": {name: None}, "paper": {}},
    ]
    table = {"data": "flickr8k:x", "split": "val", "published_on": "Flickr30k", "rows": rows}
    (tmp_path / "table.json").write_text(json.dumps(table))
    (axes,) = ablation_figure(read_table(tmp_path)).axes
    widths = [bar.get_width() for bar in axes.patches]  # type: ignore[attr-defined]
    assert widths[:3] == [30.0, 20.0, 24.1]
    assert math.isnan(widths[3])  # the paper has no such figure
    assert [label.get_text() for label in axes.get_yticklabels()] == ["both, I", "one, I"]
    for content, says in (
        ("{}", "not a table"),
        (json.dumps({**table, "rows": []}), "no row"),
        ("x", "not a table"),
    ):
        (tmp_path / "table.json").write_text(content)
        with pytest.raises(DataError, match=says):
            read_table(tmp_path / "table.json")
