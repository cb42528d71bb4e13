"""The export in immich's layout answers as the run, read as immich's service reads it."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from limner.data.images import decode
from limner.data.records import Dataset
from limner.errors import SettingsError
from limner.export.immich_reader import ImmichFolder
from limner.export.int8 import CalibrationRows
from limner.export.report import compare, drawn_pixels, drawn_sentences
from limner.export.run import export_run
from limner.inference.encoding import Encoding
from limner.inference.import_model import import_model
from limner.inference.load import load_model
from limner.inference.trained import TrainedModel
from tests import towers

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def toy(toy_run: Path) -> TrainedModel:
    return load_model(toy_run, device="cpu", precision="fp32")


@pytest.fixture(scope="module")
def folder(toy: TrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_run(toy, tmp_path_factory.mktemp("immich") / "export", format="immich")


def test_words_and_pictures(toy: TrainedModel, toys: Dataset, folder: Path) -> None:
    read = ImmichFolder(folder)
    for report in compare(toy, read, drawn_pixels(toy, 50), drawn_sentences(toy, 50)):
        assert report.lowest_cosine >= 0.9999
    for record in toys.records[:5]:
        # resized by the service itself, from the file
        found = read.encode_picture(Image.fromarray(decode(record.image)))
        assert float(found @ toy.encode_images(record.image)[0]) >= 0.999


@pytest.mark.parametrize("name", ["clip", "siglip", "siglip2"])
def test_a_pair_with_its_own_tokenizer(name: str, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    {"clip": towers.save_clip, "siglip": towers.save_siglip, "siglip2": towers.save_siglip2}[name](
        tmp_path / "source"
    )
    import_model(str(tmp_path / "source"), tmp_path / "run")
    run = load_model(tmp_path / "run", device="cpu", precision="fp32")
    read = ImmichFolder(export_run(run, tmp_path / "export", format="immich"))
    sentences = [*drawn_sentences(run, 30), *towers.SENTENCES]
    for report in compare(run, read, drawn_pixels(run, 10), sentences):
        assert report.lowest_cosine >= 0.9999


def test_a_missing_library_is_told_before_the_towers_are_recorded(
    toy: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    said: list[str] = []
    with pytest.raises(SettingsError, match="needs the tokenizers library"):
        export_run(toy, tmp_path / "export", format="immich", progress=said.append)
    assert said == []


def test_in_int8(toy: TrainedModel, toys: Dataset, tmp_path: Path) -> None:
    pixels = np.stack([toy.prepare_image(record.image) for record in toys.records])
    folder = export_run(toy, tmp_path / "export", format="immich", calibration=CalibrationRows(pixels))
    for report in compare(toy, ImmichFolder(folder), pixels, drawn_sentences(toy, 20)):
        assert 0.9 < report.lowest_cosine < 1
    assert not list(folder.rglob("*.int8"))


def test_the_layout(folder: Path) -> None:
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) == [
        *("config.json", "textual/model.onnx", "textual/tokenizer.json", "textual/tokenizer_config.json"),
        *("visual/model.onnx", "visual/preprocess_cfg.json"),
    ]
    told = json.loads((folder / "visual" / "preprocess_cfg.json").read_text(encoding="utf-8"))
    assert told["resize_mode"] in ("shortest", "squash")
    assert told["interpolation"] in ("bilinear", "bicubic", "lanczos", "nearest")


def test_pictures_of_persons_are_refused(toy: TrainedModel, tmp_path: Path) -> None:
    images = toy.images.replace(resize=(48, 24), crop=(48, 24))
    encoding = Encoding(toy.model, "fp32", flip=images.flip)
    tall = TrainedModel(toy.path, toy.description, toy.model, toy.tokenizer, images, encoding)
    with pytest.raises(SettingsError, match="squares"):
        export_run(tall, tmp_path / "export", format="immich")
    assert not (tmp_path / "export").exists()
