"""Takes metadata out of image files without decoding them: EXIF, place, XMP, IPTC, comments, previews, appended bytes.

What a viewer needs stays: the pixels as they are coded, the colour profile, transparency, animation, and the EXIF
orientation alone if the picture is turned. Parts are kept by name, so that an unknown part is removed.
"""

import io
import re
from collections.abc import Iterator

from limner.data.image_parts import (
    MalformedError,
    Piece,
    demand,
    orientation_exif,
    orientation_of,
    profile_in,
)
from limner.data.images import open_rgb
from limner.data.png_metadata import PNG, png_pieces


def pieces_without_metadata(content: bytes) -> list[Piece] | None:
    """Find the pieces of a JPEG, PNG, WebP or GIF file that remain without metadata.

    None means another format, or a file that is not built as its format demands; `encoded_anew` can strip it.
    """
    for sign, at, pieces in _FORMATS:
        if content.startswith(sign, at):
            try:
                return _merged(pieces(content))
            # an index beyond the end, or a part that is longer or shorter than its format allows
            except (IndexError, MalformedError):
                return None
    return None


def encoded_anew(content: bytes, name: str) -> tuple[bytes, str]:
    """Decode a picture and encode it upright without metadata; returns the file and its media type.

    Lossless formats become PNG, others JPEG; of an animation the first frame remains. Raises `ImageError`.
    """
    image = open_rgb(content, name=name)
    # None for a chunk that Pillow cannot unpack
    profile = profile_in(image.info.get("icc_profile") or b"")
    # Pillow copies some of this into the new file, and which of it differs between formats and versions
    image.info = {}
    # a profile of grey or CMYK would be wrong for the RGB that it was converted to
    if profile is not None and profile[16:20] != b"RGB ":
        profile = None
    file = io.BytesIO()
    if content.startswith((PNG, b"GIF8", b"BM")):
        # level 1: level 6 takes five times as long for a tenth fewer bytes, while somebody waits
        image.save(file, "PNG", compress_level=1, icc_profile=profile)
        return file.getvalue(), "image/png"
    image.save(file, "JPEG", quality=92, icc_profile=profile)
    return file.getvalue(), "image/jpeg"


def joined(pieces: list[Piece], content: bytes) -> bytes:
    """Put the pieces of a file together."""
    return b"".join(
        content[piece.start : piece.stop] if isinstance(piece, range) else piece for piece in pieces
    )


def _merged(pieces: list[Piece]) -> list[Piece]:
    """Join what lies side by side in the file: a large PNG has thousands of chunks, each of which would be a read."""
    merged: list[Piece] = []
    for piece in pieces:
        last = merged[-1] if merged else b""
        if isinstance(piece, range) and isinstance(last, range) and last.stop == piece.start:
            merged[-1] = range(last.start, piece.stop)
        else:
            merged.append(piece)
    return merged


_DHT, _DAC, _DQT, _DNL, _DRI = 0xC4, 0xCC, 0xDB, 0xDC, 0xDD
"""Huffman tables, arithmetic conditioning, quantisation tables, number of lines, restart interval."""
_FRAMES = frozenset({*range(0xC0, 0xD0)} - {_DHT, 0xC8, _DAC})
"""Markers of frames; 0xC8 is reserved."""
_ARITHMETIC = frozenset({*range(0xC9, 0xD0)} - {_DAC})
"""Frames whose scans read no Huffman tables; those of the others read no arithmetic conditioning."""
_EOI, _SOS, _COM = 0xD9, 0xDA, 0xFE
_CODING = _FRAMES | {_SOS, _DHT, _DAC, _DQT, _DNL, _DRI}
_APP0, _APP2, _APP14, _APP15 = 0xE0, 0xE2, 0xEE, 0xEF
_ICC = b"ICC_PROFILE\0"
_ICC_LARGEST = 65533 - len(_ICC) - 2
_IN_SCAN = frozenset({0x00, *range(0xD0, 0xD8), 0xFF})
"""Bytes that follow 0xFF within coded data: a stuffed zero, a restart marker, another 0xFF; any other ends the scan."""


def _jpeg(content: bytes) -> list[Piece]:
    jfif: list[Piece] = []
    adobe: list[Piece] = []
    coding: list[Piece] = []
    profile: dict[int, bytes] = {}
    numbers_of_parts: set[int] = set()
    tables = _Tables()
    at, scanned = 2, False
    # up to the end marker: without it, what is appended would pass for coded data
    while True:
        demand(content[at] == 0xFF)
        # any number of 0xFF may stand before a marker
        while content[at] == 0xFF:
            at += 1
        marker, body = content[at], at + 3
        if marker == _EOI:
            break
        end = at + 1 + int.from_bytes(content[at + 1 : body], "big")
        demand(body <= end <= len(content))
        if marker in _CODING:
            tables.take(marker, content[body:end])
            if marker == _SOS:
                end, scanned = _scan_end(content, end), True
            coding.append(range(at - 1, end))
        else:
            demand(marker == _COM or _APP0 <= marker <= _APP15)
            if scanned:
                # decoders have chosen the colours before, and would obey in front what they ignore here
                pass
            elif marker == _APP0 and content.startswith(b"JFIF\0", body) and end - body >= 14 and not jfif:
                # its twelve bytes without the preview that may follow; decoders choose the colour space by it,
                # unless it is too short
                jfif = [b"\xff\xe0\0\x10" + content[body : body + 12] + b"\0\0"]
            elif marker == _APP14 and content.startswith(b"Adobe", body):
                # likewise: its last byte says how colours were transformed
                demand(end - body >= 12)
                adobe = [b"\xff\xee\0\x0eAdobe\0d\0\0\0\0" + content[body + 11 : body + 12]]
            elif marker == _APP2 and content.startswith(_ICC, body):
                number = body + len(_ICC)
                demand(number + 2 <= end and content[number] not in profile)
                profile[content[number]] = content[number + 2 : end]
                numbers_of_parts.add(content[number + 1])
        at = end
    demand(scanned and tables.are_used)
    # of a profile whose parts are not all there decoders take none
    demand(
        not profile or (numbers_of_parts == {len(profile)} and {*profile} == {*range(1, len(profile) + 1)})
    )
    turn = orientation_of(content)
    exif: list[Piece] = [] if turn == 1 else [_segment(0xE1, b"Exif\0\0" + orientation_exif(turn))]
    return [range(2), *jfif, *exif, *_icc_segments(profile), *adobe, *coding, b"\xff\xd9"]


class _Tables:
    """The tables of a JPEG's coding: a segment holds nothing beside them, and none is replaced before it was used."""

    def __init__(self) -> None:
        self._frame = b""
        self._marker = 0
        # each by its segment's marker and its number
        self._known: set[tuple[int, int]] = set()
        self._unused: set[tuple[int, int]] = set()

    @property
    def are_used(self) -> bool:
        """True if each was used by the picture; what nobody reads could be anything."""
        return not self._unused

    def take(self, marker: int, body: bytes) -> None:
        """Take the next segment of the coding. Raises `MalformedError`."""
        if marker in _FRAMES:
            # precision, height, width, and three bytes a component
            demand(not self._frame and len(body) >= 6 and body[5] <= 4 and len(body) == 6 + 3 * body[5])
            self._frame, self._marker = body, marker
        elif marker == _SOS:
            demand(bool(self._frame) and len(body) >= 1 and body[0] <= 4 and len(body) == 4 + 2 * body[0])
            self._unused -= self._used(body)
        elif marker in (_DNL, _DRI):
            demand(len(body) == 2)
            self._define(marker, 0)
            self._unused.discard((_DNL, 0))
        else:
            at = 0
            while at < len(body):
                # a table's kind in one bit, its number in two
                demand(body[at] & 0xEC == 0)
                # of quantisation tables that bit is the size of their numbers
                self._define(marker, body[at] & 3 if marker == _DQT else body[at])
                if marker == _DQT:
                    at += 1 + (128 if body[at] & 0xF0 else 64)
                elif marker == _DHT:
                    at += 17 + sum(body[at + 1 : at + 17])
                else:
                    at += 2
            demand(at == len(body))

    def _define(self, marker: int, number: int) -> None:
        table = (marker, number)
        # decoders take Huffman tables anew for each scan, the others may be needed till the end
        demand(table not in (self._unused if marker in (_DHT, _DAC, _DRI) else self._known))
        self._known.add(table)
        self._unused.add(table)

    def _used(self, scan: bytes) -> set[tuple[int, int]]:
        """The tables that a scan reads."""
        coding = _DAC if self._marker in _ARITHMETIC else _DHT
        progressive, lossless = self._marker & 3 == 2, self._marker & 3 == 3
        used = {(_DRI, 0)}
        if not lossless:
            used |= {(_DQT, self._frame[at]) for at in range(8, len(self._frame), 3)}
        first, refines = scan[-3], scan[-1] >> 4 > 0
        for at in range(2, len(scan) - 3, 2):
            # of a progressive picture a scan has the mean of each block, or the rest of it
            if not progressive or (first == 0 and not refines):
                used.add((coding, scan[at] >> 4))
            if first > 0 if progressive else not lossless:
                used.add((coding, 0x10 | scan[at] & 15))
        return used


def _scan_end(content: bytes, at: int) -> int:
    # by `find` and not by a regular expression, which takes 0.5 s for 11 MB in place of 0.07
    while 0 <= (at := content.find(b"\xff", at)) < len(content) - 1:
        if content[at + 1] not in _IN_SCAN:
            return at
        at += 1
    return len(content)


def _icc_segments(parts: dict[int, bytes]) -> list[Piece]:
    whole = profile_in(b"".join(parts[number] for number in sorted(parts)))
    if whole is None:
        return []
    cut = [whole[at : at + _ICC_LARGEST] for at in range(0, len(whole), _ICC_LARGEST)]
    return [
        _segment(_APP2, _ICC + bytes([number, len(cut)]) + part) for number, part in enumerate(cut, start=1)
    ]


def _segment(marker: int, body: bytes) -> bytes:
    return bytes([0xFF, marker]) + (len(body) + 2).to_bytes(2, "big") + body


_VP8X_SIZE, _ANIM_SIZE, _ANMF_HEADER = 10, 6, 16
_WEBP_IMAGE = frozenset({b"VP8 ", b"VP8L", b"ALPH"})
_WEBP_WHOLE = ([b"VP8 "], [b"VP8L"], [b"ALPH", b"VP8 "])
"""The chunks of one image, in their order."""
_HAS_PROFILE, _HAS_ALPHA, _HAS_EXIF, _HAS_XMP, _IS_ANIMATED = 0x20, 0x10, 0x08, 0x04, 0x02


def _webp(content: bytes) -> list[Piece]:
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


_GIF_LOOP = re.compile(rb"!\xff\x0b(NETSCAPE2\.0|ANIMEXTS1\.0)\x03\x01..\0", re.DOTALL)
"""How often an animation is repeated: the one application extension that a viewer needs."""


def _gif(content: bytes) -> list[Piece]:
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


_FORMATS = ((b"\xff\xd8\xff", 0, _jpeg), (PNG, 0, png_pieces), (b"WEBP", 8, _webp), (b"GIF8", 0, _gif))
