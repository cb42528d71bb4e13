"""The log of evaluations in a run's folder, and what seeds add up to."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from limner.data.records import Dataset
from limner.durable import sealed
from limner.errors import DataError
from limner.evaluation.report import Report
from limner.inference.checkpoint import write_checkpoint
from limner.inference.evaluate_run import evaluate_run
from limner.inference.evaluations import FILE, note_look, noted, summarise
from limner.inference.load import load_model


def _report(
    value: float,
    seed: int,
    split: str = "test",
    fingerprint: str = "ab",
    *,
    stage: str = "s",
    reranked: int | str = 0,
    protocol: str = "flickr8k, same image",
) -> Report:
    return Report(
        protocol=protocol,
        split=split,
        counts={},
        image_to_text={"R@1": value},
        text_to_image={"R@1": value / 2},
        provenance={
            "split_fingerprint": fingerprint,
            "checkpoint": f"{stage}.safetensors",
            "recipe": "toy",
            "seed": seed,
            "reranked": reranked,
        },
    )


def _run(folder: Path, seed: int, *, source: str = "folder:toys", **settings: object) -> Path:
    folder.mkdir()
    recipe = {"name": "toy", "seed": seed, "rate": 0.1, **settings}
    description = {"recipe": recipe, "data": {"source": source}}
    for stage in ("s", "t"):
        write_checkpoint(folder / f"{stage}.safetensors", {"weight": torch.ones(1)}, description)
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
    # three at this split; the fourth was at another of the same name
    assert (summary.looks, len(summary.problems)) == (3, 1)
    assert "evaluations.jsonl: line 5 was cut off" in summary.problems[0]


def test_looks_that_are_no_ranking_count_and_are_no_figures(
    toys: Dataset, toy_run: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(toy_run, tmp_path / "run")
    (folder / FILE).unlink(missing_ok=True)
    run, test = load_model(folder, device="cpu"), toys.split("test")
    assert note_look(run, test.fingerprint, "test", "explanations") == (1, "")
    assert note_look(run, test.fingerprint, "test", "calibration") == (2, "")
    assert note_look(run, toys.split("val").fingerprint, "val", "calibration") == (1, "")
    with pytest.raises(DataError, match="no evaluation of split 'test'"):
        summarise([folder])
    assert evaluate_run(run, test, "test").provenance["evaluations_of_split"] == 3
    (summary,) = summarise([folder])
    assert summary.looks == 3


def test_another_set_s_test_split_is_no_look_at_this_one(tmp_path: Path) -> None:
    checkpoint = _run(tmp_path / "run", 0)
    for fingerprint in ("other", "other", "ab"):
        noted(_report(10.0, 0, fingerprint=fingerprint), checkpoint)
    (summary,) = summarise([tmp_path / "run"])
    assert (summary.split_fingerprint, summary.looks) == ("ab", 1)


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
        noted(_report(99.0, seed, split="val", fingerprint="val"), checkpoint)
    other = _run(tmp_path / "other", 0, rate=0.2)
    noted(_report(30.0, 0), other)
    rows = summarise([*(tmp_path / f"run{seed}" for seed in values), tmp_path / "other"])
    assert [(row.seeds, row.looks, row.splits) for row in rows] == [((0, 1, 2), 6, 1), ((0,), 1, 1)]
    assert rows[0].values["image_to_text"]["R@1"] == pytest.approx((23.0, 3.0))
    assert rows[0].values["text_to_image"]["R@1"] == pytest.approx((11.5, 1.5))
    assert rows[1].values["image_to_text"]["R@1"] == (30.0, None)


def test_intervals_are_kept_and_averaged(tmp_path: Path) -> None:
    """As the lines have them; not where one run's line has none."""
    for seed, ends in enumerate(((18.0, 22.0), (20.0, 27.0))):
        report = _report(20.0 + seed, seed).replace(intervals={"image_to_text": {"R@1": ends}})
        noted(report, _run(tmp_path / f"run{seed}", seed))
    runs, file = [tmp_path / "run0", tmp_path / "run1"], tmp_path / "kept.jsonl"
    (one,) = summarise(runs[:1])
    assert one.intervals == {"image_to_text": {"R@1": (18.0, 22.0)}, "text_to_image": {}}
    (both,) = summarise(runs, save=file)
    assert both.intervals == summarise([file])[0].intervals
    assert both.intervals == {"image_to_text": {"R@1": (19.0, 24.5)}, "text_to_image": {}}
    noted(_report(20.0, 0), tmp_path / "run0" / "s.safetensors")
    for order in (runs, runs[::-1]):
        assert not any(summarise(order)[0].intervals.values())
    # the same evaluation, kept with its interval and in the run without
    with pytest.raises(DataError, match="the same evaluation"):
        summarise([file, tmp_path / "run0"])


def test_evaluations_of_unlike_things_are_not_averaged(tmp_path: Path) -> None:
    """One run's stage, re-ranking, rules or split is not the other's: a mean of both would be of nothing."""
    unlike: dict[str, tuple[Any, Any]] = {
        "stage": ("s", "t"),
        "reranked": (0, 20),
        "protocol": ("flickr8k, same image", "plain, same image"),
        "fingerprint": ("ab", "cd"),
    }
    for name, values in unlike.items():
        runs = []
        for seed, value in enumerate(values):
            checkpoint = _run(tmp_path / f"{name}{seed}", seed)
            noted(_report(20.0 + 20 * seed, seed, **{name: value}), checkpoint)
            runs.append(checkpoint.parent)
        rows = summarise(runs)
        assert [row.values["image_to_text"]["R@1"] for row in rows] == [(20.0, None), (40.0, None)], name
        assert [row.split_fingerprint for row in rows] == (
            ["ab", "cd"] if name == "fingerprint" else ["ab", "ab"]
        )
    assert [
        (row.stage, row.reranked) for row in summarise([tmp_path / "stage1", tmp_path / "reranked1"])
    ] == [("t", 0), ("s", 20)]


def test_repeated_draws_of_one_set_are_one_row(tmp_path: Path) -> None:
    """Each draw has a split of its own; another set, other shares or the same draw of a set that grew has its row."""

    def run(name: str, drawn: str, fingerprint: str, source: str = "folder:toys") -> Path:
        checkpoint = _run(tmp_path / name, 0, source=f"{source}#{drawn}")
        protocol = f"plain, same image, drawn splits, {drawn}"
        noted(_report(20.0 + len(name), 0, fingerprint=fingerprint, protocol=protocol), checkpoint)
        return checkpoint.parent

    draws = [run("a", "draw=0/5/5", "ab"), run("aaa", "draw=1/5/5", "cd"), run("aaaaa", "draw=2/5/5", "ef")]
    (row,) = summarise(draws)
    assert (row.splits, row.split_fingerprint, len(row.runs)) == (3, None, 3)
    assert row.protocol == "plain, same image, drawn splits, draw=…/5/5"
    assert row.values["image_to_text"]["R@1"] == pytest.approx((23.0, 2.0))
    others = [
        run("b", "draw=0/9/9", "gh"),
        run("c", "seed=0", "ij"),
        run("d", "draw=7/5/5", "kl", "folder:others"),
        run("e", "draw=0/5/5", "mn"),
    ]
    assert [len(row.runs) for row in summarise([*draws, *others])] == [3, 1, 1, 1, 1]


def test_a_stage_and_a_re_ranking_can_be_asked_for(tmp_path: Path) -> None:
    """Of each run its last such evaluation, and all looks at the split all the same."""
    for seed in range(2):
        checkpoint = _run(tmp_path / f"run{seed}", seed)
        for value, stage, reranked in ((10.0, "s", 0), (30.0, "t", 20), (40.0, "t", "all"), (20.0, "t", 0)):
            noted(_report(value + seed, seed, stage=stage, reranked=reranked), checkpoint)
    runs = [tmp_path / "run0", tmp_path / "run1"]

    def mean(**asked: Any) -> tuple[float, int | None]:
        (row,) = summarise(runs, **asked)
        return row.values["image_to_text"]["R@1"][0], row.looks

    assert mean() == mean(stage="t") == mean(rerank=0) == (20.5, 8)
    assert mean(stage="s") == (10.5, 8)
    assert mean(rerank=20) == (30.5, 8)
    assert mean(stage="t", rerank="all") == (40.5, 8)
    with pytest.raises(DataError, match="no evaluation of split 'test' of s with --rerank 20 is noted"):
        summarise(runs, stage="s", rerank=20)


def test_a_file_keeps_the_evaluations_without_the_runs(tmp_path: Path) -> None:
    """What is made of it is what the runs gave, alone and beside another run; it names no folder."""
    for seed in range(2):
        checkpoint = _run(tmp_path / f"run{seed}", seed, source=f"folder:{tmp_path}#seed={seed}")
        protocol = f"plain, same image, drawn splits, seed={seed}"
        for value in (10.0, 20.0 + seed):
            noted(_report(value, seed, fingerprint=f"{seed}", protocol=protocol), checkpoint)
    runs, file = [tmp_path / "run0", tmp_path / "run1"], tmp_path / "kept.jsonl"
    (row,) = summarise(runs, save=file)
    (kept,) = summarise([file])
    assert kept == row.replace(runs=(f"{file}/run0", f"{file}/run1"), files=("kept",))
    assert (kept.looks, kept.splits) == (4, 2)
    assert str(tmp_path) not in file.read_text(encoding="utf-8")
    # a run more, and all of it into the same file
    third = _run(tmp_path / "run2", 2, source=f"folder:{tmp_path}#seed=2")
    noted(_report(25.0, 2, fingerprint="2", protocol="plain, same image, drawn splits, seed=2"), third)
    (grown,) = summarise([file, tmp_path / "run2"], save=file)
    assert grown.values == summarise([*runs, tmp_path / "run2"])[0].values == summarise([file])[0].values
    for twice in ([file, tmp_path / "run2"], [tmp_path / "run2", tmp_path / "run2"]):
        with pytest.raises(
            DataError, match=r"run2: the same evaluation as that of .*run2; leave one of them out"
        ):
            summarise(twice)
    # another look with the same figures makes it no other evaluation
    noted(_report(25.0, 2, fingerprint="2", protocol="plain, same image, drawn splits, seed=2"), third)
    with pytest.raises(DataError, match="the same evaluation"):
        summarise([file, tmp_path / "run2"])
    with pytest.raises(DataError, match="no evaluation of split 'val'"):
        summarise([file], "val")
    with pytest.raises(DataError, match="not a file of `limner summarise --save`; give the run's folder"):
        summarise([tmp_path / "run0" / FILE])
    file.write_text(file.read_text(encoding="utf-8").replace("21.0", "91.0"), encoding="utf-8")
    with pytest.raises(DataError, match=r"kept\.jsonl: line 2 is damaged"):
        summarise([file])


def test_figures_without_a_fingerprint_are_of_the_set_of_their_file(tmp_path: Path) -> None:
    """As those that were copied from a text: two files may be of two sets."""
    for seed in range(2):
        noted(_report(20.0 + seed, seed), _run(tmp_path / f"run{seed}", seed))
        summarise([tmp_path / f"run{seed}"], save=tmp_path / f"set{seed}.jsonl")
    files = [tmp_path / "set0.jsonl", tmp_path / "set1.jsonl"]
    (joined,) = summarise(files)
    assert joined.files == ("set0", "set1")
    for file in files:
        line = json.loads(file.read_text(encoding="utf-8"))
        del line["digest"]
        copied = sealed({**line, "split_fingerprint": None, "configuration": None, "looks": None})
        file.write_text(json.dumps(json.loads(copied)), encoding="utf-8")
    assert [(row.files, row.looks) for row in summarise(files)] == [(("set0",), None), (("set1",), None)]


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
