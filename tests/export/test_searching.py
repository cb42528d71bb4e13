"""Searches by an exported tower: the answers of the run, without torch."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import limner
from limner.data.records import Dataset
from limner.durable import KEY, sealed
from limner.errors import CheckpointError, SettingsError, StoreError
from limner.export.exported import load_export
from limner.export.int8 import CalibrationRows
from limner.export.run import export_run
from limner.inference.calibration import write_calibration
from limner.inference.calibration_file import parse_calibration
from limner.inference.load import load_model
from limner.inference.source import EXPORT_FILE
from limner.search.index import index_pictures
from limner.store.files import StoreFiles
from tests.export.needs import need_openvino, search_without_torch

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

QUERIES = ("a red square on white", "on grey ground, a circle in blue", "a green bar", "yellow")


@pytest.fixture(scope="module")
def export(toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_run(
        load_model(toy_run, device="cpu", precision="fp32"), tmp_path_factory.mktemp("export") / "onnx"
    )


@pytest.fixture(scope="module")
def store(toy_run: Path, toys: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store") / "store"
    limner.index(toy_run, folder, [record.image for record in toys.records])
    return folder


def test_the_same_first_ten_hits(export: Path, store: Path, toys: Dataset) -> None:
    sentences = [sentence for record in toys.records for sentence in record.sentences]
    with limner.open_store(store) as own, limner.open_store(store, run=export) as other:
        for text in (*QUERIES, *sentences):
            hits, found = own.search(text), other.search(text)
            assert [hit.path for hit in found.hits] == [hit.path for hit in hits.hits]
            assert [hit.score for hit in found.hits] == pytest.approx(
                [hit.score for hit in hits.hits], abs=1e-5
            )


def test_probabilities_of_the_run_are_those_of_its_export(store: Path, toy_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(toy_run, folder)
    run = load_model(folder, device="cpu", precision="fp32")
    # a toy's scores give no probabilities of their own
    file = Path(__file__).parents[1] / "inference" / "calibrations" / "format-4.json"
    made = parse_calibration(file.read_text(encoding="utf-8"), file).replace(fingerprint=run.fingerprint)
    write_calibration(folder, made)
    export = export_run(run, tmp_path / "export")
    with limner.open_store(store, run=export) as opened:
        assert opened.engine.calibration == made
        assert opened.search(QUERIES[0]).hits[0].probability is not None


def test_a_picture_finds_itself(export: Path, store: Path, toys: Dataset) -> None:
    with limner.open_store(store, run=export) as found:
        picture = toys.records[0].image
        assert found.search(image=picture).hits[0].path == picture
        assert found.explain(QUERIES[0], found.search(QUERIES[0]).hits[0].id).words


@pytest.mark.parametrize("engine", ["onnx", "openvino"])
def test_a_search_imports_no_torch(
    engine: str, export: Path, store: Path, toy_run: Path, tmp_path: Path
) -> None:
    if engine == "openvino":
        need_openvino()
        export = export_run(
            load_model(toy_run, device="cpu", precision="fp32"), tmp_path / "export", format="openvino"
        )
    hits = search_without_torch(store, QUERIES[0], export)
    with limner.open_store(store) as own:
        expected = [str(hit.path) for hit in own.search(QUERIES[0]).hits]
    assert [hit["path"] for hit in hits] == expected


def test_the_call_of_openvino_on_the_page_computes_as_the_run_does(toy_run: Path, tmp_path: Path) -> None:
    need_openvino()
    import openvino

    model = load_model(toy_run, device="cpu", precision="fp32")
    export = export_run(model, tmp_path / "export", format="openvino")
    page = (Path(limner.__file__).parents[1] / "docs/export.md").read_text(encoding="utf-8")
    (call,) = re.findall(r"`(openvino\.compile_model\(.*?\))`", page)
    compiled = eval(call, {"openvino": openvino, "FILE": export / "image.xml"})
    # on a processor without bf16 the embeddings alone would not tell
    assert compiled.get_property("INFERENCE_PRECISION_HINT").to_string() == "f32"
    shape = model.prepare_image(Image.new("RGB", (64, 64))).shape
    pixels = np.random.default_rng(0).integers(0, 256, (4, *shape), np.uint8)
    cosines = (compiled(pixels)[0] * model.encode_pixels(pixels)).sum(1)
    assert cosines.min() > 0.99999


def test_the_server_needs_no_torch(export: Path, store: Path) -> None:
    pytest.importorskip("fastapi")
    code = (
        "import sys\n"
        "class Refused:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('torch', 'transformers', 'accelerate'):\n"
        "            raise ModuleNotFoundError(f'{name} is not to be imported', name=name)\n"
        "sys.meta_path.insert(0, Refused())\n"
        "from fastapi.testclient import TestClient\n"
        "from limner.search.store import open_store\n"
        "from limner.server.app import create_app\n"
        f"client = TestClient(create_app(open_store({str(store)!r}, run={str(export)!r})))\n"
        f"answer = client.post('/v1/search', json={{'text': {QUERIES[0]!r}}})\n"
        "assert answer.status_code == 200, answer.text\n"
        "print(len(answer.json()['hits']))\n"
    )
    answered = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answered.returncode == 0, answered.stderr
    assert answered.stdout.strip() == "10"


def test_pictures_are_added_by_an_export_in_fp32_alone(
    export: Path, toy_run: Path, toys: Dataset, tmp_path: Path
) -> None:
    folder = tmp_path / "store"
    images = [record.image for record in toys.records]
    limner.index(toy_run, folder, images[:10])
    files = StoreFiles.open(folder)
    assert index_pictures(load_export(export), files, images[10:14]).added == 4
    run = load_model(toy_run, device="cpu", precision="fp32")
    with limner.open_store(folder, run=run) as own:
        for image in images[10:14]:
            # as the run itself has it: 1 to rounding
            assert own.search(image=image, k=1).hits[0].score == pytest.approx(1, abs=1e-5)
    pixels = np.stack([run.prepare_image(image) for image in images[:8]])
    small = export_run(run, tmp_path / "int8", calibration=CalibrationRows(pixels))
    with limner.open_store(folder, run=small) as opened:
        assert opened.search(QUERIES[0]).hits
    with pytest.raises(SettingsError, match="int8"):
        index_pictures(load_export(small), files, images[14:])
    with pytest.raises(SettingsError, match="no reranker"):
        load_export(export).expect_to_index(regions=True)


def test_another_models_export_is_refused(store: Path, toy_run: Path, tmp_path: Path, export: Path) -> None:
    told = json.loads((export / EXPORT_FILE).read_text(encoding="utf-8"))
    other = tmp_path / "other"
    other.mkdir()
    for path in export.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    del told[KEY]
    (other / EXPORT_FILE).write_text(sealed({**told, "fingerprint": "0" * 64}), encoding="utf-8")
    with pytest.raises(StoreError, match="model 000000000000"):
        limner.open_store(store, run=other)


@pytest.mark.parametrize("file", [EXPORT_FILE, "text.onnx"])
def test_a_changed_byte_is_told(file: str, export: Path, tmp_path: Path) -> None:
    for path in export.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    content = bytearray((tmp_path / file).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / file).write_bytes(content)
    with pytest.raises(CheckpointError, match=r"damaged|is not the file"):
        load_export(tmp_path).encode_texts("red")
