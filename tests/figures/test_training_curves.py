from pathlib import Path

import numpy as np
import pytest

from limner.errors import DataError
from limner.figures.training_curves import read_log, training_curves


def test_training_curves_are_the_log(toy_run: Path) -> None:
    rows = read_log(toy_run)
    assert rows == read_log(toy_run / "metrics.jsonl")
    losses, errors, scores = training_curves(rows).axes
    drawn = {str(line.get_label()): line.get_ydata() for line in losses.lines}
    np.testing.assert_array_equal(drawn["instance loss, sentences"], [row["textual"] for row in rows])
    ranking = np.asarray(drawn["ranking loss"], dtype=float)
    assert np.isnan(ranking[:3]).all()  # of stage II alone
    assert ranking[3:].tolist() == [row["ranking"] for row in rows[3:]]
    drawn = {str(line.get_label()): line.get_ydata() for line in errors.lines}
    assert {"pictures", "sentences"} <= drawn.keys()  # and the line between the stages
    assert "sums" not in drawn
    np.testing.assert_array_equal(drawn["pictures"], [row["visual_error"] for row in rows])
    forward = scores.lines[0]
    assert np.asarray(forward.get_xdata()).tolist() == [1, 2, 3, 4, 5]
    assert np.asarray(forward.get_ydata()).tolist() == [row["image_to_text"]["R@1"] for row in rows]


def test_without_an_instance_loss_there_is_no_error() -> None:
    report = {"R@1": 10.0}
    for name, label in (("ranking", "ranking loss"), ("cmce", "CMCE loss")):
        row = {"stage": "one", "epoch": 1, name: 2.0, "image_to_text": report, "text_to_image": report}
        losses, scores = training_curves([row]).axes
        assert losses.get_title(loc="left") == "loss"
        assert [str(line.get_label()) for line in losses.lines] == [label]
        assert scores.get_title(loc="left") == "R@1 on validation, percent"


def test_a_matcher_has_panels_of_its_own(reranking_run: Path) -> None:
    rows = read_log(reranking_run)
    drawn = {axes.get_title(loc="left"): axes for axes in training_curves(rows).axes}
    assert list(drawn) == ["loss", "matching loss", "matching error, percent", "R@1 on validation, percent"]
    line = np.asarray(drawn["matching loss"].lines[0].get_ydata(), dtype=float)
    assert np.isnan(line[:3]).all()
    assert line[3:].tolist() == [row["matching"] for row in rows[3:]]


def test_every_loss_of_hgan_has_a_line_of_its_own_colour(hgan_run: Path) -> None:
    losses = training_curves(read_log(hgan_run)).axes[0]
    lines = {str(line.get_label()): str(line.get_color()) for line in losses.lines[:5]}
    assert {"pair loss", "hinges, words", "hinges, phrases"} <= lines.keys()
    assert len(set(lines.values())) == 5


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "no log of a training run"), ("x", "not a log"), ("", "no epoch"), ('{"a": 1}', "no epoch")],
)
def test_what_is_no_log_is_refused(content: str | None, says: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "metrics.jsonl").write_text(content)
    with pytest.raises(DataError, match=says):
        read_log(tmp_path)
