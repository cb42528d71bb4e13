"""Dry runs of the papers' recipes with their real networks: does the loss fall, at what memory and steps a second.

Each recipe of a paper's table, or that tunes a pair on a published set, trains on eight generated samples
(`--samples`), one step an epoch. Its network is as the recipe has it but from random weights (BERT: of BERT-base's
size, a piece a word; pairs: CLIP ViT-B/16, at the recipe's size of images). Nothing is downloaded. What changes beside
that: batches of all samples, views that are not cached, and one validation a stage. A process a recipe, so that the
memory printed is its own highest: of the host, and on a GPU of the device's tensors, too. `--set` changes all, e.g. a
rate: the released code's 0.1 is for pretrained weights. `--write` keeps the other rows of results/paper_scale.json.

python -m benchmarks.paper_scale [RECIPE …] [--steps 10] [--samples 8] [--set KEY=VALUE] [--write]
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypedDict

import numpy as np
import torch
from PIL import Image

from benchmarks.measuring import RESULTS, machine, sized

if TYPE_CHECKING:
    from limner.data.transforms import ImageSettings

_COLOURS = ("red", "blue", "green", "grey", "black", "white", "pink", "brown")
_BERT_BASE = {"model": None, "width": 768, "layers": 12, "heads": 12}


class DryRun(TypedDict):
    """Losses and speed of one recipe by stage, and the highest memory of the host and of the GPU in GiB."""

    stages: dict[str, dict[str, float]]
    peak_gb: float
    peak_gpu_gb: float | None


def main() -> None:
    from limner.recipes.registry import PAPER, RECIPES, TUNED

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("recipes", nargs="*", help="names; without any, all of these recipes")
    parser.add_argument("--steps", type=int, default=sized(10, 1), help="steps of each stage")
    parser.add_argument("--samples", type=int, default=8, help="pairs to learn from, and in a batch")
    parser.add_argument("--set", action="append", default=[], dest="settings", help="key=value, for all")
    parser.add_argument("--write", action="store_true", help="put rows into results/paper_scale.json")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    every = [name for name, entry in RECIPES.items() if entry.group in (PAPER, TUNED)]
    names = given.recipes or sized(every, every[:1])
    if given.one:
        print(json.dumps(dry_run(names[0], given.steps, given.samples, given.settings)))
        return
    more = [word for setting in given.settings for word in ("--set", setting)]
    for name in names:
        child = [sys.executable, "-m", "benchmarks.paper_scale", name, "--one", "--steps", str(given.steps)]
        child += ["--samples", str(given.samples)]
        # not check=True: one recipe that fails must not take the others with it
        done = subprocess.run([*child, *more], stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            print(f"{name}: failed, see above", flush=True)
            continue
        row: DryRun = json.loads(done.stdout.splitlines()[-1])
        for line in table(name, row):
            print(line, flush=True)
        if given.write:
            # after each: a stop between two recipes loses none
            write(RESULTS / "paper_scale.json", name, given.steps, given.samples, given.settings, row)


def write(
    path: Path, name: str, steps: int, samples: int, settings: Sequence[str], row: Mapping[str, object]
) -> None:
    """Put a row into the file, in the place of an earlier one of the same recipe and settings."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))["runs"]
    except FileNotFoundError:
        kept = []
    key = (name, list(settings))
    kept = [one for one in kept if (one["recipe"], one["settings"]) != key]
    kept.append(
        {
            "recipe": name,
            "settings": list(settings),
            "steps": steps,
            "samples": samples,
            **row,
            "machine": machine(),
        }
    )
    text = json.dumps({"benchmark": "paper_scale", "runs": kept}, indent=2)
    path.write_text(text + "\n", encoding="utf-8")


def dry_run(name: str, steps: int, samples: int = 8, settings: Sequence[str] = ()) -> DryRun:
    """Train one recipe, and return its losses and speed by stage, and its highest memory (GiB)."""
    from limner.data.readers import open_dataset
    from limner.recipes import get_recipe
    from limner.recipes.change import change, start_from
    from limner.training.log import Event, Stepped
    from limner.training.loop import train

    recipe = get_recipe(name)
    changes = [] if recipe.model.starts_from_run else ["model.backbone.weights=null"]
    if recipe.model.system == "hgan":
        changes.append(f"model.text.bert={json.dumps(_BERT_BASE)}")
    for stage in recipe.stages:
        once = (f"epochs={steps}", f"validate_every={steps}", f"batch={samples}", "views=0", "patience=null")
        changes += [f"stages.{stage.name}.{one}" for one in once]
        if stage.sentences != "one":
            changes.append(f"stages.{stage.name}.sentences=one")
    seen: dict[str, list[tuple[float, float]]] = {}

    def listen(event: Event) -> None:
        if isinstance(event, Stepped):
            # the weighted sum: the others are its terms, and shares in percent
            seen.setdefault(event.stage, []).append((time.perf_counter(), event.losses["loss"]))

    with TemporaryDirectory() as folder:
        if recipe.model.starts_from_run:
            recipe = start_from(recipe, _pair(recipe.images, Path(folder)))
        recipe = change(recipe, [*changes, *settings])
        data = open_dataset(f"folder:{_draw(Path(folder) / 'data', samples)}")
        train(recipe, data.split("train"), data.split("val"), Path(folder) / "run", listener=listen)
    return {
        "stages": {stage: _row(told) for stage, told in seen.items()},
        # Linux counts in KiB
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        # the host's memory says nothing of what a GPU needs; of tensors alone, without the CUDA context
        "peak_gpu_gb": torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else None,
    }


def table(name: str, row: DryRun) -> list[str]:
    """Lines of one recipe, one a stage; the last column is the GPU's memory, "–" without one."""
    gpu = "–" if row["peak_gpu_gb"] is None else f"{row['peak_gpu_gb']:.1f} GB"
    return [
        f"{name:<30} {stage:<17} loss {of['first']:8.3f} → {of['last']:8.3f} "
        f"{'falls' if of['last'] < of['first'] else 'DOES NOT FALL':<14} {of['steps_per_second']:6.2f} steps/s   "
        f"{row['peak_gb']:.1f} GB   GPU {gpu}"
        for stage, of in row["stages"].items()
    ]


def _pair(images: "ImageSettings", folder: Path) -> Path:
    """Import a CLIP ViT-B/16 of random weights, at an exact size of images where they have one.

    Its tokenizer is a small one, whose numbers are among those of CLIP's 49,408.
    """
    from transformers import CLIPConfig, CLIPModel

    from limner.inference.import_model import import_model
    from tests.towers import save_clip_tokenizer, save_preprocessor

    source = folder / "source"
    source.mkdir()
    tokenizer = save_clip_tokenizer(source, model_max_length=77)
    end = tokenizer.token_to_id("<|endoftext|>")
    # the rest is ViT-B/32's as it is
    config = CLIPConfig(
        text_config={"eos_token_id": end, "bos_token_id": end - 1, "pad_token_id": end},
        vision_config={"patch_size": 16},
    )
    CLIPModel(config).save_pretrained(source)
    save_preprocessor(source, size={"shortest_edge": 224}, crop_size={"height": 224, "width": 224})
    size = None if isinstance(images.resize, int) else images.resize
    import_model(str(source), folder / "start", size=size)
    return folder / "start"


def _row(told: Sequence[tuple[float, float]]) -> dict[str, float]:
    times, losses = zip(*told, strict=True)
    # the median: the first step makes the optimiser's moments, and the last is followed by the validation
    between = np.diff(times) if len(times) > 1 else np.array([np.inf])
    # means of a few: dropout of 0.75 makes single steps noisy
    few = max(1, len(losses) // 4)
    return {
        "first": float(np.mean(losses[:few])),
        "last": float(np.mean(losses[-few:])),
        "steps_per_second": float(1 / np.median(between)),
    }


def _draw(root: Path, samples: int) -> Path:
    """Write so many pictures of one colour each to learn from, and two for validation."""
    root.mkdir(parents=True)
    rng, lines = np.random.default_rng(0), []
    for number in range(samples + 2):
        pixels = rng.integers(0, 256, (1, 1, 3)) + rng.integers(-20, 20, (160, 64, 3))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(root / f"{number}.png")
        colour = _COLOURS[number % len(_COLOURS)]
        row = {
            "file": f"{number}.png",
            "captions": [f"a person in a {colour} coat with a {colour} bag", f"the coat is {colour}"],
            "identity": str(number),
            "labels": ["even" if number % 2 == 0 else "odd"],
            "split": "train" if number < samples else "val",
        }
        lines.append(json.dumps(row))
    (root / "captions.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return root


if __name__ == "__main__":
    main()
