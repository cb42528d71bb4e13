"""The golden net of a redesign: digests of what the toy recipes make, on one thread in fp32.

    python -m benchmarks.golden FILE          # write the digests of this tree
    python -m benchmarks.golden FILE --check  # compare this tree with them; exit code 1 if something differs

The digests cover the values of the checkpoints' tensors, losses and metrics, evaluation figures, and the answers to ten
searches of six toy recipes. Names of tensors and keys may change, values may not. The digests hold on one machine and
one version of torch only, so none is kept in the repository; docs/log has those of the redesign, commit by commit.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

import limner
from limner.data.readers import open_dataset
from limner.inference.checkpoint import NOT_WEIGHTS
from limner.inference.evaluate_run import evaluate_run
from limner.training.loop import train
from limner.training.recipe import Recipe
from tests.toy import (
    draw_toys,
    toy_hgan,
    toy_identity_aware,
    toy_mnil,
    toy_recipe,
    toy_reranking,
)

RECIPES: dict[str, Callable[[], Recipe]] = {
    "dual-path": toy_recipe,
    "identity-aware": toy_identity_aware,
    "reranking": toy_reranking,
    "mnil": toy_mnil,
    "mnil-labels": lambda: toy_mnil(by_label=True),
    "hgan": toy_hgan,
}
SENTENCES = (
    *("a red square on white", "on black ground, a bar in blue", "a green circle", "yellow"),
    *("a blue bar on grey", "on white ground, a square in green", "a bar", "a yellow circle on black"),
    *("red", "on grey ground, a circle in red"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    # sums over several threads are added in another order each time
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LIMNER_CACHE"] = str(Path(folder) / "cache")
        found = {
            name: value for kind in RECIPES for name, value in digests(kind, Path(folder) / kind).items()
        }
    if not given.check:
        given.file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(_digest(found))
        return
    before = json.loads(given.file.read_text(encoding="utf-8"))
    differing = [name for name in {**before, **found} if before.get(name) != found.get(name)]
    for name in differing:
        print(f"{name}: {before.get(name)} -> {found.get(name)}")
    print(f"{len(differing)} of {len(before)} differ" if differing else f"same as {_digest(before)}")
    sys.exit(bool(differing))


def digests(kind: str, folder: Path) -> dict[str, str]:
    """Train, evaluate, index and search with one toy recipe."""
    found: dict[str, str] = {}
    pictures = draw_toys(folder / "toys", views=2 if kind == "mnil" else 1, labels=True)
    dataset, run, store = open_dataset(f"folder:{pictures}"), folder / "run", folder / "store"
    train(RECIPES[kind](), dataset.split("train"), dataset.split("val"), run, cpu=True)
    for path in sorted(run.glob("*.safetensors")):
        if (tensors := _tensors(path)) != _digest([]):
            found[f"{kind} {path.name}"] = tensors
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    found[f"{kind} metrics"] = _digest([_numbers(row) for row in rows])
    report = evaluate_run(limner.load(run, device="cpu"), dataset.split("test"), "test").model_dump()
    directions = ("image_to_text", "text_to_image")
    found[f"{kind} evaluation"] = _digest([_numbers(report[direction]) for direction in directions])
    command = [sys.executable, "-m", "limner", "index", str(run), str(store), str(pictures), "--cpu"]
    subprocess.run(command, check=True, capture_output=True)
    opened = limner.open_store(store, device="cpu")
    found[f"{kind} answers"] = _digest(
        [
            [hit.name, hit.rank, repr(hit.score), None if hit.confidence is None else repr(hit.confidence)]
            for sentence in SENTENCES
            for hit in opened.search(sentence, k=5)
        ]
    )
    return found


def _tensors(path: Path) -> str:
    """Digest of a file's tensors by their values alone, so that renamed ones count as the same."""
    found = []
    with safe_open(path, framework="pt") as handle:
        for name in sorted(set(handle.keys()) - NOT_WEIGHTS):
            tensor = handle.get_tensor(name)
            if tensor.numel():
                raw = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
                found.append(f"{tensor.dtype}{tuple(tensor.shape)}{hashlib.sha256(raw).hexdigest()}")
    return _digest(sorted(found))


def _numbers(values: Any) -> list[str]:
    """All numbers of a nested value but times, sorted in a mapping, since its keys may be renamed."""
    if isinstance(values, dict):
        timed = ("seconds", "pairs_per_second")
        return sorted(
            number for name, value in values.items() if name not in timed for number in _numbers(value)
        )
    if isinstance(values, list | tuple):
        return [number for value in values for number in _numbers(value)]
    return [repr(float(values))] if isinstance(values, int | float) and not isinstance(values, bool) else []


def _digest(value: object) -> str:
    # in a list of its own, as the digests in docs/log were taken
    return hashlib.sha256(json.dumps([value]).encode()).hexdigest()[:16]


if __name__ == "__main__":
    main()
