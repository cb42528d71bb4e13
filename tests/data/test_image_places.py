"""A text planted at each kind of place of an image file never comes out of the server, whatever its format says."""

import io
import re
import zlib
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from limner.data.image_metadata import encoded_anew, joined, pieces_without_metadata
from limner.data.images import decode
from limner.errors import ImageError
from tests.data.test_image_metadata import SECRET, chunk, pixels_of, riff, segment


def saved(form: str, mode: str = "RGB", **given: object) -> bytes:
    file = io.BytesIO()
    pixels_of(mode, 5).save(file, form, **given)
    return file.getvalue()


def animated(form: str, mode: str = "RGB") -> bytes:
    others = [pixels_of(mode, 5).rotate(180)]
    return saved(form, mode, save_all=True, append_images=others, duration=100, loop=0)


def served(content: bytes) -> bytes | None:
    """What the server sends; None if it refuses."""
    pieces = pieces_without_metadata(content)
    if pieces is not None:
        return joined(pieces, content)
    try:
        return encoded_anew(content, "a.jpg")[0]
    except ImageError:
        return None


PLAIN = {
    "jpeg": saved("JPEG"),
    "grey jpeg": saved("JPEG", "L"),
    "cmyk jpeg": saved("JPEG", "CMYK"),
    "progressive jpeg": saved("JPEG", progressive=True),
    "png": saved("PNG"),
    "indexed png": saved("PNG", "P", transparency=3),
    "grey png": saved("PNG", "I;16"),
    "animated png": animated("PNG"),
    "webp": saved("WEBP"),
    "lossless webp": saved("WEBP", lossless=True),
    "webp with alpha": saved("WEBP", "RGBA"),
    "animated webp": animated("WEBP"),
    "gif": saved("GIF", "P"),
    "animated gif": animated("GIF", "P"),
}


def jpeg_places(content: bytes) -> Iterator[int]:
    """The beginning of each segment, the end marker among them."""
    at = 2
    while content[at + 1] != 0xD9:
        yield at
        end = at + 2 + int.from_bytes(content[at + 2 : at + 4], "big")
        # behind a scan its coded data, in which a marker is followed by other bytes than these
        coded = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]", re.DOTALL).search(content, end)
        assert coded is not None
        at = coded.start() if content[at + 1] == 0xDA else end
    yield at


def png_places(content: bytes) -> Iterator[int]:
    at = 8
    while at < len(content):
        yield at
        at += 12 + int.from_bytes(content[at : at + 4], "big")


def webp_places(content: bytes) -> Iterator[int]:
    at = 12
    while at < len(content):
        yield at
        if content[at : at + 4] == b"ANMF":
            # its own chunks begin behind a header of 16 bytes
            yield at + 24
        size = int.from_bytes(content[at + 4 : at + 8], "little")
        at += 8 + size + size % 2
    yield at


def table_of(packed: int) -> int:
    return 3 * 2 ** ((packed & 7) + 1) if packed & 0x80 else 0


def gif_places(content: bytes) -> Iterator[int]:
    at = 13 + table_of(content[10])
    while True:
        yield at
        if content[at] == 0x3B:
            return
        at += 2 if content[at] == 0x21 else 11 + table_of(content[at + 9])
        while content[at]:
            at += 1 + content[at]
        at += 1


def longer(content: bytes, at: int, more: bytes) -> bytes:
    """A file whose part at a place has more bytes at its end, and says so."""
    if content.startswith(b"\xff\xd8"):
        size = int.from_bytes(content[at + 2 : at + 4], "big")
        return (
            content[: at + 2]
            + (size + len(more)).to_bytes(2, "big")
            + content[at + 4 : at + 2 + size]
            + (more + content[at + 2 + size :])
        )
    if content.startswith(b"\x89PNG"):
        end = at + 8 + int.from_bytes(content[at : at + 4], "big")
        return (
            content[:at] + chunk(content[at + 4 : at + 8], content[at + 8 : end] + more) + content[end + 4 :]
        )
    end = at + 8 + int.from_bytes(content[at + 4 : at + 8], "little")
    body = (
        content[12:at]
        + riff(content[at : at + 4], content[at + 8 : end] + more)
        + content[end + (end - at) % 2 :]
    )
    return b"RIFF" + (4 + len(body)).to_bytes(4, "little") + b"WEBP" + body


PNG_KINDS = b"IHDR PLTE IDAT IEND tRNS bKGD hIST cHRM gAMA sRGB sBIT pHYs cICP mDCV cLLI acTL fcTL fdAT iCCP eXIf tEXt"
WEBP_KINDS = (b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ANIM", b"ANMF", b"ICCP", b"EXIF", b"XMP ", b"JUNK")
VP8 = PLAIN["webp"][20:]
HIDING = {
    "bare": SECRET,
    "in a table": b"\x01" + SECRET + bytes(34),
    "Huffman": b"\x10\0\0\0\0\0\0\0\x1e" + bytes(8) + SECRET,
    "colours": b"Adobe" + SECRET,
    "preview": b"JFIF\0\1\1\0\0\1\0\1\1\1" + SECRET,
    "a frame": b"\x08\0\x10\0\x10\x01\x01\x11\0" + SECRET,
    "packed": zlib.compress(bytes(64)) + SECRET,
    "numbered": b"\0\0\0\x01" + zlib.compress(bytes(64)) + SECRET,
    "VP8": VP8[:10] + SECRET * 9,
    "VP8L": b"\x2f\0\0\0\0" + SECRET,
}


def planted(draw: st.DrawFn, name: str, content: bytes) -> bytes:
    """A file with a part that holds the text, or with a part that is longer by it."""
    body = draw(st.sampled_from(sorted(HIDING.values())))
    if name.endswith("jpeg"):
        places = list(jpeg_places(content))
        at = draw(st.sampled_from(places))
        # between segments; behind a scan the text would be coded data, in which only decoding could tell it
        bare = at <= content.index(b"\xff\xda") and draw(st.booleans())
        # any marker, and often one of those whose segments stay
        markers = st.sampled_from([*range(0x01, 0xD0), *range(0xD9, 0xFF)])
        marker = draw(st.sampled_from([0xC0, 0xC4, 0xCC, 0xDA, 0xDB, 0xDC, 0xDD, 0xE0, 0xE2, 0xEE]) | markers)
        new = SECRET if bare else segment(marker, body)
    elif "png" in name:
        places = list(png_places(content))
        at = draw(st.sampled_from(places))
        new = chunk(draw(st.sampled_from([*PNG_KINDS.split(), b"prVt", b"CRIT"])), body)
    elif "webp" in name:
        places = list(webp_places(content))
        at = draw(st.sampled_from(places))
        new = riff(draw(st.sampled_from(WEBP_KINDS)), body)
    else:
        at = draw(st.sampled_from(list(gif_places(content))))
        label = draw(st.sampled_from([0xF9, 0xFE, 0xFF, 0x01, 0xCE]))
        first = draw(st.sampled_from([b"", b"\x0bNETSCAPE2.0", b"\x04" + SECRET[:4], b"\x01" + SECRET[:1]]))
        new = b"!" + bytes([label]) + first + bytes([len(SECRET)]) + SECRET + b"\0"
        return content[:at] + new + content[at:]
    # not behind data whose end only their decoding shows
    if (
        draw(st.booleans())
        and at < len(content) - 2
        and content[at : at + 4] not in (b"VP8 ", b"VP8L", b"ALPH")
    ):
        return longer(content, at, draw(st.sampled_from([SECRET, b"\0" + SECRET, SECRET * 3])))
    whole = content[:at] + new + content[at:]
    if "webp" in name:
        whole = b"RIFF" + (len(whole) - 8).to_bytes(4, "little") + whole[8:]
        if at - 24 in places and content[at - 24 : at - 20] == b"ANMF":
            size = int.from_bytes(content[at - 20 : at - 16], "little") + len(new)
            whole = whole[: at - 20] + size.to_bytes(4, "little") + whole[at - 16 :]
    return whole


@st.composite
def files(draw: st.DrawFn) -> bytes:
    name = draw(st.sampled_from(sorted(PLAIN)))
    return planted(draw, name, PLAIN[name])


@settings(max_examples=1500, deadline=None)
@given(files())
def test_a_planted_text_is_not_served(content: bytes) -> None:
    assert SECRET in content
    got = served(content)
    assert got is None or SECRET not in got


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_files_as_they_should_be_are_not_encoded_anew(name: str) -> None:
    content = PLAIN[name]
    pieces = pieces_without_metadata(content)
    assert pieces is not None
    assert (decode(joined(pieces, content)) == decode(content)).all()
    # cut off at its end, where others could append something
    cut = {"jpeg": 2, "gif": 1, "png": 12}.get(name.split()[-1], len(SECRET) + 10)
    assert pieces_without_metadata(content[:-cut] + SECRET) is None


@settings(max_examples=200, deadline=None)
@given(
    size=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    form=st.sampled_from([(0, 1), (0, 2), (0, 4), (0, 8), (0, 16), (2, 8), (2, 16), (4, 8), (6, 8), (6, 16)]),
    interlaced=st.booleans(),
    more=st.integers(-1, 1),
    cut=st.integers(1, 70),
)
def test_the_pixels_of_a_png_are_counted(
    size: tuple[int, int], form: tuple[int, int], interlaced: bool, more: int, cut: int
) -> None:
    """One byte more or less than the header says is seen, in one chunk or in many, in passes or not."""
    (width, height), (colour, depth) = size, form
    bits = depth * {0: 1, 2: 3, 4: 2, 6: 4}[colour]
    starts: list[tuple[range, range]] = [(range(width), range(height))]
    if interlaced:
        steps = [
            (0, 8, 0, 8),
            (4, 8, 0, 8),
            (0, 4, 4, 8),
            (2, 4, 0, 4),
            (0, 2, 2, 4),
            (1, 2, 0, 2),
            (0, 1, 1, 2),
        ]
        starts = [(range(x, width, dx), range(y, height, dy)) for x, dx, y, dy in steps]
    count = sum(len(rows) * (1 + -(-len(columns) * bits // 8)) for columns, rows in starts if columns)
    packed = zlib.compress(bytes(count + more))
    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([depth, colour, 0, 0, interlaced])
    parts = b"".join(chunk(b"IDAT", packed[at : at + cut]) for at in range(0, len(packed), cut))
    content = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + parts + chunk(b"IEND", b"")
    assert (pieces_without_metadata(content) is None) == (more != 0)
    if more == 0:
        with Image.open(io.BytesIO(content)) as image:
            image.load()


def test_a_png_that_unpacks_to_far_more_is_soon_given_up() -> None:
    content = PLAIN["png"]
    at = next(place for place in png_places(content) if content[place + 4 : place + 8] == b"IDAT")
    bomb = zlib.compress(bytes(10**8))
    assert pieces_without_metadata(content[:at] + chunk(b"IDAT", bomb) + chunk(b"IEND", b"")) is None


DROPPED: dict[str, Callable[[bytes], bytes]] = {
    "jpeg": lambda content: content[:20] + segment(0xEE, b"Adobe" + SECRET[:7]) * 9 + content[20:],
    "gif": lambda content: content[:-1] + (b"!\xf9\x04" + SECRET[:4] + b"\0") * 9 + content[-1:],
    "png": lambda content: content[:33] + chunk(b"PLTE", SECRET) + content[33:],
}


@pytest.mark.parametrize("name", sorted(DROPPED))
def test_what_counts_once_stays_once(name: str) -> None:
    """Some places hold a few bytes of anything, as often as they are repeated."""
    content = DROPPED[name](PLAIN[name])
    pieces = pieces_without_metadata(content)
    assert pieces is not None
    assert joined(pieces, content).count(SECRET[:4]) == 0
    assert joined(pieces, content).count(b"Adobe") == (name == "jpeg")
    assert decode(joined(pieces, content)).shape == decode(content).shape


def before(content: bytes, marker: int, new: Callable[[bytes], bytes]) -> bytes:
    """A JPEG with more in front of its first segment of a kind, by that segment."""
    at = next(place for place in jpeg_places(content) if content[place + 1] == marker)
    end = at + 2 + int.from_bytes(content[at + 2 : at + 4], "big")
    return content[:at] + new(content[at:end]) + content[at:]


JPEG = PLAIN["jpeg"]
TEXT_TABLE = SECRET + SECRET + b"1234"
LETTERS = bytes(7) + bytes([len(SECRET)]) + bytes(8) + SECRET
CODES = JPEG.index(b"\xff\xc4") + 20
"""The place of the number of codes of 16 bits in the first table."""
MALFORMED = {
    "two frames": before(JPEG, 0xC0, lambda whole: whole),
    "a quantisation table that nothing uses": before(
        JPEG, 0xDB, lambda _: segment(0xDB, b"\x03" + TEXT_TABLE)
    ),
    "of 16 bits": before(JPEG, 0xDB, lambda _: segment(0xDB, b"\x13" + TEXT_TABLE * 2)),
    "that is replaced": before(JPEG, 0xDB, lambda _: segment(0xDB, b"\0" + TEXT_TABLE)),
    "that is cut off": before(JPEG, 0xDB, lambda _: segment(0xDB, b"\x01" + SECRET)),
    "Huffman codes that nothing uses": before(JPEG, 0xC4, lambda _: segment(0xC4, b"\x13" + LETTERS)),
    "that are replaced": before(JPEG, 0xC4, lambda _: segment(0xC4, b"\x10" + LETTERS)),
    "that come too late": JPEG[:-2] + segment(0xC4, b"\x10" + LETTERS) + JPEG[-2:],
    "that say they are more": JPEG[:CODES] + bytes([JPEG[CODES] + 1]) + JPEG[CODES + 1 :],
    "two intervals": before(JPEG, 0xDA, lambda _: segment(0xDD, b"An") + segment(0xDD, b"\0\0")),
    "arithmetic coding that nothing uses": before(JPEG, 0xDA, lambda _: segment(0xCC, b"\x13A")),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_the_tables_of_a_jpeg_are_used_and_once(name: str) -> None:
    assert pieces_without_metadata(MALFORMED[name]) is None


def test_tables_of_each_scan() -> None:
    """A progressive picture defines Huffman tables anew for each scan; a scan of means uses only one of the kinds."""
    content = PLAIN["progressive jpeg"]
    assert content.count(b"\xff\xda") > 3
    first = content.index(b"\xff\xda")
    assert pieces_without_metadata(content) is not None
    unread = content[:first] + segment(0xC4, b"\x12" + LETTERS) + content[first:]
    assert pieces_without_metadata(unread) is None
    # a scan of means names it, and does not read it; nor does a scan of the rest read tables of means
    rest = next(at for at in jpeg_places(content) if content[at + 1] == 0xDA and content[at + 4] == 1)
    assert (content[first + 4], content[rest + 7] > 0) == (3, True)
    for scan, table, place in ((first, 0x12, 2), (rest, 0x02, 0x20)):
        named = bytearray(content)
        for number in range(content[scan + 4]):
            named[scan + 6 + 2 * number] |= place
        named[scan:scan] = segment(0xC4, bytes([table]) + LETTERS)
        assert pieces_without_metadata(bytes(named)) is None


def webp_of(*chunks: bytes) -> bytes:
    body = b"WEBP" + b"".join(chunks)
    return b"RIFF" + len(body).to_bytes(4, "little") + body


VP8X = riff(b"VP8X", bytes(10))
IMAGE = riff(b"VP8 ", VP8)
ANIMATED = riff(b"VP8X", b"\x02" + bytes(9)), riff(b"ANIM", bytes(6))
FRAME = bytes(16)


@pytest.mark.parametrize(
    ("chunks", "whole"),
    [
        ((IMAGE,), True),
        ((VP8X, IMAGE), True),
        ((*ANIMATED, riff(b"ANMF", FRAME + IMAGE)), True),
        ((riff(b"VP8 ", SECRET),), False),
        ((riff(b"VP8L", SECRET),), False),
        ((VP8X, riff(b"ALPH", b"\0" + SECRET), IMAGE), False),
        ((*ANIMATED, riff(b"ANMF", FRAME + riff(b"VP8 ", SECRET))), False),
        ((*ANIMATED, riff(b"ANMF", FRAME + IMAGE + IMAGE)), False),
        ((*ANIMATED, riff(b"ANMF", FRAME + riff(b"ALPH", b"\0" + SECRET) + IMAGE)), False),
        ((*ANIMATED, IMAGE), False),
        ((VP8X, ANIMATED[1], riff(b"ANMF", FRAME + IMAGE)), False),
    ],
)
def test_the_chunks_of_a_webp(chunks: tuple[bytes, ...], whole: bool) -> None:
    assert (pieces_without_metadata(webp_of(*chunks)) is not None) == whole


def test_what_counts_once_in_a_gif() -> None:
    content = PLAIN["animated gif"]
    at = list(gif_places(content))[-2]
    loop, control = b"!\xff\x0bNETSCAPE2.0\x03\x01An\0", b"!\xf9\x04Ann!\0"
    got = served(content[:at] + loop + control * 5 + b"!\xf9\x04\0\0\0\0\0" + content[at:])
    assert got is not None
    assert b"An" not in got
    assert (got.count(b"NETSCAPE"), got.count(b"!\xf9")) == (
        content.count(b"NETSCAPE"),
        content.count(b"!\xf9"),
    )
    assert pieces_without_metadata(content[:-1]) is None


def test_chunks_of_a_png_have_their_size_and_their_place() -> None:
    content = PLAIN["png"]
    got = served(content[:33] + chunk(b"gAMA", b"Ann") + content[33:])
    assert got is not None
    assert b"Ann" not in got
    animation = PLAIN["animated png"]
    places = {animation[at + 4 : at + 8]: at for at in png_places(animation)}
    first, last = places[b"IDAT"], places[b"fdAT"]
    again = animation[first : first + 12 + int.from_bytes(animation[first : first + 4], "big")]
    # the default image once more, in the place of a frame that comes later
    assert pieces_without_metadata(animation[:last] + again + animation[-12:]) is None
