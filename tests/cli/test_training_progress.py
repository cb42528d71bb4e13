import io

import pytest
from rich.console import Console

from limner.cli import training_progress
from limner.cli.training_progress import TrainingProgress
from limner.training.events import Preparing, Stepped


def test_a_log_file_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    with TrainingProgress(Console(file=file, width=200)) as progress:
        progress.listen(Preparing("training features", 1, 9))
        assert not file.getvalue()
        monkeypatch.setattr(training_progress, "SECONDS_BETWEEN_LINES", 0)
        progress.listen(Preparing("training features", 5, 9))
        progress.listen(Stepped("stage-1", 2, 8, 3, 40, {"loss": 1.5}, 320.0))
    features, step = file.getvalue().splitlines()
    assert features == "training features  5/9"
    assert step.startswith("stage-1 2/8  3/40  loss 1.500  320 pairs/s")


def test_a_terminal_gets_the_bar_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_progress, "SECONDS_BETWEEN_LINES", 0)
    console = Console(file=io.StringIO(), force_terminal=True, record=True)
    with TrainingProgress(console) as progress:
        progress.listen(Preparing("training features", 5, 9))
        assert "training features  5/9" not in console.export_text()
