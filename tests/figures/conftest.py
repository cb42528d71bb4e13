from pathlib import Path

import pytest

from limner.data.records import Dataset
from limner.inference import load_run
from limner.inference.run import Run
from limner.training.loop import train
from tests.toy import toy_mnil


@pytest.fixture(scope="package")
def run(toy_run: Path) -> Run:
    """The toys' run, on the CPU."""
    return load_run(toy_run, device="cpu")


@pytest.fixture(scope="package")
def mnil(toys: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of MNiL on the toys, on the CPU."""
    recipe = toy_mnil()
    recipe = recipe.replace(stages=recipe.stages[:1])
    out = tmp_path_factory.mktemp("mnil") / "run"
    return load_run(train(recipe, toys.split("train"), toys.split("val"), out, cpu=True), device="cpu")
