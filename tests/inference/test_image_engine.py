import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import limner
from limner.data.records import Dataset
from limner.errors import SettingsError
from limner.inference.image_engine import BackbonePass, OpenVINOModule
from limner.inference.openvino_library import require_openvino
from limner.inference.precision import Precision
from limner.models.image import LAST_MAP, BackboneSettings, build_backbone

try:
    require_openvino()
except SettingsError as missing:
    pytest.skip(str(missing), allow_module_level=True)


def pictures(count: int, height: int, width: int) -> np.ndarray:
    rng = np.random.default_rng(count)
    coarse = rng.integers(0, 256, (count, height // 8, width // 8, 3))
    return coarse.repeat(8, axis=1).repeat(8, axis=2).astype(np.uint8)


@pytest.mark.parametrize("name", ["resnet-18", "mobilenet-v2", "vgg-16", "googlenet"])
def test_features_are_those_of_torch(name: str) -> None:
    torch.manual_seed(0)
    settings = BackboneSettings(name=name, width=0.25)
    backbone = build_backbone(settings, load_weights=False).eval()
    own = BackbonePass(backbone, "fp32")
    other = BackbonePass(backbone, "fp32", "openvino")
    # each size, of the pooled features and of the map, is compiled for itself, which takes seconds
    for count, height, width in ((3, 64, 48), (1, 64, 48), (2, 96, 96)):
        given = pictures(count, height, width)
        expected = own.pool(given).numpy()
        np.testing.assert_allclose(other.pool(given).numpy(), expected, atol=1e-4 * np.abs(expected).max())
    given = pictures(3, 64, 48)
    last = own.map_until(given, LAST_MAP).numpy()
    np.testing.assert_allclose(other.map_until(given, LAST_MAP).numpy(), last, atol=1e-4 * np.abs(last).max())


@pytest.mark.parametrize(("precision", "cosine"), [("fp32", 0.99999), ("bf16", 0.99)])
def test_embeddings_of_a_run(toy_run: Path, toys: Dataset, precision: Precision, cosine: float) -> None:
    paths = [record.image for record in toys.records[:9]]
    own = limner.load(toy_run, device="cpu", precision="fp32").encode_images(paths)
    run = limner.load(toy_run, precision=precision, engine="openvino")
    assert (run.encode_images(paths) * own).sum(axis=1).min() > cosine
    assert run.fingerprint == limner.load(toy_run).fingerprint


def test_regions_of_a_cross_encoder(reranking_run: Path, toys: Dataset) -> None:
    paths = [record.image for record in toys.records[:3]]
    maps = [
        limner.load(
            reranking_run, stage="stage-2", device="cpu", precision="fp32", engine=engine
        ).encode_regions(paths)
        for engine in ("torch", "openvino")
    ]
    np.testing.assert_allclose(maps[1], maps[0], atol=2e-3 * np.abs(maps[0]).max())


def test_without_the_library(toy_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openvino", None)
    with pytest.raises(SettingsError, match=r"pip install 'limner\[openvino\]'"):
        limner.load(toy_run, engine="openvino")
    with pytest.raises(SettingsError, match="not installed"):
        OpenVINOModule(torch.nn.Identity(), (8, 8), "fp32")


def test_its_telemetry_stays_out() -> None:
    """In a process of its own, which has not imported it before."""
    script = (
        "import sys\n"
        "from limner.inference.openvino_library import require_openvino\n"
        "require_openvino()\n"
        "from openvino.tools.ovc import convert_impl, telemetry_utils\n"
        "assert 'openvino_telemetry' not in sys.modules\n"
        "print(convert_impl.tm.__name__, telemetry_utils.tm.__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["openvino.tools.ovc.telemetry_stub"] * 2, done.stderr
