"""The log of evaluations in a run's folder, and what seeds add up to."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from limner.data.records import Dataset
from limner.errors import DataError
from limner.evaluation.report import Report
from limner.inference import load_model
from limner.inference.checkpoint import write_checkpoint
from limner.inference.evaluate_run import evaluate_run
from limner.inference.evaluations import FILE, note_look, noted, summarise


def _report(value: float, seed: int, split: str = "test", fingerprint: str = "ab") -> Report:
    return Report(
        "flickr8k, same image",
        split,
        {},
        {"R@1": value},
        {"R@1": value / 2},
        provenance={
            "split_fingerprint": fingerprint,
            "checkpoint": "s.safetensors",
            "recipe": "toy",
            "seed": seed,
        },
    )


def _run(folder: Path, seed: int, **settings: object) -> Path:
    folder.mkdir()
    recipe = {"name": "toy", "seed": seed, "rate": 0.1, **settings}
    write_checkpoint(folder / "s.safetensors", {"weight": torch.ones(1)}, {"recipe": recipe})
    return folder / "s.safetensors"


def test_each_look_at_a_split_is_counted(tmp_path: Path) -> None:
    checkpoint = _run(tmp_path / "run", 0)
    looks = [
        noted(_report(1.0, 0, fingerprint=split), checkpoint).provenance["evaluations_of_split"]
        for split in ("ab", "ab", "other", "ab")
    ]
    assert looks == [1, 2, 1, 3]
    # a process that was killed leaves half a line
    with (tmp_path / "run" / FILE).open("a") as file:
        file.write('{"split": "te')
    assert len((tmp_path / "run" / FILE).read_text().splitlines()) == 5
    (summary,) = summarise([tmp_path / "run"])
    assert (summary.looks, len(summary.problems)) == (4, 1)
    assert "evaluations.jsonl: line 5 was cut off" in summary.problems[0]


def test_looks_that_are_no_ranking_count_and_are_no_figures(
    toys: Dataset, toy_run: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(toy_run, tmp_path / "run")
    (folder / FILE).unlink(missing_ok=True)
    run, test = load_model(folder, device="cpu"), toys.split("test")
    assert note_look(run, test, "test", "explanations") == (1, "")
    assert note_look(run, test, "test", "calibration") == (2, "")
    assert note_look(run, toys.split("val"), "val", "calibration") == (1, "")
    with pytest.raises(DataError, match="no evaluation of split 'test'"):
        summarise([folder])
    assert evaluate_run(run, test, "test").provenance["evaluations_of_split"] == 3
    (summary,) = summarise([folder])
    assert summary.looks == 1


def test_a_folder_that_cannot_be_written_keeps_the_figures(tmp_path: Path) -> None:
    report = noted(_report(1.0, 0), tmp_path / "none" / "s.safetensors")
    assert report.provenance["evaluations_of_split"] is None
    assert "cannot be written or read" in report.provenance["evaluations_problem"]
    assert report.image_to_text == {"R@1": 1}


def test_seeds_of_one_configuration_are_one_row(tmp_path: Path) -> None:
    values = {0: 20.0, 1: 23.0, 2: 26.0}
    for seed, value in values.items():
        checkpoint = _run(tmp_path / f"run{seed}", seed)
        noted(_report(value - 5, seed), checkpoint)  # an earlier look, which the last one replaces
        noted(_report(value, seed), checkpoint)
        noted(_report(99.0, seed, split="val"), checkpoint)
    other = _run(tmp_path / "other", 0, rate=0.2)
    noted(_report(30.0, 0), other)
    rows = summarise([*(tmp_path / f"run{seed}" for seed in values), tmp_path / "other"])
    assert [(row.seeds, row.looks, row.splits) for row in rows] == [((0, 1, 2), 6, 1), ((0,), 1, 1)]
    assert rows[0].values["image_to_text"]["R@1"] == pytest.approx((23.0, 3.0))
    assert rows[0].values["text_to_image"]["R@1"] == pytest.approx((11.5, 1.5))
    assert rows[1].values["image_to_text"]["R@1"] == (30.0, None)


def test_a_run_without_an_evaluation_is_told(tmp_path: Path) -> None:
    _run(tmp_path / "run", 0)
    with pytest.raises(DataError, match="no evaluation of split 'test' is noted"):
        summarise([tmp_path / "run"])
    noted(_report(1.0, 0), tmp_path / "run" / "s.safetensors")
    with pytest.raises(DataError, match="by mscoco"):
        summarise([tmp_path / "run"], protocol="mscoco")


def test_lines_are_plain_json(tmp_path: Path) -> None:
    checkpoint = _run(tmp_path / "run", 3)
    noted(_report(12.5, 3), checkpoint)
    line = json.loads((tmp_path / "run" / FILE).read_text())
    assert (line["seed"], line["split"], line["image_to_text"]) == (3, "test", {"R@1": 12.5})
    assert line["date"].endswith("+00:00")


def test_a_changed_byte_of_a_line_is_found(tmp_path: Path) -> None:
    """Any byte but layout, so that no figure and no count is another without an error."""
    checkpoint = _run(tmp_path / "run", 3)
    for value in (12.5, 20.0):
        noted(_report(value, 3), checkpoint)
    file = tmp_path / "run" / FILE
    whole = file.read_bytes()
    for place, byte in enumerate(whole):
        if chr(byte).isspace():
            continue
        file.write_bytes(whole[:place] + bytes([byte ^ 1]) + whole[place + 1 :])
        with pytest.raises(DataError, match=r"evaluations\.jsonl: line [12] is damaged"):
            summarise([tmp_path / "run"])
    provenance = noted(_report(1.0, 3), checkpoint).provenance
    assert provenance["evaluations_of_split"] is None
    assert "evaluations.jsonl: line 2 is damaged" in provenance["evaluations_problem"]


def test_half_a_line_does_not_take_the_next_one_along(tmp_path: Path) -> None:
    checkpoint = _run(tmp_path / "run", 3)
    with (tmp_path / "run" / FILE).open("w") as file:
        file.write('{"split": "te')
    first = noted(_report(1.0, 3), checkpoint).provenance
    assert first["evaluations_of_split"] == 1
    assert "evaluations.jsonl: line 1 was cut off" in first["evaluations_problem"]


def test_a_log_that_was_cut_off_anywhere_says_so(tmp_path: Path) -> None:
    """At any byte: only between two lines can nobody tell."""
    checkpoint = _run(tmp_path / "run", 3)
    file = tmp_path / "run" / FILE
    for value in (12.5, 20.0):
        assert "evaluations_problem" not in noted(_report(value, 3), checkpoint).provenance
    whole = file.read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(first, len(whole) + 1):
        file.write_bytes(whole[:length])
        # the digest stands last: from where its name is whole, the line is called damaged
        if b'"digest"' in whole[first:length] and length < len(whole) - 1:
            with pytest.raises(DataError, match="line 2 is damaged"):
                summarise([tmp_path / "run"])
            continue
        (summary,) = summarise([tmp_path / "run"])
        at_an_end = length in (first, len(whole) - 1, len(whole))
        assert (summary.problems == ()) == at_an_end
        assert summary.looks == (2 if length >= len(whole) - 1 else 1)
    file.write_bytes(whole[: first - 100] + whole[first - 1 :])
    (summary,) = summarise([tmp_path / "run"])
    assert "line 1 was cut off" in summary.problems[0]
    assert (summary.looks, summary.values["image_to_text"]["R@1"]) == (1, (20.0, None))
