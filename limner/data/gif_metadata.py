"""The pieces of a GIF file without metadata."""

import re

from limner.data.image_parts import Piece, demand, orientation_of

_GIF_LOOP = re.compile(rb"!\xff\x0b(NETSCAPE2\.0|ANIMEXTS1\.0)\x03\x01..\0", re.DOTALL)
"""How often an animation is repeated: the one application extension that a viewer needs."""


def gif_pieces(content: bytes) -> list[Piece]:
    """Find the pieces of a GIF that remain. Raises `MalformedError`, and `IndexError` for one that ends too early."""
    at = 13 + _table(content[10])
    kept: list[Piece] = [range(at)]
    control: list[Piece] = []
    shown = looped = shares = False
    # up to the trailer: a file without one is not whole
    while content[at] != 0x3B:
        if content[at] == 0x2C:
            end = _blocks_end(content, at + 11 + _table(content[at + 9]))
            kept += [*control, range(at, end)]
            control, shown = [], True
            shares |= not content[at + 9] & 0x80
        else:
            demand(content[at] == 0x21)
            end = _blocks_end(content, at + 2)
            # 0xF9: time and transparency of the next image; of several the last one counts
            if content[at + 1] == 0xF9 and content[at + 2] == 4 and end - at == 8:
                control = [range(at, end)]
            elif not looped and _GIF_LOOP.fullmatch(content, at, end):
                kept.append(range(at, end))
                looped = True
        at = end
    # a GIF has no EXIF, but Pillow turns by its XMP
    demand(shown and orientation_of(content) == 1)
    if not shares:
        kept[0] = _unused_palette(content)
    return [*kept, b"\x3b"]


def _unused_palette(content: bytes) -> bytes:
    """The head of a GIF each of whose images has its own colours: of the common ones the background's remains.

    The table stays, as without it viewers would take another background behind the images of an animation.
    """
    palette = bytearray(_table(content[10]))
    background = range(13 + 3 * content[11], 16 + 3 * content[11])
    if background.stop <= 13 + len(palette):
        palette[background.start - 13 : background.stop - 13] = content[background.start : background.stop]
    return content[:13] + bytes(palette)


def _table(packed: int) -> int:
    """Bytes of a colour table, by the byte that describes it."""
    return 3 * 2 ** ((packed & 7) + 1) if packed & 0x80 else 0


def _blocks_end(content: bytes, at: int) -> int:
    while size := content[at]:
        at += 1 + size
    return at + 1
