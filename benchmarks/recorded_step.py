"""A step of the released dual-path as it is asked for kernel by kernel, and recorded as a CUDA graph.

Batches of 32, MobileNetV2 in ResNet-50's place, 6,000 classes, random weights and inputs: stage I on cached features,
stage II on pixels with 32 mined images and sentences behind the batch. A step is the forward pass, the backward pass
and the optimiser; the limit is the replay of the graph alone. `python -m benchmarks.recorded_step`, on a CUDA GPU.
"""

import time
from collections.abc import Callable

import torch

from benchmarks.measuring import publish
from limner.inference.precision import default_device
from limner.losses.loss import Mined
from limner.models.registry import build_network
from limner.recipes import get_recipe
from limner.training.objective import Objective, TrainingBatch
from limner.training.optimiser import freeze_parts, hold_backbone, make_optimisers
from limner.training.recorded_step import RecordedStep

CLASSES, WORDS, STEPS, ROUNDS = 6000, 8000, 50, 5


def main() -> None:
    device = default_device()
    if device.type != "cuda":
        raise SystemExit("no CUDA device is there")
    recipe = get_recipe("dual-path-released-flickr8k")
    model = recipe.model.replace(backbone=recipe.model.backbone.replace(weights=None))
    groups = {}
    for stage in recipe.stages:
        torch.manual_seed(0)
        objective = Objective(build_network(model, WORDS), [one.losses for one in recipe.stages], CLASSES)
        objective.to(device)
        objective.use(stage.losses)
        freeze_parts(objective.parts(), stage)
        hold_backbone(objective.model.backbone, stage)
        objective.train()
        objective.model.eval_parts(stage.frozen)
        optimisers = make_optimisers(objective.parts(), stage)
        batch = _batch(frozen="backbone" in stage.frozen).to(device)
        recorded = RecordedStep(objective, "fp32", device)

        def usual(objective: Objective = objective, batch: TrainingBatch = batch) -> None:
            objective.zero_grad()
            objective(batch)["loss"].backward()

        def replayed(recorded: RecordedStep = recorded, batch: TrainingBatch = batch) -> None:
            recorded(batch)

        def updated(step: Callable[[], None], optimisers: list[torch.optim.Optimizer] = optimisers) -> None:
            step()
            for optimiser in optimisers:
                optimiser.step()

        ways = {
            "kernel by kernel": lambda: updated(usual),
            "recorded": lambda: updated(replayed),
            "replay alone": replayed,
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(ROUNDS + 1):  # the first round is for warming up
            for name, step in ways.items():
                times[name].append(_seconds(step))
        # the middle of the rounds, which are taken in turns
        middle = {name: sorted(found[1:])[ROUNDS // 2] for name, found in times.items()}
        groups[stage.name] = {
            name: {"per_second": 1 / seconds, "ratio": middle["kernel by kernel"] / seconds}
            for name, seconds in middle.items()
        }
        print(stage.name, groups[stage.name], flush=True)
    publish(
        "recorded_step",
        unit="steps",
        groups=groups,
        about={"reference": "kernel by kernel", "device": torch.cuda.get_device_name(device)},
    )


def _seconds(step: Callable[[], None]) -> float:
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
