"""Exported towers against the run in torch and fp32: pictures and sentences a second, one by one and in batches.

    python -m benchmarks.exports [RUN ...]

Without RUN: the image towers of dual-path on MobileNetV2 and on ResNet-50, and of a ViT-B, at random weights (they
change no time) and 224 × 224 pixels, without the mirror image. A RUN's own two towers otherwise. Each engine and
precision takes its turn beside torch, in one process.
"""

import itertools
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.measuring import publish, sized, speeds, taking_turns
from limner.data.tokenizers import WordTokenizer
from limner.data.transforms import ImageSettings
from limner.export.int8 import quantise_images
from limner.export.onnx_files import write_onnx, write_openvino
from limner.export.report import drawn_pixels, drawn_sentences
from limner.export.reranker import PIXELS
from limner.export.run import write_tower
from limner.export.sessions import Run, open_tower
from limner.export.small_weights import write_small_weights
from limner.export.towers import ImageTower
from limner.inference.encoding import Encoding
from limner.inference.load import load_model
from limner.inference.trained import TrainedModel
from limner.models.dual_path import DualPathSettings
from limner.models.image import BackboneSettings
from limner.models.pretrained import PretrainedSettings
from limner.models.registry import build_network
from limner.models.text_tower import TextTowerSettings

BATCH, TURNS = 16, 5
PLAIN = "torch, fp32"


def main() -> None:
    torch.manual_seed(0)
    groups: dict[str, dict[str, dict[str, float]]] = {}
    seconds, cosines = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for label, rows, own, file, name in _towers(Path(folder), [Path(run) for run in sys.argv[1:]]):
            engines = _engines(Path(folder), file, name, rows)
            wanted = own(rows)
            for engine, run in engines.items():
                found = run(rows)
                cosines[f"{label}, {engine}"] = float((found * wanted).sum(axis=1).min())
            for count in (1, BATCH):
                calls: dict[str, Callable[[], object]] = {PLAIN: partial(own, rows[:count])}
                calls |= {engine: partial(run, rows[:count]) for engine, run in engines.items()}
                group = f"{label}, {count} at once"
                seconds[group] = taking_turns(calls, TURNS)
                groups[group] = speeds(seconds[group], count, reference=PLAIN)
                print(group, {key: round(one["ratio"], 2) for key, one in groups[group].items()}, flush=True)
    publish(
        "exports",
        unit="rows",
        groups=groups,
        about={"reference": PLAIN, "lowest_cosine": cosines, "seconds": seconds, "repeats": TURNS},
    )


def _engines(folder: Path, file: Path, name: str, rows: np.ndarray) -> dict[str, Run]:
    small = file.with_suffix(".int8.onnx")
    if name == "image":
        quantise_images(file, small, PIXELS, rows)
    else:
        write_small_weights(file, small, tables="int8", others="int8")
    made = {
        "ONNX Runtime, fp32": open_tower(file, "onnx"),
        "ONNX Runtime, int8": open_tower(small, "onnx"),
    }
    for label, source in (("fp32", file), ("int8", small)):
        xml = folder / f"{source.name}.xml"
        write_openvino(source, xml)
        made[f"OpenVINO, {label}"] = open_tower(xml, "openvino")
        if label == "fp32":
            made["OpenVINO, bf16"] = open_tower(xml, "openvino", bf16=True)
    return made


Measured = tuple[str, np.ndarray, Callable[[np.ndarray], np.ndarray], Path, str]
"""A label, rows, torch's own call, the ONNX file and the kind of a tower."""


def _towers(folder: Path, runs: list[Path]) -> list[Measured]:
    found: list[Measured] = []
    for run in runs:
        model = load_model(run, device="cpu", precision="fp32")
        for name in ("image", "text"):
            file = folder / f"{len(found)}.onnx"
            write_tower(model, name, file)
            rows, own = _of_run(model, name)
            found.append((f"{run.name}, {name}", rows, own, file, name))
    if runs:
        return found
    images = ImageSettings(resize=(224, 224), flip=False)
    example = torch.zeros(2, 224, 224, 3, dtype=torch.uint8)
    for label, settings in itertools.islice(_drawn(folder), sized(None, 1)):
        network = build_network(settings, len(WORDS)).eval()
        file = folder / f"{label}.onnx"
        write_onnx(ImageTower(network, images), example, PIXELS, file)
        rows = np.random.default_rng(0).integers(0, 256, (BATCH, 224, 224, 3)).astype(np.uint8)
        found.append((label, rows, partial(_pixels, Encoding(network, "fp32", flip=False)), file, "image"))
    return found


def _pixels(encoding: Encoding, rows: np.ndarray) -> np.ndarray:
    return encoding.pixels(rows).numpy()


WORDS = WordTokenizer(["a", "dog", "runs"]).entries


def _drawn(folder: Path) -> list[tuple[str, DualPathSettings | PretrainedSettings]]:
    from transformers import ViTConfig, ViTModel

    vit = folder / "vit"
    ViTModel(ViTConfig(), add_pooling_layer=False).save_pretrained(vit)
    text = TextTowerSettings(words=16, width=32, layers=1, heads=2, feature="mean")
    return [
        ("MobileNetV2", DualPathSettings(backbone=BackboneSettings(name="mobilenet-v2", weights=None))),
        ("ResNet-50", DualPathSettings(backbone=BackboneSettings(name="resnet-50", weights=None))),
        (
            "ViT-B",
            PretrainedSettings(
                backbone=BackboneSettings(name="auto", auto_model=str(vit)),
                text=text,
                projection="new",
                dim=512,
            ),
        ),
    ]


def _of_run(model: TrainedModel, name: str) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    if name == "image":
        return drawn_pixels(model, BATCH), model.encode_pixels
    rows = model.tokenize(drawn_sentences(model, BATCH)).token_ids
    return rows, lambda block: model.encoding.token_ids(block).numpy()


if __name__ == "__main__":
    main()
