"""Photographs a second from JPEG to the pixels that a network crops, and through a look of `limner index`.

References that give the same pixels are timed beside limner; the target is 95 % of the fastest. `simplejpeg` is one
where it is installed (`pip install simplejpeg`, 0.5 MB). Others were left out, since they give other embeddings:
cosines to limner's are in docs/log/2026-11-27.md.
"""

import io
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.measuring import publish, repeats, speeds, taking_turns
from limner.data.capture_time import capture_time
from limner.data.images import thumbnail
from limner.data.transforms import ImageSettings, load
from limner.search.image_look import Seen, Task, look_at

try:
    import simplejpeg
except ImportError:
    simplejpeg = None

SETTINGS = ImageSettings()
SHORTER = 256
SIZES = {(640, 480): 24, (4000, 3000): 4}
"""Width and height in pixels, and how many pictures a turn decodes."""

FULL, SCALED, OTHER = "Pillow, full decoding", "Pillow, scaled decoding", "simplejpeg, scaled decoding"
APART = "read and decoded for each use"


def main() -> None:
    turns = repeats(9)
    groups = {}
    with tempfile.TemporaryDirectory() as folder:
        for (width, height), pictures in SIZES.items():
            photo = _photo(width, height)
            path = Path(folder) / f"{width}.jpg"
            path.write_bytes(photo)
            decoders: dict[str, Callable[[], object]] = {
                SCALED: partial(_pillow, photo, scaled=True),
                FULL: partial(_pillow, photo, scaled=False),
                "limner": partial(load, photo, SETTINGS),
            }
            if simplejpeg is not None:
                decoders[OTHER] = partial(_simplejpeg, photo)
            # what does not give the same pixels is no reference for speed
            for name in {SCALED, OTHER} & {*decoders}:
                np.testing.assert_array_equal(decoders[name](), load(photo, SETTINGS))
            looks: dict[str, Callable[[], object]] = {
                APART: partial(_apart, path),
                "limner": partial(_look, path),
            }
            for threads in (1, 2):
                for what, contestants in (("decode and resize", decoders), ("look of indexing", looks)):
                    seconds = _timed(contestants, threads, pictures, turns)
                    same = {name: taken for name, taken in seconds.items() if name not in (FULL, "limner")}
                    label = f"{what}, {width}×{height}, {len(photo) / 1e3:,.0f} kB, threads: {threads}"
                    groups[label] = speeds(seconds, pictures, reference=min(same, key=same.__getitem__))
    publish(
        "decode",
        unit="pictures",
        groups=groups,
        about={"reference": "the fastest other with the same pixels", "target": 0.95, "repeats": turns},
    )


def _timed(
    contestants: dict[str, Callable[[], object]], threads: int, pictures: int, turns: int
) -> dict[str, float]:
    with ThreadPoolExecutor(threads) as pool:

        def run(work: Callable[[], object]) -> None:
            for future in [pool.submit(work) for _ in range(pictures)]:
                future.result()

        return taking_turns({name: partial(run, work) for name, work in contestants.items()}, turns)


def _look(path: Path) -> Seen | str:
    return look_at(Task(str(path)), lambda source: load(source, SETTINGS))


def _apart(path: Path) -> tuple[np.ndarray, bytes, datetime | None]:
    """As indexing was until November 2026, without its digest: two decodings, each of its own reading."""
    return load(path, SETTINGS), thumbnail(path), capture_time(path)


def _pillow(photo: bytes, *, scaled: bool) -> np.ndarray:
    with Image.open(io.BytesIO(photo)) as image:
        _, size = SETTINGS.resized(*image.size)
        if scaled:
            image.draft("RGB", (SHORTER, SHORTER))
        return np.asarray(image.convert("RGB").resize(size, Image.Resampling.BILINEAR))


def _simplejpeg(photo: bytes) -> np.ndarray:
    height, width, _, _ = simplejpeg.decode_jpeg_header(photo)
    fraction = next(
        number for number in (8, 4, 2, 1) if min(height, width) // SHORTER >= number or number == 1
    )
    pixels = simplejpeg.decode_jpeg(
        photo, min_height=-(-height // fraction), min_width=-(-width // fraction), min_factor=1
    )
    image = Image.fromarray(pixels)
    _, size = SETTINGS.resized(*image.size)
    return np.asarray(image.resize(size, Image.Resampling.BILINEAR))


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
