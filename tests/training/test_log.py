import json
import resource
from pathlib import Path

import pytest

from limner.errors import CheckpointError
from limner.training.log import MetricsLog


def _row(epoch: int) -> dict[str, object]:
    return {"stage": "stage-1", "epoch": epoch, "loss": 1 / epoch, "text_to_image": {"R@1": 10.0 * epoch}}


def _epochs(folder: Path) -> list[int]:
    return [json.loads(line)["epoch"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_rows_are_whole_lines_and_add_tells_the_length(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    sizes = [log.add(_row(epoch)) for epoch in (1, 2)]
    log.close()
    text = (tmp_path / "metrics.jsonl").read_bytes()
    assert sizes[-1] == len(text)
    assert text[sizes[0] - 1 : sizes[0]] == b"\n"
    assert json.loads(text[sizes[0] :]) == _row(2)


def test_cut_drops_what_stands_behind(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    kept = [log.add(_row(epoch)) for epoch in (1, 2, 3)][1]
    log.close()
    # killed in the middle of a line, then resumed from the state of epoch 2
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"stage": "sta')
    resumed = MetricsLog(tmp_path)
    resumed.cut(kept)
    assert _epochs(tmp_path) == [1, 2]
    resumed.add(_row(3))
    resumed.close()
    assert _epochs(tmp_path) == [1, 2, 3]


def test_a_log_that_is_shorter_is_not_filled_up(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    log.cut(100)
    size = log.add(_row(2))
    # a later stage says where the log ends, and no row goes
    log.cut(0)
    log.close()
    assert (tmp_path / "metrics.jsonl").stat().st_size == size
    assert _epochs(tmp_path) == [2]


def test_a_disk_that_refuses_is_one_line(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(
        CheckpointError, match=r"metrics\.jsonl: cannot be written \(No space left on device\)"
    ):
        log.add(_row(1))
    log.close()


def test_another_process_writes_nothing(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, enabled=False)
    log.cut(0)
    assert log.add(_row(1)) == 0
    log.close()
    assert not list(tmp_path.iterdir())


def test_tensorboard_drops_the_epochs_that_are_run_again(tmp_path: Path) -> None:
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    log = MetricsLog(tmp_path)
    log.cut(0)
    kept, _, _ = [log.add(_row(epoch)) for epoch in (1, 2, 3)]
    log.close()
    resumed = MetricsLog(tmp_path)
    resumed.cut(kept)
    resumed.add({**_row(1), "stage": "stage-2"})
    resumed.close()
    events = reading.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("stage-1/loss")] == [1]
    assert [event.step for event in events.Scalars("stage-2/loss")] == [2]


def test_a_full_disk_is_an_error_and_no_stack_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """TensorBoard's own writer told it from a thread, with a stack trace."""
    pytest.importorskip("tensorboard")
    log = MetricsLog(tmp_path)
    log.cut(0)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    written = max(path.stat().st_size for path in (tmp_path / "tensorboard").iterdir())
    # metrics.jsonl is still shorter than this
    resource.setrlimit(resource.RLIMIT_FSIZE, (written + 10, before[1]))
    try:
        with pytest.raises(CheckpointError, match="cannot be written"):
            log.add({"stage": "s", "epoch": 1})
        log.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert capfd.readouterr().err == ""
