import io
import re
from types import SimpleNamespace

import pytest
from rich.console import Console

from limner.cli import training_progress
from limner.cli.training_progress import TrainingProgress
from limner.training.log import Preparing, Stepped


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Seconds that pass when the test says so."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(training_progress, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_a_log_file_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    with TrainingProgress(Console(file=file, width=200)) as progress:
        progress.listen(Preparing("training features", 1, 9))
        assert not file.getvalue()
        monkeypatch.setattr(training_progress, "SECONDS_BETWEEN_LINES", 0)
        progress.listen(Preparing("training features", 5, 9))
        progress.listen(Stepped("stage-1", 2, 8, 3, 40, {"loss": 1.5}, 320.0))
    features, step = file.getvalue().splitlines()
    assert re.fullmatch(r"training features  5/9  \d+ pictures/s  0:00:0\d left", features)
    assert step.startswith("stage-1 2/8  3/40  loss 1.500  320 pairs/s")


def test_a_terminal_gets_the_bar_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_progress, "SECONDS_BETWEEN_LINES", 0)
    console = Console(file=io.StringIO(), force_terminal=True, record=True)
    with TrainingProgress(console) as progress:
        progress.listen(Preparing("training features", 5, 9))
        assert "training features  5/9" not in console.export_text()


def test_features_come_with_pictures_a_second_and_time_left(clock: SimpleNamespace) -> None:
    file = io.StringIO()
    with TrainingProgress(Console(file=file, width=200)) as progress:
        for what, done, after in (
            ("vocabulary and network", 0, 0),
            ("training features", 1032, 70),  # of an interrupted run, which had 1,000 already
            ("training features", 2232, 60),
            ("training features", 4032, 60),
            ("validation features", 1, 1),
            ("validation features", 7, 60),
        ):
            clock.now += after
            progress.listen(Preparing(what, done, 100_000))
    assert file.getvalue().splitlines() == [
        "training features  1032/100000",
        "training features  2232/100000  20 pictures/s  1:21:28 left",
        "training features  4032/100000  25 pictures/s  1:03:58 left",
        "validation features  7/100000  0.1 pictures/s  277:45:30 left",
    ]


def test_a_terminal_shows_the_same_beside_the_bar(clock: SimpleNamespace) -> None:
    screen = io.StringIO()
    with TrainingProgress(Console(file=screen, force_terminal=True, width=120)) as progress:
        for done in (32, 64):
            clock.now += 2
            progress.listen(Preparing("training features", done, 96))
    assert "16 pictures/s  0:00:02 left" in screen.getvalue()
