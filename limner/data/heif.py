"""HEIC and HEIF, the files of phones: read by pillow-heif, which is an extra."""

import io
import re
from collections.abc import Iterator
from typing import Any

from PIL import Image

from limner.errors import install_hint

SUFFIXES = frozenset({".heic", ".heif", ".hif"})
"""Lower-case endings of such files."""

_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"})
"""Names in the first box of a file whose pictures are coded in HEVC. AVIF has others, and Pillow reads it itself."""

_BEGINNING = 64
"""Bytes that are read of the first box."""


class MissingHeifError(Exception):
    """pillow-heif is not installed; the message is the next step."""


def is_heif(beginning: bytes) -> bool:
    """True for the first bytes of a HEIC or HEIF file.

    >>> is_heif(bytes([0, 0, 0, 24]) + b"ftypmif1" + bytes(4) + b"mif1heic")
    True
    """
    if beginning[4:8] != b"ftyp":
        return False
    # the main brand, four bytes of a version, and the others; "mif1" alone may be AVIF
    box = beginning[8 : min(int.from_bytes(beginning[:4]), _BEGINNING)]
    return any(box[at : at + 4] in _BRANDS for at in range(0, len(box), 4))


def has_heif() -> bool:
    """True if pillow-heif is installed."""
    try:
        _plugin()
    except MissingHeifError:
        return False
    return True


def open_heif(file: io.BytesIO | io.BufferedReader, most: int) -> Image.Image:
    """Read the header of a HEIC file; its pixels are decoded when they are asked for.

    Raises `MissingHeifError`, Pillow's `DecompressionBombError` if any picture in it has more than `most` pixels, and
    whatever a damaged file makes pillow-heif raise.
    """
    plugin = _plugin()
    content = file.read()
    # the size that pillow-heif tells is that after cropping: 81 million pixels in 19 kB were called 16 × 16
    if any(width * height > most for width, height in _coded_sizes(content)):
        raise Image.DecompressionBombError(f"more than {most:,} pixels")
    # its class itself: registered with Pillow it would open files for the whole process, also those of others
    image: Image.Image = plugin.HeifImageFile(io.BytesIO(content))
    return image


def _coded_sizes(content: bytes) -> Iterator[tuple[int, int]]:
    """Width and height of each picture in a file as it is coded. Raises `ValueError` for overlays."""
    at = 0
    while at < len(content):
        size, kind = int.from_bytes(content[at : at + 4]), content[at + 4 : at + 8]
        if size == 1:  # a size of 64 bits follows
            size = int.from_bytes(content[at + 8 : at + 16])
        end = at + size if size >= 8 else len(content)
        # the coded pixels themselves are all that the box "mdat" holds
        box = b"" if kind == b"mdat" else content[at:end]
        # its canvas is as large as its data say, which may lie anywhere; no camera writes one
        if b"iovl" in box:
            raise ValueError("an overlay of several pictures")
        # libheif decodes no picture that is larger than its own "ispe" says
        for found in re.finditer(b"ispe.{4}(.{4})(.{4})", box, re.DOTALL):
            yield int.from_bytes(found[1]), int.from_bytes(found[2])
        at = end


def begins_heif(file: io.BytesIO | io.BufferedReader) -> bool:
    """True if an open file is HEIC or HEIF; it is then where it was."""
    at = file.tell()
    beginning = file.read(_BEGINNING)
    file.seek(at)
    return is_heif(beginning)


def _plugin() -> Any:
    # imported when such a file is there: it takes a tenth of a second
    try:
        import pillow_heif
    except ImportError:
        raise MissingHeifError(f"a HEIC picture, which needs more: {install_hint('heif')}") from None
    return pillow_heif
