"""Which part of a picture a model sees, so that its attention can be laid over the whole picture."""

import io
from collections.abc import Sequence

from PIL import Image

from limner.data.transforms import LONGEST, ImageSettings
from limner.inference.trained import TrainedModel
from limner.search.hits import Crop
from limner.search.store import Store
from limner.types import Encoder

WHOLE: Crop = (0.0, 0.0, 1.0, 1.0)


def crop_of(width: int, height: int, settings: ImageSettings) -> Crop:
    """What `centre_crop(load(…))` of `limner.data.transforms` keeps of an upright picture of this size in pixels.

    >>> crop_of(400, 200, ImageSettings(resize=100, crop=(100, 100)))
    (0.25, 0.0, 0.75, 1.0)
    """
    if isinstance(settings.resize, int):
        short = min(width, height)
        kept = (min(width, LONGEST * short), min(height, LONGEST * short))
        sizes = (round(kept[0] * settings.resize / short), round(kept[1] * settings.resize / short))
    else:
        kept, sizes = (width, height), (settings.resize[1], settings.resize[0])
    left, right = _along(width, kept[0], sizes[0], settings.crop[1])
    top, bottom = _along(height, kept[1], sizes[1], settings.crop[0])
    return left, top, right, bottom


def crops_of(encoder: Encoder, store: Store, ids: Sequence[str]) -> list[Crop]:
    """Of pictures of the store by their keys, in order; of the size of their thumbnails, to about 0.5 %.

    A picture without a thumbnail counts as seen whole, and so does any by an encoder that is no `TrainedModel`.
    """
    if not isinstance(encoder, TrainedModel):
        return [WHOLE] * len(ids)
    return [
        WHOLE if file is None else crop_of(*Image.open(io.BytesIO(file)).size, encoder.images)
        for file in store.thumbnails(ids)
    ]


def _along(length: int, kept: int, resized: int, crop: int) -> tuple[float, float]:
    """First and last share of one side: `kept` of its `length` pixels in the middle become `resized`."""
    first = (length - kept) // 2
    start = (resized - crop) // 2
    return (first + start * kept / resized) / length, (first + (start + crop) * kept / resized) / length
