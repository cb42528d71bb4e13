"""Frames of an animated PNG that no viewer shows: such a file is encoded anew."""

import zlib

import pytest

from limner.data.image_metadata import encoded_anew, joined, pieces_without_metadata
from limner.errors import ImageError
from tests.data.test_image_metadata import SECRET, chunk

HEADER = chunk(b"IHDR", b"\0\0\0\x04\0\0\0\x04\x08\0\0\0\0")
ROWS = zlib.compress(bytes(20))
PIXELS = chunk(b"IDAT", ROWS)
SMALL = zlib.compress(bytes(6))
GAMMA = chunk(b"gAMA", bytes(4))


def count(frames: int) -> bytes:
    return chunk(b"acTL", frames.to_bytes(4, "big") + bytes(4))


def told(number: int, size: int = 4, place: int = 0, how: bytes = b"\0\0") -> bytes:
    numbers = (number, size, size, place, place)
    return chunk(b"fcTL", b"".join(one.to_bytes(4, "big") for one in numbers) + b"\0\1\0\x0a" + how)


def data(number: int, packed: bytes = ROWS) -> bytes:
    return chunk(b"fdAT", number.to_bytes(4, "big") + packed)


TWO = count(2), told(0), PIXELS, told(1)
WHOLE: dict[str, tuple[bytes, ...]] = {
    "two frames": (*TWO, data(2)),
    "a small frame": (count(2), told(0), PIXELS, told(1, 2, 2), data(2, SMALL)),
    "pixels in parts": (*TWO, data(2, ROWS[:3]), data(3, ROWS[3:])),
    "a picture that is no frame": (count(1), PIXELS, told(0), data(1)),
    "one frame": (count(1), told(0), PIXELS),
}
LETTERS = int.from_bytes(SECRET[:4], "big")
HIDDEN = {
    "an empty part": (*TWO, data(2), data(3, b"")),
    "empty parts with text for numbers": (*TWO, data(2), data(LETTERS, b""), data(LETTERS, b"")),
    "an empty part in front": (*TWO, data(2, b""), data(3)),
    "a part too short for its number": (*TWO, data(2), chunk(b"fdAT", SECRET[:3])),
    "text for the number of a part": (*TWO, data(LETTERS)),
    "text for the number of a frame": (count(2), told(LETTERS), PIXELS, told(1), data(2)),
    "a number twice": (*TWO, data(1)),
    "a number left out": (*TWO, data(3)),
    "bytes behind the pixels": (*TWO, data(2, ROWS + SECRET)),
    "bytes behind them in a part": (*TWO, data(2), data(3, SECRET)),
    "too many pixels": (*TWO, data(2, zlib.compress(bytes(25)))),
    "too few": (*TWO, data(2, zlib.compress(bytes(15)))),
    "a frame without pixels": (count(3), told(0), PIXELS, told(1), told(2), data(3)),
    "a last frame without pixels": (*TWO,),
    "one before the picture": (count(2), told(0), GAMMA, told(1), PIXELS),
    "more frames than counted": (count(1), told(0), PIXELS, told(1), data(2)),
    "fewer": (count(3), told(0), PIXELS, told(1), data(2)),
    "no count": (told(0), PIXELS, told(1), data(2)),
    "a count of none": (count(0), PIXELS),
    "a frame before its count": (told(0), count(1), PIXELS),
    "pixels of a frame before the picture": (count(2), told(0), data(1), PIXELS, told(2), data(3)),
    "pixels of no frame": (count(1), told(0), PIXELS, data(1)),
    "a frame beyond the picture": (count(2), told(0), PIXELS, told(1, 2, 3), data(2, SMALL)),
    "a frame of nothing": (count(2), told(0), PIXELS, told(1, 0), data(2, zlib.compress(b""))),
    "a first frame that is not the picture": (count(1), told(0, 2), PIXELS),
    "text for what becomes of it": (count(2), told(0), PIXELS, told(1, how=b"An"), data(2)),
}


def png_of(chunks: tuple[bytes, ...]) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + HEADER + b"".join(chunks) + chunk(b"IEND", b"")


@pytest.mark.parametrize("name", WHOLE)
def test_lawful_frames_stay(name: str) -> None:
    content = png_of(WHOLE[name])
    pieces = pieces_without_metadata(content)
    assert pieces is not None
    assert joined(pieces, content) == content


@pytest.mark.parametrize("name", HIDDEN)
def test_nothing_hides_between_frames(name: str) -> None:
    content = png_of(HIDDEN[name])
    assert pieces_without_metadata(content) is None
    try:
        got, kind = encoded_anew(content, "a.png")
    except ImageError:  # one that Pillow does not open either: 409
        return
    assert kind == "image/png"
    assert b"acTL" not in got
    assert SECRET[:4] not in got
