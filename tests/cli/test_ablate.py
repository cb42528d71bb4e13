import csv
import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from typer.testing import CliRunner

from limner.cli.root import app
from limner.data.records import Dataset
from limner.errors import CheckpointError, SettingsError
from limner.evaluation.per_query import read_queries
from limner.inference.evaluate_run import evaluate_run
from limner.inference.load import load_model
from limner.recipes.registry import RECIPES, RecipeEntry

SHORT = (
    *("--set", "stages.stage-1.epochs=2", "--set", "stages.stage-2.epochs=1"),
    *("--set", "stages.stage-1.views=1"),
)


@pytest.fixture(autouse=True)
def _toy_recipe_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RECIPES, "toy", RecipeEntry("tests.toy:toy_recipe", "Toys", "A toy."))


def _ablate(toys: Dataset, table: str, out: Path, *more: str) -> str:
    given = ["ablate", table, "--recipe", "toy", "--data", toys.source, "--out", str(out), "--cpu", *more]
    result = CliRunner().invoke(app, given, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def _table(out: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((out / "table.json").read_text(encoding="utf-8"))
    return loaded


def test_rows_of_table_4_share_their_first_stage(toys: Dataset, tmp_path: Path) -> None:
    output = _ablate(toys, "dual-path-table-4", tmp_path, *SHORT)
    table = _table(tmp_path)
    assert [(row["key"], row["stage"]) for row in table["rows"]] == [
        ("ranking-1", "I"),
        ("instance-1", "I"),
        ("both-1", "I"),
        ("instance-2", "II"),
        ("ranking-2", "II"),
        ("both-2", "II"),
    ]
    common = (tmp_path / "instance-1/seed-0/stage-1.safetensors").read_bytes()
    for key in ("instance-2", "ranking-2", "both-2"):
        assert (tmp_path / key / "seed-0/stage-1.safetensors").read_bytes() == common
        assert (tmp_path / key / "seed-0/stage-2.safetensors").exists()
    assert "shortened: the recipe has 3" in output
    assert "79.1" in output
    # the values of each query, which the figure's intervals of one seed are made of
    values = read_queries(tmp_path / "both-2/seed-0.csv")
    (row,) = (row for row in table["rows"] if row["key"] == "both-2")
    for name, mean in row["mean"].items():
        direction, measure = name.split()
        assert 100 * values[direction].values[measure].mean() == pytest.approx(mean)
    assert "bands: 95% over queries" in (tmp_path / "table.svg").read_text(encoding="utf-8")
    # run again, nothing is trained again
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.safetensors")}
    _ablate(toys, "dual-path-table-4", tmp_path, *SHORT)
    assert before == {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.safetensors")}
    assert _table(tmp_path) == table


def test_figures_are_the_mean_and_deviation_of_the_evaluated_runs(toys: Dataset, tmp_path: Path) -> None:
    _ablate(toys, "dual-path-table-7", tmp_path, *SHORT, "--seeds", "0, 4")
    table = _table(tmp_path)
    assert table["seeds"] == [0, 4]
    assert table["split"] == "val"
    assert table["split_fingerprint"] == toys.split("val").fingerprint
    row = table["rows"][0]
    measured = [
        evaluate_run(load_model(tmp_path / f"left/seed-{seed}"), toys.split("val"), "val").text_to_image[
            "R@10"
        ]
        for seed in (0, 4)
    ]
    assert row["mean"]["text_to_image R@10"] == pytest.approx(sum(measured) / 2)
    # of two values the sample deviation is their distance over √2
    expected = abs(measured[0] - measured[1]) / 2**0.5
    assert row["deviation"]["text_to_image R@10"] == pytest.approx(expected)
    assert row["paper"]["text_to_image R@10"] == 61.4
    assert row["settings"] == ["stages.stage-1.position_shift=false"]
    rows = list(csv.DictReader((tmp_path / "table.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 2 * 4
    found = next(
        r for r in rows if (r["row"], r["direction"], r["measure"]) == ("left", "text_to_image", "R@10")
    )
    assert float(found["mean"]) == pytest.approx(row["mean"]["text_to_image R@10"])
    page = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert (tmp_path / "table.svg").is_file()
    assert " ± " in page
    assert "(61.4)" in page
    assert "Order, stage I, image→text R@1" in page


def test_a_table_of_no_paper_has_its_figures_and_no_paper_beside_them(toys: Dataset, tmp_path: Path) -> None:
    given = ["--data", toys.source, "--out", str(tmp_path), "--cpu", "--set", "stages.tune.epochs=1"]
    rows = ["--row", "instance", "--row", "contrastive", "--seeds", "0,1"]
    result = CliRunner().invoke(app, ["ablate", "clip-losses", *given, *rows], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    table = _table(tmp_path)
    names = ["image_to_text R@1", "image_to_text R@10", "text_to_image R@1", "text_to_image R@10"]
    for row in table["rows"]:
        assert (list(row["mean"]), row["paper"]) == (names, {})
        values = [run["text_to_image"]["R@10"] for run in row["runs"]]
        assert row["mean"]["text_to_image R@10"] == pytest.approx(sum(values) / 2)
    assert table["published_on"] is None
    assert "paper" not in (tmp_path / "table.md").read_text(encoding="utf-8")
    assert (tmp_path / "table.png").stat().st_size > 1000


def test_cpu_is_for_measuring_too(toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "limner.inference.load.default_device", lambda: pytest.fail("the accelerator was taken")
    )
    _ablate(toys, "dual-path-table-7", tmp_path, *SHORT)


def test_stage_and_split_can_be_chosen(toys: Dataset, tmp_path: Path) -> None:
    output = _ablate(toys, "dual-path-table-4", tmp_path, *SHORT, "--stage", "II", "--split", "test")
    assert {row["stage"] for row in _table(tmp_path)["rows"]} == {"II"}
    assert (tmp_path / "instance-1/seed-0/run.json").exists()
    assert not (tmp_path / "ranking-1").exists()
    assert "Measured on the test split" in output
    assert "The test split was read 3 times by 3 runs" in " ".join(output.split())
    # finished runs are measured once more, which is a reading, too
    again = _ablate(toys, "dual-path-table-4", tmp_path, *SHORT, "--stage", "II", "--split", "test")
    assert "The test split was read 6 times by 3 runs" in " ".join(again.split())


def test_rows_can_be_chosen(toys: Dataset, tmp_path: Path) -> None:
    _ablate(toys, "dual-path-table-4", tmp_path, *SHORT, "--row", "both-2", "--row", "instance-1")
    assert [row["key"] for row in _table(tmp_path)["rows"]] == ["instance-1", "both-2"]
    assert not (tmp_path / "instance-2").exists()


def test_numbers_of_classes_can_be_given(toys: Dataset, tmp_path: Path) -> None:
    _ablate(toys, "dual-path-table-5", tmp_path, *SHORT, "--classes", "3,6")
    rows = _table(tmp_path)["rows"]
    assert [row["label"] for row in rows] == ["3 categories", "6 categories", "each group a class"]
    shapes = [
        load_file(tmp_path / row["key"] / "seed-0/stage-1-classifier.safetensors")["weight"].shape[0]
        for row in rows
    ]
    assert shapes == [3, 6, len(toys.split("train"))]


def test_mistakes_are_named(toys: Dataset, tmp_path: Path) -> None:
    for more, message in (
        (("--stage", "II"), "--stage II: dual-path-table-7 has rows of stage I"),
        (("--seeds", "0,x"), "--seeds: expected different whole numbers"),
        (("--seeds", "1,1"), "--seeds: expected different whole numbers"),
        (("--set", "seed=3"), "--seeds 0,1,2"),
        (("--classes", "3"), "--classes: expected two numbers"),
        (("--row", "middle"), "no such row; there are: left, shift"),
    ):
        with pytest.raises(SettingsError, match=message):
            _ablate(toys, "dual-path-table-7", tmp_path / "none", *more)
    assert not (tmp_path / "none").exists()
    _ablate(toys, "dual-path-table-7", tmp_path / "runs", *SHORT)
    with pytest.raises(CheckpointError, match="cannot resume"):
        _ablate(toys, "dual-path-table-7", tmp_path / "runs", "--set", "stages.stage-1.epochs=1")


def test_table_2_of_the_matcher_and_table_3_by_class(
    toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RECIPES, "toy", RecipeEntry("tests.toy:toy_reranking", "Toys", "A toy."))
    short = [
        *("--set", "stages.stage-1.epochs=1", "--set", "stages.stage-1.views=1"),
        *("--set", "stages.stage-2-language.epochs=1", "--set", "stages.stage-2.epochs=1"),
        *("--set", 'stages.stage-2.frozen=["backbone"]', "--set", "stages.stage-2.part_optimisers={}"),
    ]
    output = _ablate(toys, "identity-aware-table-2", tmp_path / "2", *short)
    rows = {row["key"]: row for row in _table(tmp_path / "2")["rows"]}
    assert list(rows) == ["triplet", "cmce", "alone", "plain", "spatial", "no-identities", "full"]
    assert "25.9" in output
    stage_1 = (tmp_path / "2/cmce/seed-0/stage-1.safetensors").read_bytes()
    for key in ("plain", "spatial", "full"):
        assert (tmp_path / "2" / key / "seed-0/stage-1.safetensors").read_bytes() == stage_1
    assert not (tmp_path / "2/alone/seed-0/stage-1.safetensors").exists()
    classes = _ablate(toys, "identity-aware-table-3", tmp_path / "3", *short, "--split", "test")
    assert "text→image AP@50" in classes
    assert "57.6" in classes
    assert _table(tmp_path / "3")["rows"][2]["mean"].keys() == {"image_to_text R@1", "text_to_image AP@50"}
