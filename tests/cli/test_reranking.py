"""The commands with a run whose reranker re-ranks."""

import json
from pathlib import Path

import pytest

from tests.cli.command import Limner, refused


@pytest.fixture(scope="module")
def checkpoint(reranking_run: Path) -> Path:
    return reranking_run / "stage-2.safetensors"


def test_evaluate_re_ranks_as_many_as_are_asked_for(
    limner: Limner, checkpoint: Path, toy_run: Path, pictures: Path, tmp_path: Path
) -> None:
    command = ("evaluate", checkpoint, "--data", f"folder:{pictures}", "--report", tmp_path / "report.json")
    for asked, said in (((), 5), (("--rerank", "all"), "all"), (("--rerank", 0), 0), (("--rerank", 2), 2)):
        assert limner(*command, *asked).code == 0
        report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
        assert report["provenance"]["reranked"] == said
        assert ("re-ranked" in report["protocol"]) == (said != 0)
    refused(limner(*command, "--rerank", "some"), "a whole number or 'all'")
    refused(limner(*command, "--rerank=-1"), "a whole number or 'all'")
    refused(limner("evaluate", toy_run, *command[2:], "--rerank", 3), "ranks alone")


def test_search_re_ranks_and_explains(
    limner: Limner, checkpoint: Path, pictures: Path, store: Path, toy_run: Path, tmp_path: Path
) -> None:
    matched = tmp_path / "store"
    assert limner("index", checkpoint, matched, pictures).code == 0
    lines = limner("search", matched, "a red square on white", "-k", 7).out.splitlines()
    assert [line.count("%") for line in lines] == [1] * 5 + [0] * 2
    assert limner("index", checkpoint.parent, matched, pictures, "--stage", "stage-2").code == 0
    plain = limner("search", matched, "a red square on white", "-k", 3, "--rerank", 0).out
    assert "%" not in plain
    found = limner("search", matched, "a red square on white", "-k", 7, "--json", "--explain").out
    hits = json.loads(found)["hits"]
    assert hits[0]["attention"]["words"] == ["a", "red", "square", "on", "white"]
    assert "attention" not in hits[6]
    assert hits[6]["confidence"] is None
    picture = next(iter(sorted(pictures.glob("*.png"))))
    assert limner("search", matched, "--image", picture, "--sheet", tmp_path / "sheet.png").code == 0
    assert limner("search", matched, "a red square", "--sheet", tmp_path / "sheet.png").code == 0
    refused(limner("search", matched, "--image", picture, "--rerank", 3), "not a picture")
    refused(limner("search", matched, "a red square", "--explain"), "comes with --json")
    refused(limner("search", store, "a red square", "--rerank", 3), "has no reranker")


def test_evaluate_writes_trec_runs_of_the_ranking_after_re_ranking(
    limner: Limner, checkpoint: Path, pictures: Path, tmp_path: Path
) -> None:
    command = ("evaluate", checkpoint, "--data", f"folder:{pictures}", "--measures", "R@1 R@5 MedR mAP")
    values = {}
    for count in (0, 2, "all"):
        report, folder = tmp_path / "report.json", tmp_path / f"trec-{count}"
        assert limner(*command, "--rerank", count, "--report", report, "--trec", folder).code == 0
        evaluated = json.loads(report.read_text(encoding="utf-8"))
        for way in ("image_to_text", "text_to_image"):
            run = ("score", folder / f"{way}.run", "--qrels", folder / f"{way}.qrels")
            assert limner(*run, "--measures", "R@1 R@5 MedR mAP", "--report", report).code == 0
            scored = json.loads(report.read_text(encoding="utf-8"))
            assert scored["values"] == pytest.approx(evaluated[way])
        values[count] = (folder / "text_to_image.run").read_text(encoding="utf-8")
    assert values[0] != values["all"]
