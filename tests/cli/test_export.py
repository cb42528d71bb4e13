import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from limner.data.records import Dataset
from limner.export import run as module
from limner.export.int8 import CalibrationRows
from limner.export.report import REPORT_FILE, ExportReport
from limner.inference.load import load_model
from limner.inference.trained import TrainedModel
from tests.cli.command import Limner

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")


def test_a_report_stands_beside_the_towers(
    limner: Limner, toy_run: Path, toys: Dataset, tmp_path: Path
) -> None:
    out = tmp_path / "export"
    done = limner("export", toy_run, out, "--data", toys.source, "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    report = ExportReport.parse(json.loads((out / REPORT_FILE).read_text(encoding="utf-8")))
    assert told["report"] == report.model_dump(mode="json")
    assert min(report.image.lowest_cosine, report.text.lowest_cosine) >= 0.9999
    assert report.split == "val"
    assert report.recall == report.torch_recall
    assert report.bytes == sum(path.stat().st_size for path in out.iterdir() if path.name != REPORT_FILE)


def test_a_report_compares_the_rerankers(
    limner: Limner, reranking_run: Path, toys: Dataset, tmp_path: Path
) -> None:
    done = limner("export", reranking_run, tmp_path / "export", "--data", toys.source)
    assert done.code == 0, done.err
    report = ExportReport.parse(json.loads((tmp_path / "export" / REPORT_FILE).read_text(encoding="utf-8")))
    reranker = report.reranker
    assert reranker is not None
    assert reranker.largest_difference <= 1e-4
    assert reranker.lowest_cosine is not None
    assert reranker.lowest_cosine >= 0.9999
    assert reranker.first == 5
    assert reranker.recall is not None
    assert reranker.recall == reranker.torch_recall
    # the re-ranked order is another one than that of the embedding
    assert reranker.recall != report.recall
    assert "first 5 re-ranked" in done.out


def test_int8_takes_its_scales_from_training_pictures(
    limner: Limner, toy_run: Path, toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Path] = []
    own = module.calibration_rows

    def watched(model: TrainedModel, paths: Sequence[Path]) -> CalibrationRows:
        seen.extend(paths)
        return own(model, paths)

    monkeypatch.setattr(module, "calibration_rows", watched)
    done = limner("export", toy_run, tmp_path / "export", "--int8", "--data", toys.source)
    assert done.code == 0, done.err
    assert set(seen) == {record.image for record in toys.split("train").records}
    assert "int8" in done.out


def test_without_a_dataset_towers_are_compared_on_what_is_drawn(
    limner: Limner, toy_run: Path, tmp_path: Path
) -> None:
    done = limner("export", toy_run, tmp_path / "export", "--format", "immich")
    assert done.code == 0, done.err
    report = json.loads((tmp_path / "export" / REPORT_FILE).read_text(encoding="utf-8"))
    assert (report["split"], report["recall"]) == (None, None)
    assert f"an OpenCLIP model of {load_model(toy_run).dim} numbers" in done.out


@pytest.mark.parametrize("has", [False, True])
def test_figures_of_bf16_are_told_to_be_of_fp32_where_the_processor_has_none(
    limner: Limner, toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has: bool
) -> None:
    pytest.importorskip("openvino")
    monkeypatch.setattr("limner.export.sessions.openvino_has_bf16", lambda: has)
    done = limner("export", toy_run, tmp_path / "export", "--format", "openvino", "--bf16")
    assert done.code == 0, done.err
    assert "comparing with the run" in done.err
    assert ("has no bf16" in done.err) != has


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--format", "coreml"), "--format: expected onnx"),
        (("--int8",), "measured on pictures; give --data"),
        (("--bf16",), "take format openvino"),
        (("--data", "folder:nowhere"), "nowhere"),
    ],
)
def test_what_cannot_be_is_told_and_leaves_nothing(
    limner: Limner, toy_run: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = limner("export", toy_run, tmp_path / "export", *arguments)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_is_left_alone(limner: Limner, toy_run: Path, tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("mine")
    done = limner("export", toy_run, tmp_path)
    assert done.code == 2
    assert "give a new folder" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]
