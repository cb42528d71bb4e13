"""The same training on an accelerator: skipped where there is none."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState

import limner
from limner.data.records import Dataset
from limner.errors import CheckpointError
from limner.inference.evaluate_run import evaluate_run
from limner.inference.trained import STATE_FILE
from limner.losses import Instance
from limner.training.loop import train
from limner.training.recipe import Recipe
from tests.toy import toy_hgan, toy_identity_aware, toy_mnil, toy_recipe, toy_reranking
from tests.training.interrupted import stopped_and_resumed

pytestmark = pytest.mark.skipif(not torch.accelerator.is_available(), reason="there is no accelerator")

SYSTEMS = (toy_recipe, toy_identity_aware, toy_reranking, toy_mnil, toy_hgan)


@pytest.mark.parametrize("recipe", SYSTEMS)
def test_a_run_trains_and_encodes_as_on_the_cpu(
    toys: Dataset, tmp_path: Path, recipe: Callable[[], Recipe]
) -> None:
    """The weights that a GPU trained are the same embedding on the CPU."""
    out = train(recipe(), toys.split("train"), toys.split("val"), tmp_path / "run")
    there, here = limner.load(out, precision="fp32"), limner.load(out, precision="fp32", device="cpu")
    assert there.encoding.device.type != "cpu"
    pictures = [record.image for record in toys.records]
    sentences = [sentence for record in toys.records for sentence in record.sentences]
    np.testing.assert_allclose(there.encode_images(pictures), here.encode_images(pictures), atol=2e-3)
    np.testing.assert_allclose(there.encode_texts(sentences), here.encode_texts(sentences), atol=2e-3)
    on_gpu, on_cpu = (evaluate_run(run, toys.split("test"), "test").to_dict() for run in (there, here))
    for direction in ("image_to_text", "text_to_image"):
        assert on_gpu[direction]["mAP"] == pytest.approx(on_cpu[direction]["mAP"], abs=8)


@pytest.mark.parametrize("recipe", SYSTEMS)
def test_the_first_epoch_is_that_of_the_cpu(
    toys: Dataset, tmp_path: Path, recipe: Callable[[], Recipe]
) -> None:
    """But for dropout, which each device draws its own way."""
    chosen = recipe()
    first = chosen.stages[0]
    if (instance := first.loss(Instance)) is not None:
        first = first.with_losses(instance.replace(dropout=0.0))
    chosen = chosen.replace(stages=(first.replace(epochs=1),), cross_encoder=None, rerank=0)
    losses = []
    for cpu in (False, True):
        AcceleratorState._reset_state(reset_partial_state=True)
        out = train(chosen, toys.split("train"), toys.split("val"), tmp_path / str(cpu), cpu=cpu)
        losses.append(_rows(out)[0]["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


@pytest.mark.parametrize("recipe", SYSTEMS)
def test_stopped_and_resumed(toys: Dataset, tmp_path: Path, recipe: Callable[[], Recipe]) -> None:
    stopped_and_resumed(toys, recipe(), tmp_path / "run", kill_at=6, cpu=False)
    epochs = [(row["stage"], row["epoch"]) for row in _rows(tmp_path / "run")]
    assert epochs == [(stage.name, 1 + n) for stage in recipe().stages for n in range(stage.epochs)]
    assert limner.load(tmp_path / "run").dim == 16


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_recorded_steps_learn_as_the_usual_ones(toys: Dataset, tmp_path: Path) -> None:
    """Both stages: cached features and pixels, mined rows behind the batch; but for dropout."""
    chosen = toy_recipe()
    instance = Instance(dropout=0.0, scale=10.0)
    chosen = chosen.replace(
        # two epochs: later ones get worse here, and take the last digits of the first far apart
        stages=tuple(stage.with_losses(instance).replace(epochs=2) for stage in chosen.stages)
    )
    found = []
    for recorded in (False, True):
        out = train(
            chosen,
            toys.split("train"),
            toys.split("val"),
            tmp_path / str(recorded),
            cuda_graphs=recorded,
        )
        found.append([row["loss"] for row in _rows(out)])
    assert found[0] == pytest.approx(found[1], rel=1e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_recorded_step_that_diverges_is_one_clear_error_and_no_state(toys: Dataset, tmp_path: Path) -> None:
    """Its loss is read a step late, but before a state is written."""
    chosen = toy_recipe()
    first, second = chosen.stages
    wild = first.replace(optimiser=first.optimiser.replace(name="sgd", rate=1e30), epochs=3)
    with pytest.raises(CheckpointError, match=r"the loss became .* in stage 'stage-1'"):
        train(
            chosen.replace(stages=(wild, second)),
            toys.split("train"),
            toys.split("val"),
            tmp_path / "run",
            cuda_graphs=True,
        )
    assert not (tmp_path / "run" / STATE_FILE).exists()


def test_bf16(toys: Dataset, tmp_path: Path) -> None:
    chosen = toy_hgan().replace(precision="bf16")
    out = train(chosen, toys.split("train"), toys.split("val"), tmp_path / "run")
    assert np.isfinite(limner.load(out).encode_images([toys.records[0].image])).all()


@pytest.fixture(autouse=True)
def _forget_device() -> Iterator[None]:
    """Accelerate keeps the first device of a process, which other tests want to be the CPU."""
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


def _rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
