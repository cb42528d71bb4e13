"""The four systems at their papers' size on a GPU: pairs a second from picture files to updated weights, and memory.

Each recipe trains on generated people, its network as the paper has it but from random weights, once in fp32 (the
reference; convolutions as torch has them, in TF32) and once in bf16. What counts is the second epoch, when the pictures
are decoded. Then pictures and sentences are encoded. `python -m benchmarks.gpu_training PEOPLE`, a set of `limner data
people`; on a machine with an accelerator.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import torch

import limner
from benchmarks.measuring import cannot_run, publish
from limner.data.readers import open_dataset
from limner.data.records import Dataset
from limner.inference.precision import default_device
from limner.recipes import get_recipe
from limner.recipes.change import change
from limner.training.log import Event, Stepped
from limner.training.loop import train

REFERENCE = "fp32"

Item = TypeVar("Item")

RECIPES = {
    "dual-path-cuhk-pedes": (),
    "identity-aware-cuhk-pedes": (),
    "mnil-flickr30k": (),
    "hgan-cuhk-pedes": ('model.text.bert.model="{bert}"',),
}
"""The recipe, and what is changed of it so that nothing is downloaded."""


@dataclass
class _Rate:
    """Pairs a second of the last epoch."""

    pairs_per_second: float = 0.0

    def listen(self, event: Event) -> None:
        if isinstance(event, Stepped):
            self.pairs_per_second = event.rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("people", type=Path)
    parser.add_argument("--recipes", default=",".join(RECIPES), help="some of them, by commas")
    arguments = parser.parse_args()
    device = default_device()
    if device.type == "cpu":
        cannot_run("needs a GPU")
    dataset = open_dataset(f"cuhk-pedes:{arguments.people}")
    groups: dict[str, dict[str, dict[str, float]]] = {}
    with TemporaryDirectory() as folder:
        bert = _random_bert(Path(folder) / "bert", dataset)
        for name in arguments.recipes.split(","):
            for precision in (REFERENCE, "bf16"):
                out = Path(folder) / f"{name}-{precision}"
                measured = _measure(name, precision, dataset, out, bert)
                for what, values in measured.items():
                    rows = groups.setdefault(f"{name}, {what}", {})
                    rows[precision] = values
                    values["ratio"] = values["per_second"] / rows[REFERENCE]["per_second"]
                    print(
                        name,
                        precision,
                        what,
                        {key: round(value, 2) for key, value in values.items()},
                        flush=True,
                    )
    publish(
        "gpu_training",
        unit="items",
        groups=groups,
        about={"reference": REFERENCE, "device": torch.cuda.get_device_name(device)},
    )


def _measure(
    name: str, precision: str, dataset: Dataset, out: Path, bert: Path
) -> dict[str, dict[str, float]]:
    recipe = change(get_recipe(name), [text.format(bert=bert) for text in RECIPES[name]])
    backbone = recipe.model.backbone.replace(weights=None)  # type: ignore[union-attr]
    # dual-path's first stage has its backbone frozen; the second learns everything
    stage = next(stage for stage in recipe.stages if "backbone" not in stage.frozen)
    recipe = recipe.replace(
        model=recipe.model.replace(backbone=backbone),
        stages=(stage.replace(epochs=2, sentences="one", validate_every=2, patience=None),),
        cross_encoder=None,
        rerank=0,
        precision=precision,
    )
    rate = _Rate()
    torch.cuda.reset_peak_memory_stats()
    train(recipe, dataset.split("train"), dataset.split("val"), out, listener=rate.listen)
    peak = torch.cuda.max_memory_allocated()
    run = limner.load(out)
    train_split = dataset.split("train")
    pictures = [record.image for record in train_split.records]
    sentences = [sentence for record in train_split.records for sentence in record.sentences]
    return {
        "training": {"per_second": rate.pairs_per_second, "peak_memory_mb": peak / 1e6},
        "pictures encoded": {"per_second": _speed(run.encode_images, pictures)},
        "sentences encoded": {"per_second": _speed(run.encode_texts, sentences)},
    }


def _speed(encode: Callable[[Sequence[Item]], object], items: Sequence[Item]) -> float:
    """Items a second, the second time."""
    encode(items)
    torch.cuda.synchronize()
    began = time.perf_counter()
    encode(items)
    torch.cuda.synchronize()
    return len(items) / (time.perf_counter() - began)


def _random_bert(folder: Path, dataset: Dataset) -> Path:
    """A BERT-base of random weights that knows the captions' words."""
    from transformers import BertConfig, BertModel, BertTokenizer

    from limner.data.words import words

    known = sorted({word for record in dataset.records for said in record.sentences for word in words(said)})
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *known]
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=len(pieces))).save_pretrained(folder)
    BertTokenizer(vocab={piece: number for number, piece in enumerate(pieces)}).save_pretrained(folder)
    return folder


if __name__ == "__main__":
    main()
