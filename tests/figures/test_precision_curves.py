import json
from pathlib import Path

import numpy as np
import pytest

from limner.errors import DataError
from limner.figures.precision_curves import precision_figure, read_curves
from limner.figures.style import write_figure


def test_precision_curves_of_reports(tmp_path: Path) -> None:
    curve = {"recall": [0.0, 0.5, 1.0], "precision": [1.0, 0.7, 0.2]}
    one = {"image_to_text": {"PR-curve": curve}, "text_to_image": {"PR-curve": curve}}
    (tmp_path / "a.json").write_text(json.dumps({"curves": one}))
    figure = precision_figure([read_curves(tmp_path / "a.json")] * 2, ["first", "second"])
    assert len(figure.axes) == 2
    assert [str(line.get_label()) for line in figure.axes[0].lines] == ["first", "second"]
    assert np.asarray(figure.axes[1].lines[0].get_ydata()).tolist() == curve["precision"]
    (tmp_path / "b.json").write_text(json.dumps({"protocol": "plain"}))
    with pytest.raises(DataError, match="no curves are in it"):
        read_curves(tmp_path / "b.json")
    with pytest.raises(DataError, match="no kind of curve of one direction in common"):
        precision_figure([one, {"image_to_text": {}, "text_to_image": {}}], ["a", "b"])


def test_scopes_are_written_as_numbers(tmp_path: Path) -> None:
    curve = {"scope": [1, 10, 100], "precision": [0.5, 0.2, 0.1]}
    report = {"image_to_text": {"scope-curve": curve}, "text_to_image": {"scope-curve": curve}}
    write_figure(precision_figure([report], ["one"]), tmp_path / "a.svg")
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert ">100</text>" in drawn
    assert "$" not in drawn


def test_a_trec_run_has_one_direction(tmp_path: Path) -> None:
    curve = {"recall": [0.0, 1.0], "precision": [1.0, 0.2]}
    (tmp_path / "run.json").write_text(json.dumps({"values": {}, "curves": {"PR-curve": curve}}))
    drawn = read_curves(tmp_path / "run.json")
    assert len(precision_figure([drawn], ["theirs"]).axes) == 1
    with pytest.raises(DataError, match="of one direction in common"):
        precision_figure([drawn, {"image_to_text": drawn[""], "text_to_image": drawn[""]}], ["a", "b"])


@pytest.mark.parametrize(
    "curve", [5, {}, {"recall": [1]}, {"recall": [1], "precision": []}, {"recall": "a", "precision": "a"}]
)
def test_curves_that_are_none_are_refused(curve: object, tmp_path: Path) -> None:
    curves = {"image_to_text": {"PR-curve": curve}, "text_to_image": {"PR-curve": curve}}
    (tmp_path / "bad.json").write_text(json.dumps({"curves": curves}))
    with pytest.raises(DataError, match="no curves are in it"):
        read_curves(tmp_path / "bad.json")
