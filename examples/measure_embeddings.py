"""Somebody else's embeddings under limner's measures: two arrays in the order of a dataset's records.

python examples/measure_embeddings.py folder:IMAGES

Put your model in the place of `embed_image` and `embed_sentence`.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

import limner

COLOURS = {"red": (200, 30, 30), "green": (30, 160, 40), "blue": (40, 60, 200), "yellow": (230, 210, 40)}


def embed_image(path: Path) -> np.ndarray:
    """A stand-in: how near the middle pixel is to each colour."""
    with Image.open(path) as image:
        middle = np.asarray(image.convert("RGB"), float)[image.height // 2, image.width // 2]
    return np.array([-np.abs(middle - colour).sum() for colour in COLOURS.values()])


def embed_sentence(sentence: str) -> np.ndarray:
    """A stand-in: which colours it names."""
    return np.array([float(colour in sentence) for colour in COLOURS])


if len(sys.argv) != 2:
    sys.exit(__doc__)
data = sys.argv[1]
records = limner.open_dataset(data).split("test").records
images = np.stack([embed_image(record.image) for record in records])  # each image once
sentences = np.stack([embed_sentence(text) for record in records for text in record.sentences])
report = limner.evaluate((images, sentences), data, measures="R@1 R@5 MedR mAP")
print(report.to_json())
