"""Text→image R@1 on test sentences with a word that no caption of the training split has, and on the others.

    python -m benchmarks.open_vocabulary FLICKR8K RUN [RUN …]

FLICKR8K holds Karpathy's `dataset_flickr8k.json`, whose tokens say what a word is, and `images/`. A system that knows
these captions' words alone leaves such a word out; 551 of the 5,000 test sentences have one. To a pretrained text tower
neither the word nor the sentence need be new: MiniLM was tuned on captions of Flickr30k, which holds these pictures.
Several runs are seeds of one system, of which the mean and the deviation are printed. It reads the test split: choose
nothing by it.
"""

import argparse
import json
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

import limner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("flickr8k", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    options = parser.parse_args()
    listed = json.loads((options.flickr8k / "dataset_flickr8k.json").read_text(encoding="utf-8"))["images"]
    found = [_recall(run, options.flickr8k / "images", listed) for run in options.runs]
    for name in found[0]:
        values = [recall[name] for recall in found]
        spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
        print(f"{name}: R@1 {mean(values):.1f}{spread}  ({', '.join(f'{value:.1f}' for value in values)})")


def _recall(run: Path, images: Path, listed: list[dict[str, Any]]) -> dict[str, float]:
    """R@1 in percent by kind of sentence."""
    known = {token for tokens in _sentences(listed, "train", "tokens") for token in tokens}
    test = [image for image in listed if image["split"] == "test"]
    model = limner.load(run)
    gallery = model.encode_images([images / image["filename"] for image in test])
    queries = model.encode_texts([text.strip() for text in _sentences(listed, "test", "raw")], check=False)
    right = np.repeat(np.arange(len(test)), [len(image["sentences"]) for image in test])
    scores = queries @ gallery.T
    # a wrong picture with the same score counts against the model, as everywhere in limner
    first = (scores >= scores[np.arange(len(right)), right][:, None]).sum(1) == 1
    new = np.array([not known.issuperset(tokens) for tokens in _sentences(listed, "test", "tokens")])
    return {
        f"{new.sum()} sentences with a word never seen": 100 * float(first[new].mean()),
        f"{(~new).sum()} others": 100 * float(first[~new].mean()),
        f"all {len(new)}": 100 * float(first.mean()),
    }


def _sentences(listed: list[dict[str, Any]], split: str, field: str) -> list[Any]:
    return [sentence[field] for image in listed if image["split"] == split for sentence in image["sentences"]]


if __name__ == "__main__":
    main()
