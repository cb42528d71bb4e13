import json
from pathlib import Path

import numpy as np
import pytest

from limner.evaluation.arrays import read_results
from tests.cli.command import Limner, refused


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "theirs.npz",
        images=rng.standard_normal((6, 4)),
        sentences=rng.standard_normal((12, 4)),
        image_groups=np.arange(6),
        sentence_groups=np.arange(12) // 2,
        image_names=np.array([f"picture {number}.jpg" for number in range(6)]),
    )
    return tmp_path / "theirs.npz"


def test_arrays_are_measured_and_written_as_trec_runs_that_give_the_same(
    limner: Limner, arrays: Path, tmp_path: Path
) -> None:
    report, folder, again = tmp_path / "report.json", tmp_path / "trec", tmp_path / "again.json"
    scored = limner(
        "score", arrays, "--measures", "R@1 mAP MedR PR-curve", "--report", report, "--trec", folder
    )
    assert scored.code == 0
    assert "text → image" in scored.out
    whole = json.loads(report.read_text(encoding="utf-8"))
    assert whole["provenance"]["file"] == "theirs.npz"
    for direction in ("image_to_text", "text_to_image"):
        run, qrels = folder / f"{direction}.run", folder / f"{direction}.qrels"
        measured = limner(
            "score", run, "--qrels", qrels, "--measures", "R@1 mAP MedR PR-curve", "--report", again
        )
        assert measured.code == 0
        found = json.loads(again.read_text(encoding="utf-8"))
        assert found["values"] == pytest.approx(whole[direction])
        assert found["chance"] == pytest.approx(whole["chance"][direction])
        assert f"chance: R@1 {found['chance']['R@1']:.1f}" in " ".join(measured.out.split())
        assert found["curves"]["PR-curve"]["precision"] == pytest.approx(
            whole["curves"][direction]["PR-curve"]["precision"]
        )
    assert "picture%200.jpg Q0 sentence" in (folder / "image_to_text.run").read_text(encoding="utf-8")


def test_a_run_without_some_queries_says_how_many(limner: Limner, tmp_path: Path) -> None:
    run, qrels = tmp_path / "a.run", tmp_path / "qrels"
    run.write_text("q0 Q0 a 1 2 x\n0 Q0 a 1 2 x\n", encoding="utf-8")
    qrels.write_text("q0 0 a 1\n00 0 a 1\n", encoding="utf-16")
    scored = limner("score", run, "--qrels", qrels)
    said = " ".join(scored.out.split())
    assert (scored.code, scored.err) == (0, "")
    assert "not in the run, and so missed: 1 of the queries" in said
    assert "no MedR and MeanR, since some queries have no match" in said
    run.write_text("q0 Q0 a 1 2 x\n00 Q0 a 1 2 x\n", encoding="utf-8")
    scored = limner("score", run, "--qrels", qrels)
    assert "MedR" in scored.out
    assert "no MedR" not in scored.out
    run.write_text("q0 Q0 a 1 2 x\n", encoding="utf-8")
    refused(limner("score", run, "--qrels", qrels, "--measures", "MedR"), "MedR needs the rank")


def test_folds_and_cosine(limner: Limner, arrays: Path) -> None:
    assert limner("score", arrays, "--folds", 3, "--cosine").code == 0
    refused(limner("score", arrays, "--folds", 4), "6 images cannot be cut into 4 equal folds")


def test_tiny_embeddings_are_refused_and_measured_by_cosine(limner: Limner, arrays: Path) -> None:
    with np.load(arrays) as opened:
        found = dict(opened)
    for name in ("images", "sentences"):
        found[name] = (found[name] * 1e-30).astype(np.float32)
    np.savez(arrays, **found)
    refused(limner("score", arrays), "products vanish")
    assert limner("score", arrays, "--cosine").code == 0


def test_trec_runs_are_of_cosines_when_the_report_is(limner: Limner, arrays: Path, tmp_path: Path) -> None:
    report, again = tmp_path / "report.json", tmp_path / "again.json"
    assert limner("score", arrays, "--cosine", "--report", report, "--trec", tmp_path).code == 0
    run, qrels = tmp_path / "text_to_image.run", tmp_path / "text_to_image.qrels"
    assert limner("score", run, "--qrels", qrels, "--report", again).code == 0
    whole = json.loads(report.read_text(encoding="utf-8"))
    assert json.loads(again.read_text(encoding="utf-8"))["values"] == pytest.approx(whole["text_to_image"])


def test_mistakes_are_one_line(limner: Limner, arrays: Path, tmp_path: Path) -> None:
    refused(limner("score", tmp_path / "none.npz"), "no such file")
    refused(limner("score", arrays, "--measures", "overlap-S"), "L2-normalise")
    refused(limner("score", arrays, "--qrels", arrays, "--cosine"), "others for arrays; leave out --")
    refused(limner("score", arrays, "--qrels", arrays), "line 1: UTF-8 text was expected")


def test_evaluate_saves_what_score_reads(
    limner: Limner, toy_run: Path, pictures: Path, tmp_path: Path
) -> None:
    saved, reports = tmp_path / "ours.npz", [tmp_path / "evaluated.json", tmp_path / "scored.json"]
    data = f"folder:{pictures}"
    assert limner("evaluate", toy_run, "--data", data, "--save", saved, "--report", reports[0]).code == 0
    assert limner("score", saved, "--report", reports[1]).code == 0
    evaluated, scored = (json.loads(report.read_text(encoding="utf-8")) for report in reports)
    for part in ("counts", "image_to_text", "text_to_image"):
        assert evaluated[part] == scored[part]
    assert read_results(saved).sentence_names[1].endswith("#1")


def test_protocols_are_chosen_by_name(limner: Limner, toy_run: Path, pictures: Path, tmp_path: Path) -> None:
    saved, reports = tmp_path / "ours.npz", [tmp_path / "evaluated.json", tmp_path / "scored.json"]
    asked = ("--protocol", "cub")
    train = ("--data", f"folder:{pictures}", "--split", "train")
    evaluated = limner("evaluate", toy_run, *train, *asked, "--save", saved, "--report", reports[0])
    assert evaluated.code == 0
    assert "–" in evaluated.out  # AP@50 of image → text
    assert limner("score", saved, *asked, "--report", reports[1], "--trec", tmp_path).code == 0
    of_run, of_file = (json.loads(report.read_text(encoding="utf-8")) for report in reports)
    assert of_run["protocol"] == "cub, same identity, class means"
    assert list(of_run["text_to_image"]) == ["AP@50"]
    assert of_run["text_to_image"] == of_file["text_to_image"]
    assert of_run["provenance"]["edition"] == ""
    assert "class0" in (tmp_path / "text_to_image.run").read_text(encoding="utf-8")
    refused(limner("score", saved, "--protocol", "cubs"), "did you mean 'cub'")
    refused(limner("score", saved, "--protocol", "mnil-mscoco"), "matches by labels")
    refused(limner("score", saved, "--qrels", saved, *asked), "others for arrays; leave out --")


def test_drawn_splits_stand_in_the_report(
    limner: Limner, toy_run: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(
        limner("evaluate", toy_run, "--data", f"folder:{pictures}#fold=2/5"),
        "whose splits are others; its training pictures would be among those that are ranked",
    )
    monkeypatch.setattr("limner.inference.evaluate_run.expect_same_splits", lambda *_: None)
    refused(
        limner("evaluate", toy_run, "--data", f"folder:{pictures}#fold=2/5"),
        r"by their content, the run was trained on \d of these \d pictures, e\.g\. .*; take pictures that are new",
    )
    monkeypatch.setattr("limner.inference.evaluate_run.learnt_from", lambda *_, **__: None)
    file = tmp_path / "report.json"
    drawn = limner("evaluate", toy_run, "--data", f"folder:{pictures}#fold=2/5", "--report", file)
    assert drawn.code == 0
    report = json.loads(file.read_text(encoding="utf-8"))
    assert report["protocol"] == "plain, same identity, drawn splits, fold=2/5"
    assert report["provenance"]["edition"] == "drawn splits, fold=2/5"
    assert report["provenance"]["splits_drawn"] == "drawn splits, fold=2/5"


def test_tables_are_measured_as_arrays(limner: Limner, arrays: Path, tmp_path: Path) -> None:
    held = np.load(arrays)
    rows = np.concatenate([held["images"], held["sentences"]])
    lines = ["side,group,x0,x1,x2,x3"]
    for place, row in enumerate(rows.tolist()):
        side, group = ("image", place) if place < 6 else ("sentence", (place - 6) // 2)
        lines.append(f"{side},p{group},{','.join(map(repr, row))}")
    table, reports = tmp_path / "theirs.csv", [tmp_path / "arrays.json", tmp_path / "table.json"]
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert limner("score", arrays, "--report", reports[0]).code == 0
    assert limner("score", table, "--report", reports[1]).code == 0
    of_arrays, of_table = (json.loads(report.read_text(encoding="utf-8")) for report in reports)
    for part in ("counts", "image_to_text", "text_to_image", "chance"):
        assert of_arrays[part] == of_table[part]
    table.write_text("a,b\n1,2\n", encoding="utf-8")
    refused(limner("score", table), "lacks 'side'; expected the columns side, group")


def test_evaluate_writes_the_trec_runs_that_score_writes(
    limner: Limner, toy_run: Path, pictures: Path, tmp_path: Path
) -> None:
    saved, data = tmp_path / "ours.npz", f"folder:{pictures}"
    asked = ("--trec", tmp_path / "evaluate", "--depth", 3)
    assert limner("evaluate", toy_run, "--data", data, "--save", saved, *asked).code == 0
    assert limner("score", saved, "--trec", tmp_path / "score", "--depth", 3).code == 0
    for name in ("image_to_text.run", "text_to_image.run", "image_to_text.qrels", "text_to_image.qrels"):
        assert (tmp_path / "evaluate" / name).read_text() == (tmp_path / "score" / name).read_text()
    refused(
        limner("evaluate", toy_run, "--data", data, "--folds", 2, *asked),
        "--trec writes runs of the whole set",
    )
