"""Photographs a second from JPEG to a shorter side of 256 pixels: full decoding against decoding at a reduced size."""

import io
from functools import partial

import numpy as np
from PIL import Image

from benchmarks.measuring import publish, repeats, speeds, taking_turns
from limner.data.transforms import ImageSettings, load

REFERENCE = "full decoding"
SIZES = ((640, 480), (2048, 1536), (4000, 3000))
SHORTER = 256


def main() -> None:
    turns = repeats(3)
    groups = {}
    for width, height in SIZES:
        photo = _photo(width, height)
        contestants = {
            REFERENCE: partial(_full, photo),
            "limner": partial(load, photo, ImageSettings(resize=SHORTER)),
        }
        groups[f"{width}×{height}, {len(photo) / 1e3:,.0f} kB"] = speeds(
            taking_turns(contestants, turns), 1, reference=REFERENCE
        )
    publish("decode", unit="pictures", groups=groups, about={"reference": REFERENCE, "repeats": turns})


def _full(photo: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(photo)) as image:
        scale = SHORTER / min(image.size)
        size = (round(image.width * scale), round(image.height * scale))
        return np.asarray(image.convert("RGB").resize(size, Image.Resampling.BILINEAR))


def _photo(width: int, height: int) -> bytes:
    """Noise on several scales, which fills a JPEG about as a photograph does."""
    rng = np.random.default_rng(0)
    total = np.zeros((height, width, 3), np.float32)
    for cells, weight in ((8, 90.0), (64, 30.0), (512, 8.0)):
        coarse = rng.integers(0, 256, (max(2, cells * height // width), cells, 3), np.uint8)
        grown = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        total += weight * (np.asarray(grown, np.float32) / 127.5 - 1)
    image = Image.fromarray(np.clip(total + 128, 0, 255).astype(np.uint8))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=90)
    return file.getvalue()


if __name__ == "__main__":
    main()
