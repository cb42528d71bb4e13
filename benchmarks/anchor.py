"""The anchor of Flickr8k: a contrastive head of one hidden layer a side on features that are held fixed.

    python -m benchmarks.anchor FLICKR8K WEIGHTS MINILM [--seeds 0,1,2] [--set model.backbone.…]

It is no recipe: a system that needs hours ought to be above what this gives in minutes. FLICKR8K is a folder of the
set, WEIGHTS a file of MobileNetV2's weights, MINILM a folder of all-MiniLM-L6-v2. A picture is the mean of
MobileNetV2's pooled features of the centre crop and its mirror image, a sentence the mean of MiniLM's last states; each
is computed once. Above each side stand a hidden layer and a linear layer, which learn by the contrastive loss and AdamW
at their defaults, from all sentences of an epoch in batches of 128. Nothing was tuned: the settings were written down
before the first run. The epoch is the one with the highest rsum on validation. The test split is measured at the end,
once for each seed. MiniLM has seen the captions of the test pictures, which are in Flickr30k (docs/results.md).
"""

import argparse
import time
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from benchmarks.measuring import write
from limner.data.readers import open_dataset
from limner.data.records import Dataset, group_numbers
from limner.data.tokenizers import PretrainedTokenizer
from limner.evaluation.both_directions import evaluate
from limner.evaluation.report import Report
from limner.losses import Contrastive
from limner.models.image import build_backbone
from limner.models.text_tower import TextTower
from limner.recipes import get_recipe
from limner.recipes.change import change
from limner.training.feature_cache import cached_views
from limner.training.pairs import TrainingPairs
from limner.training.pictures import Pictures
from limner.training.sentence_features import sentence_features
from limner.training.validation import score

HIDDEN, DIM, BATCH, EPOCHS = 512, 512, 128, 10
_WAYS = ("image_to_text", "text_to_image")
_RECALLS = ("R@1", "R@5", "R@10")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("flickr8k", type=Path)
    parser.add_argument("weights", type=Path)
    parser.add_argument("minilm", type=Path)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--set", action="append", default=[], help="how the weights want their pictures")
    given = parser.parse_args()
    began = time.monotonic()
    data = open_dataset(f"flickr8k:{given.flickr8k}")
    towers = _Towers(given.weights, given.minilm, given.set)
    train, val, test = (towers.features(data.split(name)) for name in ("train", "val", "test"))
    print(f"features: {time.monotonic() - began:.0f} s", flush=True)
    heads = [(seed, *_learn(train, val, seed)) for seed in map(int, given.seeds.split(","))]
    # behind all training, so that no choice can have seen it
    rows = [_row(seed, epoch, rsum, _measure(head, test)) for seed, head, epoch, rsum in heads]
    for way in _WAYS:
        for name in _RECALLS:
            values = [row[way][name] for row in rows]
            spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
            each = ", ".join(f"{value:.1f}" for value in values)
            print(f"test {way} {name}: {mean(values):.1f}{spread}  ({each})")
    settings = {"hidden": HIDDEN, "dim": DIM, "batch": BATCH, "epochs": EPOCHS}
    write("anchor", {"settings": settings, "seconds": round(time.monotonic() - began), "seeds": rows})


class _Features:
    """A split as its towers give it: `images` (images, channels) and `texts` (sentences, channels)."""

    def __init__(self, dataset: Dataset, images: np.ndarray, texts: np.ndarray) -> None:
        self.split = str(dataset.records[0].split)
        self.images, self.texts = torch.from_numpy(images).float(), torch.from_numpy(texts).float()
        self.image_groups, self.sentence_groups = group_numbers(dataset)


class _Towers:
    """MobileNetV2 and MiniLM, with the pictures and the tokens of `minilm-flickr8k`."""

    def __init__(self, weights: Path, minilm: Path, settings: list[str]) -> None:
        given = {"model.backbone.weights": weights, "model.text.model": minilm, "model.text.states": "[-1]"}
        changes = [*(f"{name}={value}" for name, value in given.items()), *settings]
        recipe = change(get_recipe("minilm-flickr8k"), changes)
        model: Any = recipe.model
        self.recipe, self.described, self.words = recipe, model.backbone, model.text.words
        self.tokenizer = PretrainedTokenizer.read(str(minilm), special_tokens=True)
        self.backbone = build_backbone(model.backbone).eval()
        self.text = TextTower(model.text, self.tokenizer.size)

    def features(self, dataset: Dataset) -> _Features:
        """Each picture's and each sentence's feature, kept in limner's feature cache."""
        pictures = Pictures([record.image for record in dataset.records], self.recipe.images)
        views = cached_views(self.backbone, self.described, pictures, 2, seed=0, precision="fp32")
        images = np.asarray(views[np.arange(len(dataset))]).astype(np.float32).mean(axis=1)
        pairs = TrainingPairs.of(dataset, self.tokenizer, self.words)
        texts = sentence_features(self.text, pairs.sentences, self.words, precision="fp32")
        return _Features(dataset, images, texts.rows(np.arange(len(pairs.sentences)), self.words)[:, 0])


class _Heads(nn.Module):
    """A hidden layer and a linear layer above each side."""

    def __init__(self, image_channels: int, text_channels: int) -> None:
        super().__init__()
        self.image, self.text = (
            nn.Sequential(nn.Linear(channels, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, DIM))
            for channels in (image_channels, text_channels)
        )


def _learn(train: _Features, val: _Features, seed: int) -> tuple[_Heads, int, float]:
    """The heads of the best epoch on validation, which epoch that is, and its rsum."""
    torch.manual_seed(seed)
    heads = _Heads(train.images.shape[1], train.texts.shape[1])
    loss = Contrastive().build(DIM, 0)
    optimiser = torch.optim.AdamW([*heads.parameters(), *loss.parameters()])
    groups = torch.from_numpy(train.sentence_groups)
    best, kept, at = 0.0, {}, 0
    for epoch in range(1, EPOCHS + 1):
        for chosen in torch.split(torch.randperm(len(groups)), BATCH):
            # images are numbered as their groups are: each is a group of its own
            value = loss(
                heads.image(train.images[groups[chosen]]), heads.text(train.texts[chosen]), groups[chosen]
            )
            optimiser.zero_grad()
            torch.autograd.backward(value)
            optimiser.step()
            loss.after_step(lambda rows: rows)
        rsum = score(_measure(heads, val), "rsum")
        print(f"seed {seed}, epoch {epoch}: rsum {rsum:.1f} on validation", flush=True)
        if rsum > best:
            best, at = rsum, epoch
            kept = {name: tensor.clone() for name, tensor in heads.state_dict().items()}
    heads.load_state_dict(kept)
    return heads, at, best


@torch.inference_mode()
def _measure(heads: _Heads, of: _Features) -> Report:
    return evaluate(
        _unit(heads.image(of.images)),
        _unit(heads.text(of.texts)),
        of.image_groups,
        of.sentence_groups,
        protocol="flickr8k, same image",
        split=of.split,
    )


def _unit(rows: Tensor) -> Float[np.ndarray, "rows dim"]:
    unit: np.ndarray = nn.functional.normalize(rows, dim=1).numpy()
    return unit


def _row(seed: int, epoch: int, rsum: float, test: Report) -> dict[str, Any]:
    """A seed's figures, in percent with their 95 % intervals."""
    whole = test.model_dump()
    return {
        "seed": seed,
        "epoch": epoch,
        "rsum_val": round(rsum, 1),
        **{way: {name: round(whole[way][name], 1) for name in _RECALLS} for way in _WAYS},
        "intervals": {
            way: {name: [round(end, 1) for end in whole["intervals"][way][name]] for name in _RECALLS}
            for way in _WAYS
        },
    }


if __name__ == "__main__":
    main()
