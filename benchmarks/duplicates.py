"""How long `limner store duplicates` takes, and how many planted pairs it finds.

    python -m benchmarks.duplicates [PICTURES]

A store of so many rows (100,000) of 512 numbers with thumbnails of 256 pixels, of which every hundredth row is another
shot (cosine 0.985) and every hundredth the same picture in another quality (an unrelated embedding, and a thumbnail of
JPEG quality 40). Vectors and thumbnails are drawn; they are written through the store's own writer.
"""

import io
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from limner.data.alike import close_pairs, same_pictures, small_copy
from limner.search.duplicates import SIMILAR

_DIM = 512
_SCENES = 2_000
"""Different thumbnails that are drawn; each is used again with other noise."""


def main() -> None:
    """Measure both looks, and what is read for them."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(count, _DIM)).astype(np.float32)
    # as embeddings of photographs are: a common part, and few directions with most of the variance
    rows = rows * (1 / np.sqrt(1 + np.arange(_DIM, dtype=np.float32))) + 0.1 * rng.normal(size=_DIM).astype(
        np.float32
    )
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    shots = np.arange(50, count, 100)
    near = rows[shots - 1] + 0.17 * unit(rng.normal(size=(len(shots), _DIM)))
    rows[shots] = unit(near)
    began = time.perf_counter()
    pairs = set(close_pairs(rows.__getitem__, count, 2 - 2 * SIMILAR))
    took = time.perf_counter() - began
    hits = sum((shot - 1, shot) in pairs for shot in shots.tolist())
    print(f"embeddings: {took:.1f} s, {len(pairs):,} pairs, {hits} of {len(shots)} planted", flush=True)
    del rows
    with tempfile.TemporaryDirectory() as folder:
        contents = [thumbnail(Path(folder), seed) for seed in range(min(count, _SCENES))]
    began = time.perf_counter()
    for content in contents:
        small(content)
    took = (time.perf_counter() - began) / len(contents)
    print(f"thumbnails: {1e3 * took:.2f} ms each on one core, {took * count:.1f} s for all", flush=True)
    coarse = rng.integers(0, 256, (count, 6, 6, 3), dtype=np.uint8)
    looks = np.stack(
        [
            np.asarray(Image.fromarray(one).resize((16, 16), Image.Resampling.BICUBIC)).ravel()
            for one in coarse
        ]
    )
    copies = np.arange(50, count, 100)
    looks[copies] = np.clip(
        looks[copies - 1].astype(np.int16) + rng.integers(-4, 5, (len(copies), 768)), 0, 255
    )
    began = time.perf_counter()
    same = set(same_pictures(looks))
    took = time.perf_counter() - began
    hits = sum((copy - 1, copy) in same for copy in copies.tolist())
    print(f"small pictures: {took:.1f} s, {len(same):,} pairs, {hits} of {len(copies)} planted")


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows at unit length."""
    scaled: np.ndarray = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return scaled


def thumbnail(folder: Path, seed: int) -> bytes:
    """A JPEG of 256 pixels as detailed as a photograph's."""
    rng = np.random.default_rng(seed)
    layers = [
        Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8)).resize((256, 192))
        for side in (5, 17, 61)
    ]
    mixed = sum(
        weight * np.asarray(layer, np.float32)
        for weight, layer in zip((0.6, 0.25, 0.15), layers, strict=True)
    )
    file = io.BytesIO()
    Image.fromarray(np.asarray(mixed, np.uint8)).save(file, "JPEG", quality=85)
    return file.getvalue()


def small(content: bytes) -> np.ndarray:
    """A thumbnail as it is compared."""
    with Image.open(io.BytesIO(content)) as image:
        return small_copy(image)


if __name__ == "__main__":
    main()
