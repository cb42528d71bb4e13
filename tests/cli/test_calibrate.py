"""`limner calibrate` on runs with and without a reranker."""

import json
import shutil
from pathlib import Path

from limner.cli import calibrate as calibrate_module
from limner.data.records import Dataset
from limner.inference.calibration_file import THRESHOLD, CalibrationReport
from limner.inference.load import load_model
from limner.inference.trained import TrainedModel
from limner.store.files import StoreFiles
from tests.agreeing import agreeing, resaved
from tests.cli.command import Limner, refused


def test_the_threshold_in_the_help_is_the_library_s() -> None:
    assert calibrate_module._THRESHOLD == THRESHOLD


def _written(run: TrainedModel, toys: Dataset, folder: Path) -> tuple[str, ...]:
    """The options for a set on which the run is right, whose splits val and test are of the same pictures."""
    rows = []
    for split in ("val", "test"):
        (folder / split).mkdir(parents=True)
        for record in agreeing(run, toys, split).records:
            resaved(record.image, folder / split)
            name = f"{split}/{record.image.name}"
            identity = f"{split} {record.group}"
            rows.append({"file": name, "captions": record.sentences, "identity": identity, "split": split})
    (folder / "captions.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return "--data", f"folder:{folder}", "--cpu"


def test_it_writes_what_it_fits_and_checks_it_elsewhere(
    limner: Limner, toys: Dataset, toy_run: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(toy_run, tmp_path / "run")
    data = _written(load_model(run, device="cpu"), toys, tmp_path / "set")
    refused(limner("calibrate", run, *data, "--check", "test"), "has no calibration.json to measure")
    made = limner("calibrate", run, *data)
    assert made.code == 0, made.err
    assert "first hits of 36 pictures · val, by cross-validation" in made.out
    assert f"written to {run / 'calibration.json'}" in made.out
    written = (run / "calibration.json").read_bytes()
    values = json.loads(written)
    assert (values["format"], values["split"], values["threshold"]) == (4, "val", 0.5)
    assert values["reranker"] is None
    checked = limner("calibrate", run, *data, "--check", "test")
    assert checked.code == 0, checked.err
    assert "· test, fitted on val" in checked.out
    assert "written" not in checked.out
    again = limner("calibrate", run, *data, "--check", "test", "--json")
    assert "evaluated on this split 2 times; choose nothing by it" in again.err
    half = limner("calibrate", run, *data, "--check", "test", "--precision", "bf16")
    assert half.code == 0, half.err
    looks = (run / "evaluations.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["precision"] for line in looks[-2:]] == ["fp32", "bf16"]
    told = CalibrationReport.model_validate_json(again.out)
    assert (told.split, told.pictures, told.file) == ("test", 36, None)
    assert told.reliability.keys() == {"embedding"}
    assert (run / "calibration.json").read_bytes() == written
    assert limner("calibrate", run, *data, "--threshold", "0.9").code == 0
    assert json.loads((run / "calibration.json").read_text(encoding="utf-8"))["threshold"] == 0.9
    refused(
        limner("calibrate", run, *data, "--check", "test", "--threshold", "0.9"),
        "measures a calibration and fits none; leave out --",
    )
    refused(
        limner("calibrate", run, *data, "--check", "test", "--split", "val"),
        "measures a calibration and fits none; leave out --",
    )
    refused(limner("calibrate", run, *data, "--split", "test"), "never fitted on test.*--check test")
    refused(limner("calibrate", run, *data, "--threshold", "2"), "expected a probability")


def test_a_calibration_is_of_one_checkpoint(
    limner: Limner, toys: Dataset, reranking_run: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(reranking_run, tmp_path / "run")
    data = _written(load_model(run, stage="stage-2", device="cpu"), toys, tmp_path / "set")
    made = limner("calibrate", run, *data, "--stage", "stage-2", "--rerank", "4")
    assert made.code == 0, made.err
    assert "reranker" in made.out
    assert json.loads((run / "calibration.json").read_text(encoding="utf-8"))["reranked"] == 4
    assert limner("calibrate", run / "stage-2.safetensors", *data, "--check", "val").code == 0
    refused(
        limner("calibrate", run, *data, "--stage", "stage-1", "--check", "val"), "fitted for another model"
    )
    other = limner("calibrate", run, *data, "--stage", "stage-1")
    assert other.code == 0, other.err
    assert "replaces the calibration of stage-2.safetensors" in other.err
    assert "replaces" not in limner("calibrate", run, *data, "--stage", "stage-1").err


def test_a_store_is_calibrated_on_its_own_sentences(
    limner: Limner, toys: Dataset, toy_run: Path, tmp_path: Path
) -> None:
    run, store, query = shutil.copytree(toy_run, tmp_path / "run"), tmp_path / "store", "a red square"
    source, cpu = _written(load_model(run, device="cpu"), toys, tmp_path / "set")[1], "--cpu"
    refused(limner("calibrate", run, "--store", store, cpu), "no such store")
    assert limner("index", run, store, "--data", source, "--split", "val", cpu).code == 0
    before = limner("search", store, query, cpu)
    # without any calibration nothing is said
    assert "no good match" not in before.err
    assert "p=" not in before.out
    told = limner("calibrate", run, "--store", store, cpu, "--threshold", "0")
    assert told.code == 0, told.err
    assert f"written into {store}" in told.out
    assert "right ones that reach it" in told.out
    assert not (run / "calibration.json").exists()
    good = json.loads(limner("search", store, query, cpu, "--json").out)
    assert (good["threshold"], good["good"]) == (0.0, True)
    # a threshold that no first hit reaches is stored, and not used
    useless = limner("calibrate", run, "--store", store, cpu, "--threshold", "1")
    assert useless.code == 0
    [line] = useless.err.splitlines()
    assert line.startswith("searches will not say 'no good match': by embedding only 0% of the right")
    values = json.loads(StoreFiles.open(store).rows.text("calibration") or "")
    assert values["unusable"] == {"embedding": "only 0% of the right first hits reach 1"}
    report = CalibrationReport.model_validate_json(
        limner("calibrate", run, "--store", store, cpu, "--threshold", "1", "--json").out
    )
    assert (report.split, report.pictures, report.unusable) == ("store", 36, values["unusable"])
    after = limner("search", store, query, cpu)
    assert "no good match" not in after.err
    assert "p=" in after.out
    answer = json.loads(limner("search", store, query, cpu, "--json").out)
    assert (answer["threshold"], answer["good"]) == (None, None)
    command = ("calibrate", run, cpu)
    refused(limner(*command), "give --data or --store")
    refused(limner(*command, "--data", source, "--store", store), "leave out --data")
    refused(
        limner(*command, "--store", store, "--check", "val"), "--store: has its own .*; leave out --check"
    )
    refused(limner(*command, "--store", store, "--split", "val"), "leave out --split")
