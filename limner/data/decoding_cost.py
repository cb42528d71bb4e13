"""The cost of decoding a picture: how many pixels are decoded at most, and JPEG at a fraction of their size."""

import os

from PIL import Image, ImageFile

from limner.errors import SettingsError

MAX_PIXELS = 2**27
"""Most pixels that are decoded of a picture: more than of a camera's single shot (about 100 million), while their
400 MB of RGB still fit into a server or a data worker. A JPEG counts as it is decoded, at a fraction of its size,
unless it is progressive, and more than eight bits a channel count four times. Known from the header, before memory is
taken. The environment variable LIMNER_MAX_PIXELS gives another number, to all commands and servers alike."""

_SLOWEST = 4
"""How many times as many pixels a JPEG may have that is decoded at a fraction of its size: more would take too long."""

_BLOCK = 2**20
"""Bytes that a JPEG's decoder is handed at once: a photograph of 640×480 pixels whole. By Pillow's 64 kB, its decoder
stops in the middle and begins again, which took 3 % of the time; from 16 MB on, the block itself does."""


def max_pixels() -> int:
    """Most pixels that are decoded of a picture: see `MAX_PIXELS`. Raises `SettingsError` for another variable."""
    given = os.environ.get("LIMNER_MAX_PIXELS", "")
    if not given:
        return MAX_PIXELS
    if not (given.isascii() and given.isdigit() and 0 < len(given) <= 18 and int(given)):
        raise SettingsError(f"LIMNER_MAX_PIXELS: expected a whole number of pixels, got {given[:40]!a}")
    return int(given)


def too_large(image: Image.Image, most: int | None = None) -> str | None:
    """Why an opened picture is not decoded, by its header; None if it is. `most` in place of `max_pixels`."""
    most = most or max_pixels()
    width, height = image.size
    cost, reason = width * height, ""
    if _is_scaled(image):
        # as small as it has to be; its file has to be read from first to last all the same
        cost //= _SLOWEST
    elif image.format in SCALED:
        reason = " of a progressive JPEG"
    # decoding more than eight bits takes copies in 32 bits
    elif image.mode[0] in "IF":
        cost, reason = 4 * cost, " of more than eight bits, which count four times,"
    if cost <= most:
        return None
    return f"{width}×{height} pixels{reason} are more than {most:,}; scale it down first"


SCALED = ("JPEG", "MPO")
"""Formats that are decoded at a fraction of their size."""


def _is_scaled(image: Image.Image) -> bool:
    # a progressive one is kept as coefficients of its full size until its last scan
    return image.format in SCALED and not image.info.get("progressive")


def scale(image: Image.Image, short_side: int | None) -> None:
    """Let a JPEG be decoded at a fraction of its size."""
    # HEIC is no JPEG: of it `draft` takes a small picture in the file, which may show something else
    if image.format not in SCALED:
        return
    width, height = image.size
    shrink = next(shrink for shrink in (1, 2, 4, 8) if width * height <= shrink**2 * max_pixels())
    if shrink > 1 and (short_side is None or min(width, height) // short_side < shrink):
        image.draft(None, (width // shrink, height // shrink))
    elif short_side is not None:
        image.draft(None, (short_side, short_side))
    if image.format == "JPEG" and isinstance(image, ImageFile.ImageFile):
        image.decodermaxblock = _BLOCK
