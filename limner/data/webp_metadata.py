"""The pieces of a WebP file without metadata."""

from collections.abc import Iterator

from limner.data.image_parts import Piece, demand, orientation_exif, orientation_of, profile_in

_VP8X_SIZE, _ANIM_SIZE, _ANMF_HEADER = 10, 6, 16
_WEBP_IMAGE = frozenset({b"VP8 ", b"VP8L", b"ALPH"})
_WEBP_WHOLE = ([b"VP8 "], [b"VP8L"], [b"ALPH", b"VP8 "])
"""The chunks of one image, in their order."""
_HAS_PROFILE, _HAS_ALPHA, _HAS_EXIF, _HAS_XMP, _IS_ANIMATED = 0x20, 0x10, 0x08, 0x04, 0x02


def webp_pieces(content: bytes) -> list[Piece]:
    """Find the pieces of a WebP that remain. Raises `MalformedError`, and `IndexError` for one that ends too early."""
    # the size in the header, behind which bytes may be appended
    last = 8 + int.from_bytes(content[4:8], "little")
    demand(last <= len(content))
    kept: list[Piece] = []
    images: list[bytes] = []
    flags: int | None = None
    told, profiled = 0, False
    turn, profile = orientation_of(content), None
    for kind, at, end in _riff_chunks(content, 12, last):
        if kind == b"VP8X":
            demand(end - at == 8 + _VP8X_SIZE and flags is None and not kept)
            told = content[at + 8]
            flags = told & ~(_HAS_EXIF | _HAS_XMP | _HAS_PROFILE)
            canvas = content[at + 12 : end]
        elif kind == b"ICCP":
            # one, announced and in front: viewers differ in which of several they take, and whether they take others
            demand(bool(told & _HAS_PROFILE) and not images and not profiled)
            profiled = True
            profile = profile_in(content[at + 8 : end])
        elif kind == b"ANMF":
            demand(images[:1] == [b"ANIM"])
            kept += _frame(content, at, end, alpha=bool(flags and flags & _HAS_ALPHA))
            images.append(kind)
        elif kind == b"ANIM":
            demand(end - at == 8 + _ANIM_SIZE and not images)
            kept.append(range(at, end))
            images.append(kind)
        elif kind in _WEBP_IMAGE:
            demand(_begins_as(kind, content[at + 8 : end]))
            kept += _padded(range(at, end))
            images.append(kind)
    # a second image is never shown, and could be anything
    demand(
        images in _WEBP_WHOLE or (images[:1] == [b"ANIM"] and len(images) > 1 and {*images[1:]} == {b"ANMF"})
    )
    if flags is not None:
        # without that flag no viewer looks at transparency
        demand(b"ALPH" not in images or bool(flags & _HAS_ALPHA))
        demand(bool(flags & _IS_ANIMATED) == (images[0] == b"ANIM"))
        flags |= (_HAS_EXIF if turn != 1 else 0) | (_HAS_PROFILE if profile is not None else 0)
        head = [_riff_chunk(b"VP8X", bytes([flags, 0, 0, 0]) + canvas)]
        head += [_riff_chunk(b"ICCP", profile)] if profile is not None else []
        kept = [*head, *kept, *([_riff_chunk(b"EXIF", orientation_exif(turn))] if turn != 1 else [])]
    else:
        # without that chunk there is no place for an orientation, nor for more than one chunk
        demand(turn == 1 and len(images) == 1)
    size = 4 + sum(map(len, kept))
    return [b"RIFF" + size.to_bytes(4, "little") + b"WEBP", *kept]


def _frame(content: bytes, at: int, end: int, *, alpha: bool) -> list[Piece]:
    """A frame of an animation, in which unknown chunks may lie as well."""
    start = at + 8 + _ANMF_HEADER
    kept: list[Piece] = [range(at + 8, start)]
    images: list[bytes] = []
    for kind, begin, stop in _riff_chunks(content, start, end):
        if kind in _WEBP_IMAGE:
            demand(_begins_as(kind, content[begin + 8 : stop]))
            kept += _padded(range(begin, stop))
            images.append(kind)
    demand(images in _WEBP_WHOLE and (alpha or b"ALPH" not in images))
    return [b"ANMF" + sum(map(len, kept)).to_bytes(4, "little"), *kept]


def _begins_as(kind: bytes, data: bytes) -> bool:
    """True for data that begin as the image of a chunk does; where it ends, only its decoding shows."""
    if kind == b"VP8 ":
        # a key frame, whose first part has its length; the last part goes on to the end of the chunk
        first = int.from_bytes(data[:3], "little") >> 5
        return len(data) >= 10 + first and not data[0] & 1 and data[3:6] == b"\x9d\x01\x2a"
    return len(data) > 5 and data[0] == 0x2F if kind == b"VP8L" else len(data) > 1


def _riff_chunks(content: bytes, at: int, last: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield the kind of each chunk, its beginning, and its end without the byte that pads it."""
    while at < last:
        end = at + 8 + int.from_bytes(content[at + 4 : at + 8], "little")
        demand(end <= last)
        yield content[at : at + 4], at, end
        at = end + (end - at) % 2


def _riff_chunk(kind: bytes, data: bytes) -> bytes:
    return kind + len(data).to_bytes(4, "little") + data + b"\0" * (len(data) % 2)


def _padded(chunk: range) -> list[Piece]:
    return [chunk, b"\0"] if len(chunk) % 2 else [chunk]
