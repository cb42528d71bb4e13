import json
import re
import sys
from pathlib import Path

import pytest

from limner.cli.figure import CorrelationFigure, FigureFiles
from tests.cli.command import Limner, refused


def test_every_figure_is_drawn(
    limner: Limner, toy_run: Path, reranking_run: Path, pictures: Path, tmp_path: Path
) -> None:
    data = f"folder:{pictures}"
    saved, report = tmp_path / "ours.npz", tmp_path / "report.json"
    evaluated = limner(
        *("evaluate", toy_run, "--data", data, "--split", "train", "--save", saved),
        *("--measures", "R@1 PR-curve scope-curve", "--report", report),
    )
    assert evaluated.code == 0
    rows = [json.loads(line) for line in (pictures / "captions.jsonl").read_text().splitlines()]
    groups = [row["identity"] for row in rows if row["split"] == "train"]
    image = next(iter(sorted(pictures.glob("*.png"))))
    figures: dict[str, list[object]] = {
        "training": [toy_run],
        "similarities": [saved, saved, "--title", "one", "--title", "two"],
        "precision": [report],
        "map": [
            *(toy_run, "--data", data, "--split", "train", "--group", groups[0], "--group", groups[1]),
            *("--group", groups[2], "--group", groups[3]),
        ],
        "correlation": [toy_run, "--data", data, "--images", 5],
        "ranks": [toy_run, "--data", data, "--queries", 2, "-k", 3],
        "nearest": [toy_run, "red", "square", "-k", 3],
        "words": [toy_run, image, "a red square on white"],
        "attention": [reranking_run, image, "a red square on white", "--stage", "stage-2", "--bare"],
    }
    for name, arguments in figures.items():
        file = tmp_path / f"{name}.svg"
        drawn = limner("figure", name, *arguments, "--out", file)
        assert drawn.code == 0, drawn.err
        assert drawn.out.split("\n")[0] == str(file)
        assert file.read_text(encoding="utf-8").lstrip().startswith("<?xml")
    drawn = limner("figure", "ranks", *figures["ranks"], "--out", tmp_path / "again.svg")
    assert re.search(r"evaluated on this split \d+ times; choose nothing by it", drawn.err)
    told = limner("figure", "correlation", *figures["correlation"], "--out", file, "--json").out
    means = CorrelationFigure.model_validate_json(told)
    shown = file.read_text(encoding="utf-8")
    assert all(f"mean {value:.3f}" in shown for value in (means.backbone, means.embedding))
    told = limner("figure", "attention", *figures["attention"], "--out", file, "--json").out
    assert FigureFiles.model_validate_json(told).files == (file,)
    refused(
        limner("figure", "similarities", saved, "--title", "a", "--title", "b", "--out", "x.png"), "1 files"
    )
    mapped = ("figure", "map", toy_run, "--data", data, "--out", "x.png")
    refused(limner(*mapped, "--group", "zebra", "--group", "x"), "no picture of group or label 'zebra'")
    refused(limner(*mapped, "--group", groups[0]), "two groups or more")
    two = ("--group", groups[0], "--group", groups[1], "--split", "train")
    refused(limner(*mapped, *two), "t-SNE places four items at least")
    refused(limner("figure", "attention", toy_run, image, "red", "--out", "x.png"), "has no reranker")
    refused(limner("figure", "training", toy_run, "--out", "x.jpg"), "a figure ends in")
    refused(limner("figure", "training", toy_run, "--out", "none/x.png"), "no such folder")
    refused(
        limner("figure", "correlation", toy_run, "--data", data, "--images", 0, "--out", "x.png"),
        "at least one",
    )


def test_where_matplotlib_is_missing_the_extra_is_named(
    limner: Limner, toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    refused(
        limner("figure", "training", toy_run, "--out", tmp_path / "a.png"), r"pip install 'limner\[figures\]'"
    )
