"""Parts that image files of every format have: the demand for a right form, an orientation, a colour profile."""

import io

from PIL import Image

from limner.data.images import formats, orientation, quiet

Piece = range | bytes
"""A part of a stripped file: the place of bytes in the original file, or new bytes."""


class MalformedError(Exception):
    """The file is not built as its format demands."""


def demand(holds: bool) -> None:
    """Raise `MalformedError` if something does not hold."""
    if not holds:
        raise MalformedError


def orientation_of(content: bytes) -> int:
    """The orientation as `open_rgb` turns the picture, 1 to 8; 1 for a file that Pillow does not open."""
    try:
        with quiet(), Image.open(io.BytesIO(content), formats=formats()) as image:
            value = orientation(image)
    except Exception:  # damaged headers raise nearly anything
        return 1
    return value if 1 <= value <= 8 else 1


def orientation_exif(turn: int) -> bytes:
    """EXIF data that hold an orientation and nothing else."""
    # big-endian TIFF: one folder at byte 8 with one entry, tag 0x0112, one short
    return b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01" + turn.to_bytes(2, "big") + b"\0\0\0\0\0\0"


_PROFILE_HEADER = 128


def profile_in(data: bytes) -> bytes | None:
    """A colour profile without bytes behind its end; None if the data are no profile."""
    size = int.from_bytes(data[:4], "big")
    # the signature that every ICC profile has at byte 36: other data must not pass under this name
    return data[:size] if _PROFILE_HEADER <= size <= len(data) and data[36:40] == b"acsp" else None
