"""A step of the released dual-path as it is asked for kernel by kernel, and recorded as a CUDA graph.

Batches of 32, MobileNetV2 in ResNet-50's place, 6,000 classes, random weights and inputs, in fp32 and in bf16: stage I
on cached features, stage II on pixels with 32 mined images and sentences behind the batch. A step is the forward pass,
the backward pass and the optimiser; the limit is the replay of the graph alone. `python -m benchmarks.recorded_step`,
on a CUDA GPU.
"""

import time
from collections.abc import Callable

import torch

from benchmarks.measuring import cannot_run, publish
from limner.inference.precision import Arithmetic, autocast, default_device
from limner.losses.loss import Mined
from limner.models.registry import build_network
from limner.recipes import get_recipe
from limner.training.objective import Objective, TrainingBatch
from limner.training.optimiser import freeze_parts, hold_backbone, make_optimisers
from limner.training.recipe import Recipe, StageSettings
from limner.training.recorded_step import RecordedStep

CLASSES, WORDS, STEPS, ROUNDS = 6000, 8000, 50, 5


def main() -> None:
    device = default_device()
    if device.type != "cuda":
        cannot_run("needs a CUDA GPU")
    recipe = get_recipe("dual-path-released-flickr8k")
    groups = {}
    for stage in recipe.stages:
        for precision in ("fp32", "bf16"):
            batch = _batch(frozen="backbone" in stage.frozen).to(device)
            ways = _ways(recipe, stage, precision, batch)
            times: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(ROUNDS + 1):  # the first round is for warming up
                for name, way in ways.items():
                    times[name].append(_seconds(way))
            # the middle of the rounds, which are taken in turns
            middle = {name: sorted(found[1:])[ROUNDS // 2] for name, found in times.items()}
            rows = groups[f"{stage.name}, {precision}"] = {
                name: {"per_second": 1 / seconds, "ratio": middle["kernel by kernel"] / seconds}
                for name, seconds in middle.items()
            }
            print(stage.name, precision, rows, flush=True)
    publish(
        "recorded_step",
        unit="steps",
        groups=groups,
        about={"reference": "kernel by kernel", "device": torch.cuda.get_device_name(device)},
    )


def _ways(
    recipe: Recipe, stage: StageSettings, precision: Arithmetic, batch: TrainingBatch
) -> dict[str, Callable[[], object]]:
    usual, update = _built(recipe, stage)
    # An objective of its own: a graph is recorded on another stream than that of the usual steps.
    other, update_other = _built(recipe, stage)
    recorded = RecordedStep(other, precision, default_device())

    def kernel_by_kernel() -> None:
        usual.zero_grad()
        with autocast(precision, default_device()):
            losses = usual(batch)
        losses["loss"].backward()
        update()

    def replayed() -> None:
        recorded(batch)
        update_other()

    return {
        "kernel by kernel": kernel_by_kernel,
        "recorded": replayed,
        "replay alone": lambda: recorded(batch),
    }


def _built(recipe: Recipe, stage: StageSettings) -> tuple[Objective, Callable[[], None]]:
    """The objective of a stage, and the update of its weights."""
    torch.manual_seed(0)
    model = recipe.model.replace(backbone=recipe.model.backbone.replace(weights=None))  # type: ignore[union-attr]
    objective = Objective(build_network(model, WORDS), [one.losses for one in recipe.stages], CLASSES)
    objective.to(default_device())
    objective.use(stage.losses)
    freeze_parts(objective.parts(), stage)
    hold_backbone(objective.model.backbone, stage)
    objective.train()
    objective.model.eval_parts(stage.frozen)
    optimisers = make_optimisers(objective.parts(), stage)

    def update() -> None:
        for optimiser in optimisers:
            optimiser.step()

    return objective, update


def _seconds(step: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / STEPS


def _batch(*, frozen: bool) -> TrainingBatch:
    rows = 32 if frozen else 64
    images = (
        torch.randn(rows, 1280) if frozen else torch.randint(0, 256, (rows, 3, 224, 224), dtype=torch.uint8)
    )
    pairs = torch.arange(32)
    mined = None if frozen else Mined(pairs + 32, pairs + 64)
    return TrainingBatch(images, torch.randint(0, WORDS, (rows, 32)), pairs, pairs, mined=mined)


if __name__ == "__main__":
    main()
