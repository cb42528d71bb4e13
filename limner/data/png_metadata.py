"""The pieces of a PNG file without metadata, and the check that nothing stands behind its pixels."""

import zlib
from collections.abc import Iterator
from typing import Any

from limner.data.image_parts import (
    MalformedError,
    Piece,
    demand,
    orientation_exif,
    orientation_of,
    profile_in,
)

PNG = b"\x89PNG\r\n\x1a\n"
_LARGEST = {
    b"IHDR": 13,
    b"PLTE": 768,
    b"IDAT": 2**31,
    b"IEND": 0,
    b"tRNS": 256,
    b"bKGD": 6,
    b"cHRM": 32,
    b"gAMA": 4,
    b"sRGB": 1,
    b"sBIT": 4,
    b"pHYs": 9,
    b"cICP": 4,
    b"mDCV": 24,
    b"cLLI": 8,
    b"acTL": 8,
    b"fcTL": 26,
    b"fdAT": 2**31,
}
"""Chunks that decide what a viewer shows, with the most bytes that each may have; a larger one hides something."""
_FIXED = frozenset({b"IHDR", b"cHRM", b"gAMA", b"sRGB", b"pHYs", b"cICP", b"mDCV", b"cLLI", b"acTL", b"fcTL"})
"""Those that have exactly so many."""
_REPEATED = frozenset({b"IDAT", b"fcTL", b"fdAT"})
"""Those of which there may be several."""
_ANYWHERE = _REPEATED | {b"IEND"}
"""Those that may stand behind the first pixels; decoders ignore others there."""
_BEFORE_PALETTE = frozenset({b"cHRM", b"gAMA", b"sRGB", b"sBIT", b"cICP", b"mDCV", b"cLLI", b"iCCP"})
"""Those that decoders ignore behind a palette: without it, where it is only suggested, they would obey them."""
_TOLD = (b"eXIf", b"tEXt", b"zTXt", b"iTXt")
"""Chunks in which Pillow looks for an orientation."""
_MOST_PROFILE = 2**24


def png_pieces(content: bytes) -> list[Piece]:
    """Find the pieces of a PNG that remain. Raises `MalformedError`, and `IndexError` for one that ends too early."""
    kept: list[Piece] = [range(len(PNG))]
    told: list[bytes] = []
    seen: set[bytes] = set()
    once: set[bytes] = set()
    end = len(PNG)
    pixels = _Pixels()
    for kind, at, end in _chunks(content):
        # not of pixels, which may be most of the file
        data = b"" if kind in (b"IDAT", b"fdAT") else content[at + 8 : end - 4]
        before = len(kept)
        ignored = (b"IDAT" in seen and kind not in _ANYWHERE) or (b"PLTE" in seen and kind in _BEFORE_PALETTE)
        if kind == b"iCCP":
            # Pillow takes one in a wrong place, which browsers do not: encoded anew the colours would change
            kept += [] if ignored else _iccp(data)
        elif kind == b"PLTE" and not pixels.indexed:
            # a palette that is only suggested
            pass
        elif (len(data) == _LARGEST[kind]) if kind in _FIXED else (len(data) <= _LARGEST.get(kind, -1)):
            demand(not ignored)
            # four bytes at the end of each
            demand(
                zlib.crc32(memoryview(content)[at + 4 : end - 4])
                == int.from_bytes(content[end - 4 : end], "big")
            )
            pixels.take(kind, memoryview(content)[at + 8 : end - 4])
            kept.append(range(at, end))
        else:
            # an upper-case first letter: without this chunk the picture cannot be shown
            demand(not kind[:1].isupper())
            # behind the pixels of an animation Pillow looks for none, so that the model saw it unturned
            if kind in _TOLD and not {b"acTL", b"IDAT"} <= seen:
                told.append(content[at:end])
        if len(kept) > before:
            # twice is once too often by the format: the second one could be anything
            demand(kind in _REPEATED or kind not in once)
            once.add(kind)
        seen.add(kind)
        if kind == b"IEND":
            break
    demand(content[end - 8 : end - 4] == b"IEND" and b"IDAT" in seen)
    if told and (turn := orientation_of(_DOT[0] + b"".join(told) + _DOT[1])) != 1:
        # behind the signature and the header, before the pixels, where every reader looks
        kept.insert(2, _chunk(b"eXIf", orientation_exif(turn)))
    return kept


class _Pixels:
    """The pixels of a PNG as its chunks bring them: unpacked and counted, so that nothing stands behind them.

    Unpacking an image of 100 MB takes half a second; nothing of it is kept.
    """

    def __init__(self) -> None:
        self.indexed = False
        self._header = b""
        self._unpacker: Any = None
        self._left = 0
        self._colours = 0
        # frames that are due, the next number of their chunks, and the size of a frame whose pixels are awaited
        self._frames = self._number = 0
        self._awaited: bytes | None = None
        self._last = b""

    def take(self, kind: bytes, data: memoryview) -> None:
        """Take the next chunk. Raises `MalformedError` for pixels that are too many, too few or in the wrong place."""
        if kind == b"IHDR":
            self._header = bytes(data)
            self.indexed = data[9] == 3
        elif kind == b"acTL":
            self._frames = int.from_bytes(data[:4], "big")
            demand(self._frames > 0)
        elif kind == b"PLTE":
            self._colours = len(data) // 3
            demand(len(data) % 3 == 0 and self._colours <= 1 << self._header[8])
        elif kind == b"tRNS":
            sizes = {0: range(2, 3), 2: range(6, 7), 3: range(1, self._colours + 1)}
            demand(len(data) in sizes.get(self._header[9], ()))
        elif kind == b"bKGD":
            demand(self._colours > 0 or not self.indexed)
            demand(len(data) == (1 if self.indexed else 2 if self._header[9] in (0, 4) else 6))
        elif kind == b"IDAT":
            if self._last != b"IDAT":
                demand(self._unpacker is None)
                self._awaited = None
                self._begin(self._header[:8])
            self._unpack(data)
        elif kind == b"fcTL":
            self._take_frame(data)
        elif kind == b"fdAT":
            self._count(data)
            # an empty one says nothing, and its number could be said as often as somebody likes
            demand(len(data) > 4)
            if self._last != b"fdAT":
                demand(self._awaited is not None and self._unpacker is not None)
                self._begin(self._awaited or b"")
                self._awaited = None
            self._unpack(data[4:])
        elif kind == b"IEND":
            self._end()
            demand(self._frames == 0 and self._awaited is None)
        self._last = kind

    def _take_frame(self, data: memoryview) -> None:
        """Take what is told of a frame: its number, size, place, time, and how it covers what was there."""
        self._count(data)
        # not by the last chunk: in front of the pixels others may stand between two frames
        demand(self._frames > 0 and self._awaited is None)
        self._frames -= 1
        self._end()
        width, height, left, top = (int.from_bytes(data[at : at + 4], "big") for at in range(4, 20, 4))
        whole_width, whole_height = (int.from_bytes(self._header[at : at + 4], "big") for at in (0, 4))
        demand(width > 0 < height and left + width <= whole_width and top + height <= whole_height)
        # without a number that no viewer knows; the first frame of all is the picture itself
        demand(data[24] <= 2 and data[25] <= 1)
        demand(self._unpacker is not None or (width, height) == (whole_width, whole_height))
        self._awaited = bytes(data[4:12])

    def _count(self, data: memoryview) -> None:
        demand(int.from_bytes(data[:4], "big") == self._number)
        self._number += 1

    def _begin(self, size: bytes) -> None:
        self._left = _row_bytes(
            self._header, int.from_bytes(size[:4], "big"), int.from_bytes(size[4:], "big")
        )
        self._unpacker = zlib.decompressobj()

    def _unpack(self, data: memoryview) -> None:
        for at in range(0, len(data), _PACKED):
            # in small parts: what the unpacker has not taken is copied each time
            part: bytes | memoryview = data[at : at + _PACKED]
            while part:
                demand(not self._unpacker.eof)
                # never more than is due: a file of 100 kB may unpack to 100 MB
                try:
                    got = self._unpacker.decompress(part, min(_UNPACKED, self._left + 1))
                except zlib.error:
                    raise MalformedError from None
                self._left -= len(got)
                demand(self._left >= 0 and not self._unpacker.unused_data)
                part = self._unpacker.unconsumed_tail

    def _end(self) -> None:
        demand(self._unpacker is None or (self._unpacker.eof and self._left == 0))


_PACKED, _UNPACKED = 2**16, 2**20
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""The passes of an interlaced image: first column, first row, and the steps to the next."""


def _row_bytes(header: bytes, width: int, height: int) -> int:
    """Bytes of the rows of an image, each with the byte that names its filter."""
    demand(header[9] in _CHANNELS and header[12] < 2)
    bits = header[8] * _CHANNELS[header[9]]
    passes = _ADAM7 if header[12] else ((0, 0, 1, 1),)
    sizes = [(-(-(width - x) // across), -(-(height - y) // down)) for x, y, across, down in passes]
    return sum(rows * (1 + (columns * bits + 7) // 8) for columns, rows in sizes if columns > 0 and rows > 0)


def _chunks(content: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield the kind of each chunk, its beginning and its end."""
    at = len(PNG)
    while at < len(content):
        end = at + 12 + int.from_bytes(content[at : at + 4], "big")
        kind = content[at + 4 : at + 8]
        demand(end <= len(content) and kind.isalpha())
        # the header comes first, as all else depends on it
        demand((kind == b"IHDR") == (at == len(PNG)))
        yield kind, at, end
        at = end


def _chunk(kind: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")


# the smallest picture: an orientation is read beside one pixel, where Pillow would decode the whole picture for it
_DOT = (
    PNG + _chunk(b"IHDR", b"\0\0\0\x01\0\0\0\x01\x08\0\0\0\0"),
    _chunk(b"IDAT", zlib.compress(b"\0\0")) + _chunk(b"IEND", b""),
)


def _iccp(data: bytes) -> list[Piece]:
    """The colour profile under a name of ours: the file's own may say anything in 79 letters."""
    _, _, packed = data.partition(b"\0")
    unpacker = zlib.decompressobj()
    try:
        # bounded: a chunk of 1 MB may unpack to 1 GB
        profile = profile_in(unpacker.decompress(packed[1:], _MOST_PROFILE))
    except zlib.error:
        profile = None
    return [] if profile is None else [_chunk(b"iCCP", b"ICC profile\0\0" + zlib.compress(profile))]
