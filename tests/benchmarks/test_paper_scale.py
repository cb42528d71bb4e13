"""The dry run of a paper's recipe, on a small network."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks.paper_scale import DryRun, dry_run, table, write

SMALL = (
    "model.text.width=0.02",
    "model.text.word_dim=8",
    "model.dim=16",
    "images.resize=40",
    "images.crop=[32,32]",
)


def test_both_stages_are_run_and_memory_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    # what a machine with a GPU has; the training itself asks for the accelerator
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found = dry_run("dual-path-flickr8k", steps=2, samples=4, settings=SMALL)
    assert list(found["stages"]) == ["stage-1", "stage-2"]
    for row in found["stages"].values():
        assert all(value > 0 for value in row.values())
    assert 0.1 < found["peak_gb"] < 64
    assert found["peak_gpu_gb"] is None


def test_the_table_says_which_loss_falls_and_the_memory_of_a_gpu() -> None:
    stages = {
        "stage-1": {"first": 4.0, "last": 3.0, "steps_per_second": 2.0},
        "stage-2": {"first": 3.0, "last": 3.0, "steps_per_second": 1.0},
    }
    row: DryRun = {"stages": stages, "peak_gb": 1.5, "peak_gpu_gb": 11.25}
    first, second = table("dual-path", row)
    assert "4.000 →    3.000 falls" in first
    assert "DOES NOT FALL" in second
    assert first.endswith("1.5 GB   GPU 11.2 GB")
    assert table("dual-path", {**row, "peak_gpu_gb": None})[0].endswith("GPU –")


def test_a_row_replaces_that_of_the_same_recipe_and_settings(tmp_path: Path) -> None:
    file = tmp_path / "paper_scale.json"
    for name, settings, first in (("a", [], 1.0), ("a", ["x=1"], 2.0), ("b", [], 3.0), ("a", [], 4.0)):
        row: DryRun = {"stages": {"one": {"first": first}}, "peak_gb": 1.0, "peak_gpu_gb": None}
        write(file, name, 4, 8, settings, row)
    found = json.loads(file.read_text(encoding="utf-8"))["runs"]
    kept = [(one["recipe"], one["settings"], one["stages"]["one"]["first"]) for one in found]
    assert kept == [("a", ["x=1"], 2.0), ("b", [], 3.0), ("a", [], 4.0)]
