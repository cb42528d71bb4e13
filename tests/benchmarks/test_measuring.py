"""The result files of benchmarks: claim, limits, command and machine; none of a short run."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import measuring


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that results are written to."""
    monkeypatch.setattr(measuring, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


def test_result_says_claim_limits_command_and_machine(
    results: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(measuring, "SHORT", False)
    monkeypatch.setattr(sys, "argv", ["benchmark.py", "--vectors", str(tmp_path), "--rows", "7"])
    measuring.publish_pairs("exact_search", groups={"few": {"limner": {"ms": 1.0, "ratio": 0.3}}}, about={})
    found = json.loads((results / "exact_search.json").read_text(encoding="utf-8"))
    assert found["claim"].startswith("exact search for one query")
    assert [one["at_most"] for one in found["limits"]] == [0.35, 1.0]
    # a path is of this machine, and results are committed
    assert found["command"].endswith(" --vectors PATH --rows 7")
    assert {"processor", "cores", "threads", "load", "torch", "numpy", "python", "date"} <= found[
        "machine"
    ].keys()


def test_benchmark_without_a_claim_has_none(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "SHORT", False)
    measuring.write("another", {"x": 1})
    found = json.loads((results / "another.json").read_text(encoding="utf-8"))
    assert found["x"] == 1
    assert not {"claim", "limits"} & found.keys()


def test_short_run_has_one_turn_and_writes_nothing(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measuring, "SHORT", True)
    turns: list[int] = []
    measuring.taking_turns({"limner": lambda: turns.append(1)}, 15)
    assert len(turns) == 2  # the first does not count
    assert measuring.sized(100, 5) == 5
    measuring.write("exact_search", {})
    assert not results.exists()
    assert "no result file" in capsys.readouterr().out


def test_script_that_cannot_run_says_why_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        measuring.cannot_run("needs a GPU")
    assert stopped.value.code == measuring.NOT_RUN
    assert capsys.readouterr().err == "not run: needs a GPU\n"
