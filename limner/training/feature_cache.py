"""The features of a frozen backbone, computed once for several views of each image and kept on disk.

While the backbone is frozen, its pooled feature of a given crop never changes; while it learns from some layer on, the
map that this layer reads does not. A stage therefore draws from a fixed number of views a picture instead of running
the backbone in every epoch: first those that testing averages (the centre crop, and its mirror image unless pictures
are not to be mirrored), then random crops and flips. Values are float16: the cache of 6,000 pictures × 10 views × 1,280
channels takes 154 MB, maps of 7 × 7 × 160 six times that.
"""

import hashlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8

from limner.data.kept_rows import KeptRows
from limner.errors import DataError
from limner.inference.image_engine import BackbonePass, to_half
from limner.inference.precision import Precision
from limner.models.image import BackboneSettings, ImageEncoder
from limner.training.cache_entries import Report, kept_array
from limner.training.pictures import Pictures, ahead

# All views of a chunk are in memory at once: 48 MB of ten at 224 × 224, for each chunk that is made ahead.
_CHUNK = 32

_FORMAT = 3
"""Increased when the same settings begin to give other views or values; 3 goes by the images' content."""


def cached_views(
    backbone: ImageEncoder,
    described: BackboneSettings | None,
    pictures: Pictures,
    views: int,
    *,
    seed: int,
    precision: Precision,
    until: str | None = None,
    report: Report | None = None,
    folder: Path | None = None,
) -> Float[KeptRows, "images views ..."]:
    """Features of `views` ≥ 1 views of each picture, memory-mapped float16; read from the cache or computed.

    Their shape is (images, views, channels); with `until`, they are the maps that this layer of the backbone reads:
    (images, views, height, width, channels). `described` are the settings that the backbone was
    built from, None for one of another package. The key covers the weights that take part, the transform, the seed, the
    arithmetic and the content of each file. An interrupted computation continues where it
    stopped. Raises `DataError` for a picture that is missing, or was changed meanwhile, and as `kept_array` does.
    """

    @cache  # it copies the backbone, which an entry that is there does not need
    def encoding() -> BackbonePass:
        return BackbonePass(backbone, precision)

    def shape() -> tuple[int, ...]:
        # By passing an image through: what a layer reads depends on padding and strides.
        return (len(pictures), views, *_encode(encoding(), pictures.centred(range(1)), until).shape[1:])

    def fill(store: np.ndarray, done: int, complete: Callable[[int, int], None]) -> None:
        _compute(store, done, complete, encoding(), pictures, seed, until, report)
        # The key was made before the first image was decoded: the entry must not hold features of another image.
        try:
            pictures.expect_unchanged()
        except DataError:
            complete(0, 0)  # whoever makes this entry later begins anew
            raise

    return kept_array(
        _key(backbone, described, pictures, views, seed, precision, until),
        shape,
        fill,
        # A step reads one view of a picture.
        axes=2,
        what=f"features of {len(pictures)} pictures × {views} views",
        remedy="the stage's views lower (0 = no cache)",
        folder=folder,
    )


def _compute(
    store: np.ndarray,
    done: int,
    complete: Callable[[int, int], None],
    encoding: BackbonePass,
    pictures: Pictures,
    seed: int,
    until: str | None,
    report: Report | None,
) -> None:
    """Fill the array chunk by chunk."""
    count, wanted = store.shape[:2]

    def prepare(start: int) -> tuple[int, list[np.ndarray]]:
        numbers = range(start, min(start + _CHUNK, count))
        centred = pictures.centred(numbers)
        # The mirror image of the centre crop, which testing averages with it.
        tested = [centred, centred[:, :, ::-1]][: pictures.settings.test_views]
        # 7 sets these draws apart from training's (stage, epoch, …); views do not depend on the stage that reads
        # them.
        drawn = [pictures.random(numbers, seed, 7, view) for view in range(len(tested), wanted)]
        return start, (tested + drawn)[:wanted]

    for start, views in ahead(range(done, count, _CHUNK), prepare):
        upto = min(start + _CHUNK, count)
        for view, pixels in enumerate(views):
            store[start:upto, view] = _encode(encoding, pixels, until)
        # Every 512 images: each note flushes the file, and a killed run repeats no more than these.
        if (start // _CHUNK) % 16 == 15 or upto == count:
            complete(upto, upto)
        if report is not None:
            report(upto, count)


def _encode(
    encoding: BackbonePass, pixels: UInt8[np.ndarray, "images height width 3"], until: str | None
) -> Float[np.ndarray, "images ..."]:
    found = encoding.pool(pixels) if until is None else encoding.map_until(pixels, until)
    return to_half(found)


def _key(
    backbone: ImageEncoder,
    described: BackboneSettings | None,
    pictures: Pictures,
    views: int,
    seed: int,
    precision: Precision,
    until: str | None,
) -> str:
    settings = pictures.settings
    # So a validation split's features are the same entry for every seed and kind of crop.
    if views <= settings.test_views:  # nothing random in them
        seed, settings = 0, settings.replace(train_crop="random", pad=0, train_area=(0.8, 1.0))
    # The cache holds no view at another size.
    described_settings = settings.model_dump_json(exclude={"test_scales"})
    digest = hashlib.sha256(f"{_FORMAT} {views} {seed} {precision} {described_settings}".encode())
    # Without the path of the weights: their values are hashed below.
    # An image encoder of another package has settings that are not known here; torch writes down its layers.
    settings_of = repr(backbone) if described is None else described.replace(weights=None).model_dump_json()
    digest.update(settings_of.encode())
    # A pretrained network's own configuration: the same weights compute something else with another `hidden_act`.
    digest.update(json.dumps(backbone.files(), sort_keys=True).encode())
    # `startswith("")` is true of every name.
    before: tuple[str, ...] = ("",)
    if until is not None:
        digest.update(until.encode())
        before = tuple(f"{name}." for name, _ in backbone.layers_before(until))
    # Sorted: the order of a state_dict is that of construction, which a refactoring may change.
    for name, tensor in sorted(backbone.state_dict().items()):
        if not name.startswith(before):
            continue  # what other layers know changes no map before them
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    # By content, in order: the same images elsewhere are the same entry, and another image is never taken for one that
    # has its size and time of change. Views are drawn by an image's number, so the order is part of it.
    digest.update(pictures.digests().tobytes())
    # 128 bits: as good as never the same for two sets, and short enough for a file's name.
    return digest.hexdigest()[:32]
