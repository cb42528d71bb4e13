"""The same training on an accelerator: skipped where there is none."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import nn

import limner
from limner.data.records import Dataset
from limner.errors import CheckpointError
from limner.inference.evaluate_run import evaluate_run
from limner.inference.source import STATE_FILE
from limner.losses import Instance, Ranking
from limner.training import loop
from limner.training.loop import train
from limner.training.recipe import Recipe
from limner.training.sharded_rows import clip_gradients
from tests.toy import toy_hgan, toy_identity_aware, toy_mnil, toy_recipe, toy_reranking
from tests.training.interrupted import KilledError, killer, stopped_and_resumed

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
    on_gpu, on_cpu = (evaluate_run(run, toys.split("test"), "test").model_dump() for run in (there, here))
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
            chosen, toys.split("train"), toys.split("val"), tmp_path / str(recorded), cuda_graphs=recorded
        )
        found.append([row["loss"] for row in _rows(out)])
    assert found[0] == pytest.approx(found[1], rel=1e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("frozen", [(), ("text", "image_projection")])
def test_recorded_steps_clip_by_the_gradients_of_their_own_losses(
    toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frozen: tuple[str, ...]
) -> None:
    """In a second stage in which the classifier rests, and parts that learnt are frozen; also killed and resumed."""
    first, second = toy_recipe().stages
    first = first.with_losses(Instance(dropout=0.0, scale=10.0)).replace(epochs=2)
    # three steps come before a recording, so five of eight are replays
    second = second.replace(
        epochs=4,
        losses=(Ranking(margin=0.2),),
        frozen=frozen,
        optimiser=second.optimiser.replace(rate=1e-4, clip=1.0),
    )
    norms: list[float] = []

    def clipped(module: nn.Module, largest: float, accelerator: Accelerator) -> None:
        for name, parameter in module.named_parameters():
            assert parameter.grad is None or parameter.requires_grad, name
        gradients = [one.grad for one in module.parameters() if one.grad is not None]
        norms.append(nn.utils.get_total_norm(gradients).item())
        clip_gradients(module, largest, accelerator)

    monkeypatch.setattr(loop, "clip_gradients", clipped)
    arguments = (toy_recipe().replace(stages=(first, second)), toys.split("train"), toys.split("val"))
    found = []
    for recorded in (False, True):
        train(*arguments, tmp_path / str(recorded), cuda_graphs=recorded)
        found.append([*norms])
        norms.clear()
    # the first step of stage 2: behind two epochs of two steps, and the ends of both and of stage 1
    with pytest.raises(KilledError):
        train(*arguments, tmp_path / "resumed", listener=killer(8), cuda_graphs=True)
    norms.clear()
    train(*arguments, tmp_path / "resumed", resume=True, cuda_graphs=True)
    assert len(norms) == 8
    assert found[1] == pytest.approx(found[0], rel=0.02)
    assert norms == pytest.approx(found[0], rel=0.02)


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
