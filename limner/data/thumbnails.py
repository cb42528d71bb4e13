"""A small JPEG of a picture, to show in lists."""

import io
from pathlib import Path

from PIL import Image

from limner.data.images import open_rgb

LONG_SIDE = 256
"""Longer side of a thumbnail in pixels; smaller pictures keep their size."""

_QUALITY = 80  # about 10 kB for a photograph


def thumbnail(source: str | Path | bytes) -> bytes:
    """Upright, without any metadata. Raises `ImageError` as `limner.data.images.decode`."""
    image = open_rgb(source, short_side=LONG_SIDE)
    image.thumbnail((LONG_SIDE, LONG_SIDE), Image.Resampling.BILINEAR)
    return as_jpeg(image, quality=_QUALITY)


def as_jpeg(image: Image.Image, *, quality: int = 92) -> bytes:
    """An RGB picture as the bytes of a JPEG file without metadata."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return file.getvalue()
