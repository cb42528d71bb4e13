"""The arithmetic that is taken where the user names none, and how far bf16 lies from fp32."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import limner
from limner.data.records import Dataset
from limner.inference.encoding import Encoding
from limner.inference.precision import Arithmetic, Precision, measuring_precision, pick_precision
from limner.inference.sentence_transformer import SentenceTransformerRun
from limner.models.dual_path import DualPathSettings
from limner.models.image import BackboneSettings
from limner.models.registry import build_network
from tests.toy import toy_recipe

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(params=[True, False], ids=["native bf16", "no bf16"])
def processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """A processor that multiplies bf16 natively, and one that does not."""
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {"avx512_bf16": request.param})
    return bool(request.param)


@pytest.mark.parametrize("of_recipe", ["auto", "fp32", "bf16"])
def test_a_cpu_measures_in_fp32_whatever_it_multiplies(processor: bool, of_recipe: Precision) -> None:
    assert measuring_precision(None, CPU, of_recipe) == "fp32"
    for wanted in ("fp32", "bf16"):
        assert measuring_precision(wanted, CPU, of_recipe) == wanted
    assert measuring_precision("auto", CPU, of_recipe) == ("bf16" if processor else "fp32")


@pytest.fixture
def with_tf32() -> Iterator[None]:
    """A process that allows TF32 everywhere, as a program around limner may."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.usefixtures("with_tf32")
def test_a_gpu_measures_in_what_the_recipe_trains_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda **_: True)
    given: dict[Precision, Arithmetic] = {"auto": "bf16", "bf16": "bf16", "fp32": "fp32"}
    for of_recipe, expected in given.items():
        assert measuring_precision(None, GPU, of_recipe) == expected
    assert measuring_precision("bf16", GPU, "fp32") == "bf16"


@pytest.mark.usefixtures("with_tf32")
def test_fp32_on_a_gpu_is_no_tf32() -> None:
    pick_precision("fp32", CPU)
    pick_precision("bf16", GPU)
    assert torch.backends.cudnn.allow_tf32
    pick_precision("fp32", GPU)
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32


@pytest.mark.usefixtures("processor")
@pytest.mark.parametrize("of_recipe", ["auto", "bf16"])
def test_a_run_is_loaded_in_fp32_on_a_cpu(toys: Dataset, tmp_path: Path, of_recipe: Precision) -> None:
    recipe = toy_recipe()
    recipe = recipe.replace(
        precision=of_recipe, stages=(recipe.stages[1].replace(epochs=1, validate_every=1),)
    )
    run = limner.train(recipe, toys, tmp_path / "run", cpu=True)
    assert run.description["recipe"]["precision"] == of_recipe
    assert run.precision == "fp32"
    assert limner.load(tmp_path / "run", device="cpu").precision == "fp32"
    assert limner.evaluate(run, toys).provenance["precision"] == "fp32"


def test_a_run_changes_its_arithmetic_and_keeps_its_network(toy_run: Path, toys: Dataset) -> None:
    run = limner.load(toy_run, device="cpu")
    half = run.in_precision("bf16")
    assert (run.precision, half.precision) == ("fp32", "bf16")
    assert half.model is run.model
    assert half.fingerprint == run.fingerprint
    assert run.in_precision("fp32") is run
    images = [record.image for record in toys.records[:4]]
    loaded = limner.load(toy_run, device="cpu", precision="bf16").encode_images(images)
    np.testing.assert_array_equal(half.encode_images(images), loaded)
    np.testing.assert_array_equal(half.in_precision("fp32").encode_images(images), run.encode_images(images))
    assert not np.array_equal(loaded, run.encode_images(images))


def test_a_sentence_transformer_has_one_arithmetic() -> None:
    run = object.__new__(SentenceTransformerRun)
    assert run.in_precision("bf16") is run
    assert run.precision == "fp32"


def test_cosines_of_bf16() -> None:
    """MobileNetV2 of random weights on random pixels: the figure of real weights and pictures is in the log."""
    torch.manual_seed(0)
    settings = DualPathSettings(backbone=BackboneSettings(name="mobilenet-v2"), dim=128)
    model = build_network(settings, 50).eval()
    pixels = np.random.default_rng(0).integers(0, 256, (8, 96, 96, 3), dtype=np.uint8)
    exact, half = (Encoding(model, one).pixels(pixels).numpy() for one in ("fp32", "bf16"))
    cosines = (exact * half).sum(1)
    # far beyond the 1e-6 that fp32 differs by from processor to processor, so that nobody takes the two for one
    assert 0.99 < cosines.min() < 1 - 1e-5
