"""Parts of a picture that stand twice, too late or unused: they do not leave, and no colour changes."""

import io
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image, ImageSequence

from limner.data.image_metadata import encoded_anew, joined, pieces_without_metadata
from limner.data.images import decode
from tests.data.test_image_metadata import PROFILE, SECRET, chunk, riff, segment
from tests.data.test_image_places import (
    LETTERS,
    PLAIN,
    gif_places,
    jpeg_places,
    png_places,
    saved,
    table_of,
    webp_of,
)


def is_kept(content: bytes) -> bytes:
    """What is sent of a file that is not encoded anew, with the same pixels."""
    pieces = pieces_without_metadata(content)
    assert pieces is not None
    got = joined(pieces, content)
    assert (decode(got) == decode(content)).all()
    assert SECRET not in got
    return got


def is_encoded_anew(content: bytes) -> bytes:
    assert pieces_without_metadata(content) is None
    got, kind = encoded_anew(content, "a.jpg")
    before, after = decode(content).astype(int), decode(got).astype(int)
    if kind == "image/png":
        assert (before == after).all()
    else:
        assert before.shape == after.shape
        assert np.abs(before - after).mean() < 4
    assert SECRET not in got
    return got


def smooth(form: str, **given: object) -> bytes:
    """A picture without noise, of which a lossy format changes little."""
    row, column = np.mgrid[:24, :32]
    file = io.BytesIO()
    values = np.stack([row * 9, column * 7, row * 4 + column * 4], axis=-1).astype(np.uint8)
    Image.fromarray(values).save(file, form, **given)
    return file.getvalue()


def parts_of(content: bytes) -> list[bytes]:
    """The segments of a JPEG, scans with their coded data."""
    return [content[at:end] for at, end in pairwise(jpeg_places(content))]


def before_scan(content: bytes, number: int, new: bytes) -> bytes:
    """A JPEG with more in front of a scan."""
    at = [place for place in jpeg_places(content) if content[place + 1] == 0xDA][number]
    return content[:at] + new + content[at:]


JPEG = smooth("JPEG", quality=90)
PROGRESSIVE = smooth("JPEG", quality=90, progressive=True)
AFTER_JFIF = 20
TEXT_TABLE = segment(0xC4, b"\0" + LETTERS)
CONDITIONS = segment(0xCC, b"\0\x10\x10\x05")


def arithmetic(frame: int) -> bytes:
    """A grey JPEG in arithmetic coding: any bytes are pixels to it."""
    parts = [part for part in parts_of(saved("JPEG", "L")) if part[1] != 0xC4]
    return (
        b"\xff\xd8"
        + b"".join(part[:1] + bytes([frame]) + part[2:] if part[1] == 0xC0 else part for part in parts)
        + b"\xff\xd9"
    )


def test_codings_that_browsers_do_not_show() -> None:
    content = arithmetic(0xC9)
    # else nothing would be seen of what is sent
    assert decode(content).std() > 1
    is_encoded_anew(content)
    is_encoded_anew(before_scan(content, 0, CONDITIONS))
    is_encoded_anew(before_scan(content, 0, TEXT_TABLE))
    parts = parts_of(saved("JPEG", "L"))
    for frame in (*range(0xC0, 0xC4), *range(0xC5, 0xC8), *range(0xC9, 0xCC), *range(0xCD, 0xD0)):
        named = [part[:1] + bytes([frame]) + part[2:] if part[1] == 0xC0 else part for part in parts]
        whole = pieces_without_metadata(b"\xff\xd8" + b"".join(named) + b"\xff\xd9") is not None
        assert whole == (frame in (0xC0, 0xC1))
        assert pieces_without_metadata(arithmetic(frame)) is None


def test_huffman_coding_reads_no_conditions_of_arithmetic_coding() -> None:
    is_encoded_anew(before_scan(JPEG, 0, CONDITIONS))
    is_encoded_anew(before_scan(PROGRESSIVE, 0, CONDITIONS))


def without_jfif(content: bytes) -> bytes:
    return content[:2] + content[AFTER_JFIF:]


def with_ids(content: bytes, ids: bytes) -> bytes:
    """A JPEG whose components are named so; decoders take those named RGB for red, green and blue."""
    parts = []
    for part in parts_of(content):
        changed = bytearray(part)
        for number, name in enumerate(ids):
            if part[1] == 0xC0:
                changed[10 + 3 * number] = name
            elif part[1] == 0xDA:
                changed[5 + 2 * number] = name
        parts.append(bytes(changed))
    return content[:2] + b"".join(parts) + b"\xff\xd9"


JFIF = segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0")
RGB = segment(0xEE, b"Adobe\0d\0\0\0\0\0")
NAMED = with_ids(without_jfif(JPEG), b"RGB")
COLOURS = {
    "Adobe behind the scan": without_jfif(JPEG)[:-2] + RGB + b"\xff\xd9",
    "Adobe between scans": before_scan(without_jfif(PROGRESSIVE), 1, RGB),
    "JFIF behind the scan": NAMED[:-2] + JFIF + b"\xff\xd9",
    "a short JFIF": NAMED[:2] + segment(0xE0, b"JFIF\0\1\1") + NAMED[2:],
    "a JFIF one byte too short": NAMED[:2] + segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0") + NAMED[2:],
    "a short JFIF and Adobe": JPEG[:2]
    + segment(0xE0, b"JFIF\0\1\1")
    + segment(0xEE, b"Adobe\0d\0\0\0\0\0")
    + without_jfif(JPEG)[2:],
    "a short JFIF before a comment": NAMED[:2]
    + segment(0xE0, b"JFIF\0\1\1")
    + segment(0xFE, SECRET)
    + NAMED[2:],
    "a short JFIF and a whole one": NAMED[:2] + segment(0xE0, b"JFIF\0\1\1") + JFIF + NAMED[2:],
}


@pytest.mark.parametrize("name", COLOURS)
def test_what_decoders_ignore_does_not_change_colours(name: str) -> None:
    got = is_kept(COLOURS[name])
    assert SECRET[:3] not in got
    assert got.count(b"JFIF") == (name == "a short JFIF and a whole one")
    assert got.count(b"Adobe") == (name == "a short JFIF and Adobe")


def test_what_decoders_obey_stays() -> None:
    # else the test above would not see a lost one
    assert np.abs(decode(NAMED).astype(int) - decode(JPEG)).mean() > 20
    for content in (NAMED, NAMED[:2] + JFIF + NAMED[2:], NAMED[:2] + RGB + NAMED[2:]):
        is_kept(content)
    assert b"JFIF" in is_kept(before_scan(without_jfif(JPEG), 0, JFIF))


def icc(number: int, count: int, part: bytes) -> bytes:
    return segment(0xE2, b"ICC_PROFILE\0" + bytes([number, count]) + part)


TEXT_PROFILE = PROFILE[:-30] + SECRET
HALVES = icc(1, 2, PROFILE[:200]), icc(2, 2, PROFILE[200:])


@pytest.mark.parametrize(
    "parts",
    [
        (icc(1, 1, PROFILE), icc(1, 1, TEXT_PROFILE)),
        (icc(1, 1, TEXT_PROFILE), icc(1, 1, PROFILE)),
        (*HALVES, icc(2, 2, PROFILE[200:])),
        (HALVES[0], icc(3, 2, PROFILE[200:])),
        (icc(1, 2, PROFILE),),
    ],
)
def test_the_parts_of_a_profile_are_each_there_once(parts: tuple[bytes, ...]) -> None:
    is_encoded_anew(JPEG[:AFTER_JFIF] + b"".join(parts) + JPEG[AFTER_JFIF:])


def test_the_profile_of_a_jpeg_stands_before_its_scan() -> None:
    for parts in ((icc(1, 1, PROFILE),), HALVES, HALVES[::-1]):
        got = is_kept(JPEG[:AFTER_JFIF] + b"".join(parts) + JPEG[AFTER_JFIF:])
        assert Image.open(io.BytesIO(got)).info["icc_profile"] == PROFILE
    late = icc(1, 1, TEXT_PROFILE)
    for content in (JPEG[:-2] + late + b"\xff\xd9", before_scan(PROGRESSIVE, 2, late)):
        assert b"ICC_PROFILE" not in is_kept(content)
    # too short for its two numbers: those of the next segment are none of it
    short = JPEG[:AFTER_JFIF] + segment(0xE2, b"ICC_PROFILE\0") + JPEG[AFTER_JFIF:]
    assert pieces_without_metadata(short) is None


def own_colours(content: bytes, background: int, disposal: int) -> bytes:
    """A GIF each of whose images has the colours for itself that were common, with a text in their place."""
    end = 13 + table_of(content[10])
    palette = (SECRET * 30)[: end - 13]
    changed = content[:11] + bytes([background]) + content[12:13] + palette
    for at, stop in pairwise(gif_places(content)):
        part = content[at:stop]
        if part[0] == 0x2C and not part[9] & 0x80:
            part = part[:9] + bytes([part[9] | 0x80 | content[10] & 7]) + content[13:end] + part[10:]
        elif part[:2] == b"!\xf9":
            part = part[:3] + bytes([part[3] & ~0x1C | disposal << 2]) + part[4:]
        changed += part
    return changed + b";"


def frames_of(content: bytes) -> list[bytes]:
    with Image.open(io.BytesIO(content)) as image:
        return [frame.convert("RGBA").tobytes() for frame in ImageSequence.Iterator(image)]


@pytest.mark.parametrize("disposal", range(4))
@pytest.mark.parametrize("name", ["gif", "animated gif"])
def test_common_colours_that_no_image_of_a_gif_uses(name: str, disposal: int) -> None:
    content = own_colours(PLAIN[name], 3, disposal)
    got = is_kept(content)
    assert frames_of(got) == frames_of(content)
    assert SECRET[:4] not in got
    size = table_of(content[10])
    # of all those colours only that of the background
    assert got[:13] == content[:13]
    assert got[13 : 13 + size] == bytes(9) + content[22:25] + bytes(size - 12)
    assert is_kept(got) == got
    # a background that is none of them
    content = own_colours(PLAIN[name], size // 3, disposal)
    got = is_kept(content)
    assert frames_of(got) == frames_of(content)
    assert got[13 : 13 + size] == bytes(size)


def test_common_colours_stay_where_one_image_uses_them() -> None:
    content = PLAIN["animated gif"]
    owned = own_colours(content, 0, 1)
    end = 13 + table_of(content[10])
    # the first image without its own colours, the others with them
    stop, then = (
        next(after for at, after in pairwise(gif_places(file)) if file[at] == 0x2C)
        for file in (content, owned)
    )
    mixed = content[:stop] + owned[then:]
    got = is_kept(mixed)
    assert got[13:end] == content[13:end]
    assert frames_of(got) == frames_of(mixed)


def inserted(content: bytes, kind: bytes, new: bytes) -> bytes:
    """A PNG with more in front of its first chunk of a kind."""
    at = next(place for place in png_places(content) if content[place + 4 : place + 8] == kind)
    return content[:at] + new + content[at:]


INDEXED = saved("PNG", "P")
GREY = saved("PNG", "I;16")
TOO_LATE = {
    "transparency": (INDEXED, chunk(b"tRNS", SECRET[:16])),
    "one transparent colour": (PLAIN["png"], chunk(b"tRNS", SECRET[:6])),
    "a background": (PLAIN["png"], chunk(b"bKGD", SECRET[:6])),
    "primaries": (PLAIN["png"], chunk(b"cHRM", b"Ann!" * 8)),
    "gamma": (PLAIN["png"], chunk(b"gAMA", SECRET[:4])),
    "intent": (PLAIN["png"], chunk(b"sRGB", b"\0")),
    "bits": (PLAIN["png"], chunk(b"sBIT", SECRET[:3])),
    "resolution": (GREY, chunk(b"pHYs", SECRET[:9])),
    "code points": (GREY, chunk(b"cICP", SECRET[:4])),
    "a screen": (GREY, chunk(b"mDCV", SECRET[:24])),
    "light": (GREY, chunk(b"cLLI", SECRET[:8])),
}


@pytest.mark.parametrize("name", TOO_LATE)
def test_a_chunk_behind_the_pixels_of_a_png(name: str) -> None:
    content, late = TOO_LATE[name]
    got = is_encoded_anew(inserted(content, b"IEND", late))
    assert SECRET[:3] not in got
    # in its place it stays
    assert late in is_kept(inserted(content, b"IDAT", late))


def test_no_count_of_frames_nor_palette_stands_behind_the_pixels() -> None:
    # neither can be decoded, nor would be sent
    assert pieces_without_metadata(inserted(GREY, b"IEND", chunk(b"acTL", bytes(8)))) is None
    at = INDEXED.index(b"PLTE") - 4
    end = at + 12 + int.from_bytes(INDEXED[at : at + 4], "big")
    late = inserted(INDEXED[:at] + INDEXED[end:], b"IEND", INDEXED[at:end])
    assert pieces_without_metadata(late) is None


def test_the_background_of_an_indexed_png_stands_behind_its_palette() -> None:
    # a background is one of its colours
    is_encoded_anew(inserted(INDEXED, b"PLTE", chunk(b"bKGD", b"\3")))
    is_kept(inserted(INDEXED, b"IDAT", chunk(b"bKGD", b"\3")))


GAMMA = chunk(b"gAMA", (20_000).to_bytes(4, "big"))


def test_a_chunk_behind_a_palette_that_is_dropped() -> None:
    """Decoders ignore it there; alone it would count."""
    suggested = chunk(b"PLTE", bytes(6))
    is_encoded_anew(inserted(PLAIN["png"], b"IDAT", suggested + GAMMA))
    got = is_kept(inserted(PLAIN["png"], b"IDAT", GAMMA + suggested))
    assert GAMMA in got
    assert b"PLTE" not in got


def test_a_profile_behind_the_pixels_of_a_png_is_dropped() -> None:
    profile = smooth("PNG", icc_profile=PROFILE)
    at = profile.index(b"iCCP") - 4
    end = at + 12 + int.from_bytes(profile[at : at + 4], "big")
    assert b"iCCP" in is_kept(profile)
    for content, kind in ((PLAIN["png"], b"IEND"), (INDEXED, b"IEND"), (INDEXED, b"IDAT")):
        assert b"iCCP" not in is_kept(inserted(content, kind, profile[at:end]))


SMOOTH = smooth("WEBP", quality=90)[12:]
EXTENDED = b"\x1f\0\0\x17\0\0"
PLAIN_X, PROFILE_X = (riff(b"VP8X", bytes([flags, 0, 0, 0]) + EXTENDED) for flags in (0, 0x20))
ICCP = riff(b"ICCP", PROFILE)
TEXT_ICCP = riff(b"ICCP", TEXT_PROFILE)


@pytest.mark.parametrize(
    "chunks",
    [
        (PROFILE_X, ICCP, TEXT_ICCP, SMOOTH),
        (PROFILE_X, TEXT_ICCP[:-2] + b"\0\0", TEXT_ICCP, SMOOTH),
        (PROFILE_X, riff(b"ICCP", SECRET), ICCP, SMOOTH),
        (PROFILE_X, SMOOTH, TEXT_ICCP),
        (PROFILE_X, ICCP, SMOOTH, TEXT_ICCP),
        (PLAIN_X, TEXT_ICCP, SMOOTH),
        (ICCP, PROFILE_X, SMOOTH),
    ],
)
def test_a_webp_has_one_profile_that_it_announces(chunks: tuple[bytes, ...]) -> None:
    content = webp_of(*chunks)
    assert pieces_without_metadata(content) is None
    if chunks[0] in (PLAIN_X, PROFILE_X):
        with Image.open(io.BytesIO(content)) as image:
            profile = image.info.get("icc_profile")
        got, _ = encoded_anew(content, "a.webp")
        assert np.abs(decode(content).astype(int) - decode(got)).mean() < 4
        with Image.open(io.BytesIO(got)) as image:
            assert image.info.get("icc_profile") in (profile, None)


def test_a_webp_in_order_is_not_encoded_anew() -> None:
    got = is_kept(webp_of(PROFILE_X, ICCP, SMOOTH))
    with Image.open(io.BytesIO(got)) as image:
        assert image.info["icc_profile"] == PROFILE
    # announced, and not there
    assert b"ICCP" not in is_kept(webp_of(PROFILE_X, SMOOTH))
    got = is_kept(PLAIN["animated webp"])
    assert got.count(b"ANMF") == 2
