"""Stores that are made by an export: the run's vectors, without torch."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import limner
from limner.data.records import Dataset
from limner.errors import CheckpointError, SettingsError, StoreError
from limner.export.exported import load_export
from limner.export.int8 import CalibrationRows
from limner.export.run import export_run
from limner.inference.load import load_model
from limner.search.repair import repair
from limner.store.files import StoreFiles
from limner.store.kept_model import load_stored_model
from limner.store.manifest import IN_STORE
from limner.store.verify import verify
from tests.export.needs import run_without_torch, without_torch
from tests.search.fake import vectors_of

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

QUERY = "a red square on white"


@pytest.fixture(scope="module")
def export(toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_run(
        load_model(toy_run, device="cpu", precision="fp32"), tmp_path_factory.mktemp("export") / "onnx"
    )


@pytest.fixture
def pictures(toys: Dataset) -> list[Path]:
    return [record.image for record in toys.records[:6]]


def vectors(store: Path) -> np.ndarray:
    files = StoreFiles.open(store)
    return vectors_of(files, [entry.id for entry in files.entries().values()])


def test_a_store_of_an_export_is_that_of_its_run(
    toy_run: Path, export: Path, pictures: list[Path], tmp_path: Path
) -> None:
    moved = shutil.copytree(export, tmp_path / "export")
    told = without_torch("index", moved, tmp_path / "store", *pictures)
    assert told["added"] == len(pictures)
    # the store holds the export, so that neither it nor torch is needed again
    shutil.rmtree(moved)
    found = without_torch("search", tmp_path / "store", QUERY)["hits"]
    assert without_torch("store", "verify", tmp_path / "store")["sound"]
    # the export computes in fp32, also on a processor with bf16
    limner.index(limner.load(toy_run, device="cpu", precision="fp32"), tmp_path / "own", pictures)
    assert StoreFiles.open(tmp_path / "own").fingerprint == StoreFiles.open(tmp_path / "store").fingerprint
    np.testing.assert_allclose(vectors(tmp_path / "store"), vectors(tmp_path / "own"), atol=1e-5)
    with limner.open_store(tmp_path / "own") as own:
        assert [hit["path"] for hit in found] == [str(hit.path) for hit in own.search(QUERY).hits]
        system = own.info().model.system
    with limner.open_store(tmp_path / "store") as exported:
        assert exported.info().model.system == system == "dual-path"


def test_a_run_and_its_export_add_to_one_store(
    toy_run: Path, export: Path, pictures: list[Path], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    assert limner.index(export, store, pictures[:2]).added == 2
    assert limner.index(toy_run, store, pictures[2:4]).added == 2
    assert limner.index(load_export(export), store, pictures[4:]).added == 2
    assert len(StoreFiles.open(store)) == 6


def test_sentences_and_another_store(
    export: Path, toy_run: Path, pictures: list[Path], tmp_path: Path
) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("a red square\na green bar\n", encoding="utf-8")
    assert without_torch("index-sentences", export, tmp_path / "store", lines)["added"] == 2
    limner.index(toy_run, tmp_path / "own", pictures)
    assert without_torch("reindex", tmp_path / "own", export, tmp_path / "new")["added"] == len(pictures)


def test_without_its_model_a_store_names_the_export(
    export: Path, pictures: list[Path], tmp_path: Path
) -> None:
    limner.index(export, tmp_path / "store", pictures, keep_model=False)
    files = StoreFiles.open(tmp_path / "store")
    assert files.manifest.run == str(export.resolve())
    with limner.open_store(tmp_path / "store") as opened:
        assert len(opened.search(QUERY).hits) == len(pictures)


def test_damage_to_the_kept_export_is_found(export: Path, pictures: list[Path], tmp_path: Path) -> None:
    store = tmp_path / "store"
    limner.index(export, store, pictures)
    assert StoreFiles.open(store).manifest.run == IN_STORE
    assert verify(StoreFiles.open(store)).sound
    for file in sorted((store / "model").iterdir()):
        whole = file.read_bytes()
        content = bytearray(whole)
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        report = verify(StoreFiles.open(store))
        assert not report.sound, file
        assert set(report.found) == {"model"}, file
        file.write_bytes(whole)
    assert verify(StoreFiles.open(store)).sound


def test_rows_that_are_damaged_are_encoded_again_by_the_export(
    export: Path, pictures: list[Path], tmp_path: Path
) -> None:
    limner.index(export, tmp_path / "store", pictures)
    files = StoreFiles.open(tmp_path / "store")
    report = repair(files, lambda: load_stored_model(files.run, files))
    assert not report.loses


def test_a_killed_call_leaves_nothing_in_the_way(export: Path, pictures: list[Path], tmp_path: Path) -> None:
    store = tmp_path / "store"
    limner.index(export, store, pictures)
    # as of a call that was killed before the store was there
    for path in store.iterdir():
        if path.name != "model":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (store / ".model.partial").mkdir()
    assert limner.index(export, store, pictures).added == len(pictures)


def test_a_users_own_export_is_not_removed(export: Path, pictures: list[Path], tmp_path: Path) -> None:
    shutil.copytree(export, tmp_path / "store" / "model")
    with pytest.raises(StoreError, match="not empty"):
        limner.index(export, tmp_path / "store", pictures)
    assert (tmp_path / "store" / "model" / "text.onnx").is_file()


def test_an_export_in_int8_makes_no_store(toy_run: Path, pictures: list[Path], tmp_path: Path) -> None:
    run = load_model(toy_run, device="cpu", precision="fp32")
    pixels = np.stack([run.prepare_image(image) for image in pictures])
    small = export_run(run, tmp_path / "int8", calibration=CalibrationRows(pixels))
    with pytest.raises(SettingsError, match="int8"):
        limner.index(small, tmp_path / "store", pictures)
    assert not (tmp_path / "store").exists()


def test_what_needs_torch_says_so(toy_run: Path, pictures: list[Path], tmp_path: Path) -> None:
    done = run_without_torch("index", toy_run, tmp_path / "store", *pictures)
    assert done.returncode == 2
    assert "this needs PyTorch, which is not installed here" in json.loads(done.stderr)["error"]["message"]


def test_an_export_is_no_run(export: Path, pictures: list[Path], tmp_path: Path) -> None:
    limner.index(export, tmp_path / "store", pictures[:1])
    for folder in (export, tmp_path / "store" / "model"):
        with pytest.raises(CheckpointError, match="an export, which indexes and searches only; give the run"):
            load_model(folder)
