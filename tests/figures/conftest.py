from pathlib import Path

import pytest

from limner.data.records import Dataset
from limner.inference.load import load_model
from limner.inference.trained import TrainedModel
from limner.training.loop import train
from tests.toy import toy_mnil


@pytest.fixture(scope="package")
def run(toy_run: Path) -> TrainedModel:
    """The toys' run, on the CPU."""
    return load_model(toy_run, device="cpu")


@pytest.fixture(scope="package")
def mnil(toys: Dataset, tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    """A run of MNiL on the toys, on the CPU."""
    recipe = toy_mnil()
    recipe = recipe.replace(stages=recipe.stages[:1])
    out = tmp_path_factory.mktemp("mnil") / "run"
    return load_model(train(recipe, toys.split("train"), toys.split("val"), out, cpu=True), device="cpu")
