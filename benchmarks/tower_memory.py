"""Memory and speed of each way of tuning CLIP ViT-B/32 in little memory, above the network's own.

Random weights and random input, and four of the twelve layers of each tower; a step is the forward pass, SDM over the
whole batch, the backward pass and AdamW. Each way has a process of its own, and memory is the rise of its largest
resident size over two steps, with gradients and moments. The second step is timed, in processor seconds of one thread,
since other programs share the machine.
`python -m benchmarks.tower_memory`; needs the extras `transformers` and `lora`. With `--large`, one step of 512 pairs
of the whole ViT-B/16 on persons of 384 × 128 pixels, a few pairs at a time: half an hour or more on a CPU.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.measuring import memory_above, publish, sized, speeds
from limner.losses.sdm import SDM
from limner.models.adapters import LoRASettings, add_adapters, hold_adapted
from limner.models.image import BackboneSettings
from limner.models.pretrained import PretrainedSettings
from limner.models.registry import build_network
from limner.models.text_tower import TextTowerSettings
from limner.models.transformer_layers import set_checkpointing
from limner.training.objective import Objective, TrainingBatch
from limner.training.optimiser import make_optimisers
from limner.training.recipe import OptimiserSettings, StageSettings

WAYS: dict[str, dict[str, Any]] = {
    "whole batch": {},
    "chunk": {"chunk": 4},
    "checkpointing": {"checkpointing": True},
    "chunk and checkpointing": {"chunk": 4, "checkpointing": True},
    "lora": {"lora": {}},
    "lora and chunk": {"lora": {}, "chunk": 4},
}
BATCH = sized(32, 4)
LAYERS = sized(4, 1)
LARGE = 512
LARGE_CHUNK = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--way", choices=WAYS, help="measure this one in this process")
    parser.add_argument("--large", action="store_true", help="one step of 512 pairs of the whole network")
    given = parser.parse_args()
    if given.large:
        _large()
        return
    if given.way is not None:
        config = transformers.CLIPConfig(
            text_config={"num_hidden_layers": LAYERS}, vision_config={"num_hidden_layers": LAYERS}
        )
        print(json.dumps(_measured(WAYS[given.way], config, pairs=BATCH, size=(224, 224), steps=2)))
        return
    rows = {}
    for name in WAYS:
        command = [sys.executable, "-m", "benchmarks.tower_memory", "--way", name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows[name] = json.loads(done.stdout.splitlines()[-1])
    found = speeds({name: row["seconds"] for name, row in rows.items()}, BATCH, reference="whole batch")
    for name, row in rows.items():
        found[name]["megabytes"] = row["megabytes"]
        print(f"{name:<24} {row['megabytes']:>8,.0f} MB")
    groups = {f"CLIP ViT-B/32, {LAYERS} layers, {BATCH} pairs": found}
    publish("tower_memory", unit="pairs", groups=groups, about={"batch": BATCH, "ways": WAYS})


def _large() -> None:
    config = transformers.CLIPConfig(vision_config={"patch_size": 16})
    way = {"chunk": LARGE_CHUNK}
    # the first step has the highest memory: gradients, moments and a chunk's activations are there together
    row = _measured(way, config, pairs=LARGE, size=(384, 128), steps=1)
    whole = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    print(f"{row['megabytes']:,.0f} MB above the network's own, {whole:,.0f} MB in all")
    found = speeds({"chunk": row["seconds"]}, LARGE, reference="chunk")
    found["chunk"] |= {"megabytes": row["megabytes"], "megabytes_in_all": whole}
    groups = {f"CLIP ViT-B/16, 384 × 128, {LARGE} pairs": found}
    publish("tower_memory_large", unit="pairs", groups=groups, about={"batch": LARGE, "ways": {"chunk": way}})


def _measured(
    way: dict[str, Any], config: transformers.CLIPConfig, *, pairs: int, size: tuple[int, int], steps: int
) -> dict[str, float]:
    torch.set_num_threads(1)
    stage = StageSettings.parse(
        {
            "name": "tune",
            "losses": [{"kind": "sdm"}],
            "batch": pairs,
            "optimiser": OptimiserSettings(name="adamw", rate=1e-5),
            **way,
        }
    )
    objective = _objective(stage, config)
    optimisers = make_optimisers(objective.parts(), stage)
    chance = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (pairs, 3, *size), generator=chance, dtype=torch.uint8)
    ids = torch.randint(1, 49000, (pairs, 77), generator=chance)
    batch = TrainingBatch(pixels, ids, torch.arange(pairs), torch.arange(pairs))
    seconds = 0.0

    def learn() -> None:
        nonlocal seconds
        for _ in range(steps):
            began = time.process_time()
            torch.autograd.backward(objective(batch)["loss"])
            for optimiser in optimisers:
                optimiser.step()
                optimiser.zero_grad()
            seconds = time.process_time() - began

    return {"megabytes": memory_above(learn) / 1e6, "seconds": seconds}


def _objective(stage: StageSettings, config: transformers.CLIPConfig) -> Objective:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(config.to_json_string(), encoding="utf-8")
        settings = PretrainedSettings(
            backbone=BackboneSettings(name="auto", auto_model=folder),
            text=TextTowerSettings(model=folder, filled="right", masked=False),
            dim=512,
        )
        model = build_network(settings, 49000, load_weights=False)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.02)
    for tower in (model.backbone, model.text) if stage.lora is not None else ():
        add_adapters(tower, stage.lora or LoRASettings())
        hold_adapted(tower)
    set_checkpointing(model, stage.checkpointing)
    objective = Objective(model.train(), [(SDM(),)])
    objective.use((SDM(),))
    objective.chunk = stage.chunk
    return objective


if __name__ == "__main__":
    main()
